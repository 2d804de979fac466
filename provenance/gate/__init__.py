"""Gates: pinned cells, artifacts compared bit by bit, and the chain of their reports."""
