"""Choose among candidates by what a person types."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

from .scan import Candidate

PID_AND_GLOB = re.compile(r"([0-9]{1,10}):(.+)", re.DOTALL)


def matches(candidate: Candidate, pattern: str) -> bool:
    """Tell whether a glob fits the whole path, its end, or the name; `*` crosses folders."""
    path = os.fsdecode(candidate.name)
    return any(
        fnmatchcase(text, glob)
        for text, glob in (
            (path, pattern),
            (path, f"*/{pattern}"),
            (path.rpartition("/")[2], pattern),
        )
    )


def matching(candidates: Iterable[Candidate], pattern: str | None) -> tuple[Candidate, ...]:
    """Keep what the glob fits; everything where there is none."""
    return tuple(c for c in candidates if pattern is None or matches(c, pattern))
