"""Which ways to a process's files are open, what blocks the others, and what would open them."""
