"""File formats, read strictly and without the libraries that would load them."""
