"""The reconstruction of damaged checkpoints."""
