"""The result of `repair`: what was written, each change and how it is known, and what is lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ...errors import ExitCode
from ...records.tool import tool_identity
from ..ranges import Range, merge
from ..save.recovery import SCHEMA
from ..save.verdict import Verdict
from .places import Place


@dataclass(frozen=True)
class Change:
    """One range of the result that the first copy does not hold, where it comes from, and why.

    `source` and `how_known` are fit to print.
    """

    range: Range
    what: str
    source: str
    how_known: str

    def to_json(self) -> dict[str, object]:
        """Give one entry of `changes`."""
        return {
            **self.range.to_json(),
            "what": self.what,
            "from": self.source,
            "how_known": self.how_known,
        }


@dataclass(frozen=True)
class Damaged:
    """A damaged part of the first copy, why it is called so, and whether it was restored."""

    place: Place
    reason: str
    restored: bool

    def to_json(self) -> dict[str, object]:
        """Give one entry of `damaged`."""
        return {**self.place.to_json(), "reason": self.reason, "restored": self.restored}


@dataclass(frozen=True)
class Source:
    """A copy that was read."""

    label: str
    size: int
    route: str
    unread: tuple[Range, ...]


@dataclass(frozen=True)
class HeaderFound:
    """The header of the result: its bytes, its origin, and how many bytes of the head agree.

    `other_metadata`: a readable header has the expected tensors, and not the expected metadata.
    `certain` is False where the writer's random order of metadata leaves the bytes open.
    """

    bytes: int
    tensors: int
    origin: str
    surviving: int
    certain: bool
    rebuilt: bool
    other_metadata: bool = False


@dataclass(frozen=True)
class Repair:
    """A run of `repair`.

    `verdict` is None where there was nothing to repair. `candidates` are headers between which
    nothing decides. `path` is None where nothing was written. `digests` are those that the file
    can have, where that is known beforehand, and `doubts` say why bytes in which nothing is wrong
    may not be the file's.
    """

    sources: tuple[Source, ...]
    size: int
    header: HeaderFound | None = None
    verdict: Verdict | None = None
    path: str | None = None
    sha256: str | None = None
    digests: frozenset[str] = frozenset()
    changes: tuple[Change, ...] = ()
    damaged: tuple[Damaged, ...] = ()
    conflicts: tuple[Place, ...] = ()
    candidates: tuple[str, ...] = ()
    zero_tensors: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def expected_sha256(self) -> str | None:
        """Give the digest known beforehand; of several the one that the bytes have, if any."""
        if len(self.digests) == 1:
            return next(iter(self.digests))
        return self.sha256 if self.sha256 in self.digests else None

    @property
    def is_settled(self) -> bool:
        """Tell whether one header and one value for each byte are left."""
        return not self.conflicts and not self.candidates

    @property
    def matches_expected(self) -> bool | None:
        """Compare with the digest known beforehand; None where there is none, or no bytes."""
        if not self.digests or self.sha256 is None:
            return None
        return self.sha256 in self.digests

    @property
    def lost(self) -> tuple[Range, ...]:
        """Give the ranges of the result that are still damaged."""
        places = (damaged.place for damaged in self.damaged if not damaged.restored)
        return merge(Range(place.offset, place.offset + place.bytes) for place in places)

    @property
    def whole_tensors(self) -> int:
        """Count the tensors of the result in which nothing is damaged or contested."""
        if self.header is None:
            return 0
        places = [damaged.place for damaged in self.damaged if not damaged.restored]
        touched = {place.tensor for place in (*places, *self.conflicts)} - {None}
        return self.header.tensors - len(touched)

    @property
    def exit_code(self) -> ExitCode:
        """Give 0 where the result is proven, or there is nothing to repair or doubt; else 1."""
        if self.matches_expected is not None:
            return ExitCode.HOLDS if self.matches_expected else ExitCode.DOES_NOT_HOLD
        if self.verdict is not None:
            return self.verdict.exit_code
        other = self.header is not None and self.header.other_metadata
        return ExitCode.DOES_NOT_HOLD if self.doubts or other else ExitCode.HOLDS

    def written_to(self, path: str, sha256: str) -> Repair:
        """Give the same result once its bytes are known and stand somewhere."""
        return replace(self, path=path, sha256=sha256)

    def to_json(self) -> dict[str, object]:
        """Give the document of `repair --json` and of the record beside the result."""
        verdict = self.verdict.value if self.verdict else None
        lost = [piece.to_json() for piece in self.lost]
        name = None if self.path is None else self.path.rpartition("/")[2]
        file: Mapping[str, object] = {
            "path": self.path,
            "name": name,
            "size": self.size,
            "sha256": self.sha256,
            "verdict": verdict,
            "reads": [
                {
                    "route": source.route,
                    "source": source.label,
                    "sha256": None,
                    "bytes": source.size,
                    "unread": [piece.to_json() for piece in source.unread],
                    "independent": False,
                }
                for source in self.sources
            ],
            "dirty_tensors": [],
            "unread": lost,
            "expected_sha256": self.expected_sha256,
            "matches_expected": self.matches_expected,
        }
        return {
            "schema": SCHEMA,
            "verdict": verdict,
            "process": None,
            "files": [file],
            "header": None if self.header is None else dict(vars(self.header)),
            "changes": [change.to_json() for change in self.changes],
            "damaged": [damaged.to_json() for damaged in self.damaged],
            "conflicts": [place.to_json() for place in self.conflicts],
            "candidates": list(self.candidates),
            "zero_tensors": list(self.zero_tensors),
            "whole_tensors": self.whole_tensors,
            "doubts": list(self.doubts),
            "notes": list(self.notes),
            "tool": tool_identity(),
        }
