"""Whose names an adapter's tensors have: PEFT methods, foreign producers, faulty prefixes."""
