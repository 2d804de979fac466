"""What a checksum file says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ..finding import Finding


class SumsLine(NamedTuple):
    """One file: relative name with `/` between parts, hashlib's algorithm name, lower-case hex."""

    name: str
    algorithm: str
    digest: str
    line: int


@dataclass(frozen=True)
class Sums:
    """All lines in their order, each name once, and what is remarkable about the file itself."""

    lines: tuple[SumsLine, ...]
    findings: tuple[Finding, ...] = ()
