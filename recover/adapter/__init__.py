"""What LoRA adapters are made of."""
