"""What a base model is made of, from its headers or from its config.json; no torch."""
