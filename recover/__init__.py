"""Recover checkpoints from running processes. Needs Linux; needs neither torch nor a network."""
