"""What every stage writes: names, JSON documents, the tool's own identity."""
