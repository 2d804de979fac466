"""What a git repository may do to the bytes of evidence that is committed to it."""
