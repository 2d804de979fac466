"""Evidence packages and run records."""
