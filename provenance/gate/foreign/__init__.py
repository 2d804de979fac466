"""Readers of report schemas that others made public: one module for each.

A report's verdict is its author's claim. It is read, and never becomes a pass: what can be asked of
the report's own figures and of the files it names is asked, and the rest is called a claim.
"""

from __future__ import annotations

from .model import Claim, ForeignReport
from .read import read_report

__all__ = ["Claim", "ForeignReport", "read_report"]
