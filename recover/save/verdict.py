"""What a recovery may claim, and how the claim follows from what was seen.

Kept apart from the reading so that every rule stands in one place and can be tested without it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from ...errors import ExitCode


class Verdict(str, Enum):
    """The claim, best first; only the first three say byte-exact."""

    FILE_EXACT = "FILE_EXACT"
    REBUILT_VERIFIED = "REBUILT_VERIFIED"
    MEMORY_CLEAN = "MEMORY_CLEAN"
    REBUILT_UNVERIFIED = "REBUILT_UNVERIFIED"
    MEMORY_DIRTY = "MEMORY_DIRTY"
    PARTIAL = "PARTIAL"
    CHANGED = "CHANGED"

    @property
    def is_exact(self) -> bool:
        """Tell whether the bytes are proven to be the file's."""
        return self in (Verdict.FILE_EXACT, Verdict.REBUILT_VERIFIED, Verdict.MEMORY_CLEAN)

    @property
    def exit_code(self) -> ExitCode:
        """Give the exit code that the verdict answers with."""
        return ExitCode.HOLDS if self.is_exact else ExitCode.DOES_NOT_HOLD


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Give the verdict of a run: the worst of its files'."""
    return max(verdicts, key=list(Verdict).index)


@dataclass(frozen=True)
class Observations:
    """What reading one file showed."""

    from_memory: bool
    source_changed: bool = False
    reads_differ: bool = False
    unread: bool = False
    pages_copied: bool = False
    page_map_known: bool = True
    length_known: bool = True
    read_once: bool = False
    unexplained_difference: bool = False
    matches_expected: bool | None = None


def judge(seen: Observations) -> Verdict:
    """Derive the verdict of one file, the worst applicable claim first.

    A sha256 that was known beforehand proves the bytes however they were obtained. Without it,
    memory counts as the file only when the page map shows no copied page and the file's length
    is known.
    """
    verdict = _unaided(seen)
    if seen.matches_expected and not verdict.is_exact:
        return Verdict.REBUILT_VERIFIED
    return verdict


def _unaided(seen: Observations) -> Verdict:
    if seen.source_changed or seen.reads_differ or seen.unexplained_difference:
        return Verdict.CHANGED
    if seen.unread:
        return Verdict.PARTIAL
    if seen.from_memory and seen.pages_copied:
        return Verdict.MEMORY_DIRTY
    if seen.read_once:
        return Verdict.REBUILT_UNVERIFIED
    if not seen.from_memory:
        return Verdict.FILE_EXACT
    if not (seen.page_map_known and seen.length_known):
        return Verdict.REBUILT_UNVERIFIED
    return Verdict.MEMORY_CLEAN
