"""Evidence: sums, signatures, packages, gates and custody, written and verified.

Whatever `verify` needs works on any system that Python runs on: reviewers use macOS and Windows.
"""
