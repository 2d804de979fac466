"""Custody chains read back: links, signed heads, withdrawals."""
