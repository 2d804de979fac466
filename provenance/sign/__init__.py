"""Keys and signatures: one key, several carriers, each checkable with a stock tool."""
