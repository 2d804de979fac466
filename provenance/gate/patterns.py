"""Names of artifacts, and patterns for them: `*`, `?` and `[…]` within a part of a path."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

STATUS_FILE = "cell.json"
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")


def filled(text: str, values: Mapping[str, str]) -> str:
    """Put values for the placeholders that are known; other braces stay as they are."""
    return _PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), text)


def pattern_fault(pattern: str) -> str | None:
    """Say why a pattern cannot be one; None when it can."""
    parts = pattern.split("/")
    if not pattern or "\0" in pattern or len(pattern) > 1024:
        return "that is empty or no name"
    if any(part in {"", ".", ".."} for part in parts) or "\\" in pattern or ":" in pattern:
        return "that leads elsewhere, or could on some system"
    if pattern == STATUS_FILE:
        return "whose name is kept for what the cell says of itself"
    return None


def matching(pattern: str, names: Iterable[str]) -> list[str]:
    """Give the names that a pattern fits, numbers in them sorted as numbers."""
    parts = pattern.split("/")
    return sorted((name for name in names if _fits(parts, name.split("/"))), key=natural)


def _fits(pattern: Sequence[str], parts: Sequence[str]) -> bool:
    return len(pattern) == len(parts) and all(
        part == wanted or fnmatchcase(part, wanted)
        for part, wanted in zip(parts, pattern, strict=True)
    )


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """Give a key that sorts `layer-10` after `layer-9`."""
    pieces = re.split(r"([0-9]+)", name)
    return tuple(
        (int(piece[:4000]) if index % 2 else 0, piece) for index, piece in enumerate(pieces)
    )
