"""Compare tensors by their values as integers."""
