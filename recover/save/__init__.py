"""Save one file: read it twice, judge it, write it durably."""
