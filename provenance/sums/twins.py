"""Twins among the names of a list; lists of many names that have none are told fast."""

from __future__ import annotations

from collections.abc import Sequence

from ..content.twins import twins_among
from ..finding import Finding


def listed_twins(names: Sequence[str]) -> tuple[Finding, ...]:
    """Report names, each given once, that macOS or Windows could not keep apart."""
    joined = "\n".join(names)
    return () if joined.isascii() and _differ_in_lower_case(names, joined) else twins_among(names)


def _differ_in_lower_case(names: Sequence[str], joined: str) -> bool:
    files = set(joined.lower().split("\n"))
    if len(files) != len(names):  # also where a name holds a newline
        return False
    folders: set[str] = set()
    above = {name.rpartition("/")[0] for name in names}
    while above:
        folders |= above
        above = {folder.rpartition("/")[0] for folder in above} - folders
    lowered = {folder.lower() for folder in folders}
    return len(lowered) == len(folders) and files.isdisjoint(lowered)
