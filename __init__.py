"""Recover, prove, sign and archive model checkpoints."""

__version__ = "0.1.0"
