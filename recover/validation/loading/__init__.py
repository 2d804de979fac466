"""What loaders make of a checkpoint: what they would say, and what PEFT really does."""
