"""What proves, or refutes, that a checkpoint is whole and fits its base."""
