"""Checksum files: one portable dialect is written, every known one is read."""
