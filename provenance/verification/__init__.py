"""What a verification found, and the forms that it is reported in."""
