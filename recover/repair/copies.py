"""The dumps that a repair draws on, and the bytes of each that are known to be wrong."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from ...errors import DoesNotHold, Unusable
from ...records.names import printable
from ..ranges import Range, merge, subtract, within
from ..readable import FileReadable, Readable
from ..save.rescue_map import RescueMap
from .recorded import recorded

_MAP_LIMIT = 256 << 20
_MAP_SUFFIX = ".rescue.map"
_PARTIAL = ".partial"


class Reason:
    """Why bytes of a copy are not the file's; these words stand in `changes` and `damaged`."""

    STATED = "stated on the command line"
    UNREAD = "listed as unread beside the copy"
    DIRTY = "recorded as changed in memory"
    MISSING = "the copy ends before them"
    ZERO = "zeros where the tensor cannot hold them"
    NAN_RUN = "a run of NaN or infinity"
    NOT_FINITE = "NaN or infinity that the other copy does not have"


@dataclass(frozen=True)
class Flaw:
    """A range of one copy that is provably not what the file held, and why."""

    range: Range
    reason: str


@dataclass(frozen=True)
class Copy:
    """One dump of the file. `path` is None for a file of a process.

    `dirty` names tensors that its record calls changed, `doubts` say why it may not be the file's
    bytes although nothing in it is wrong, and `stamp` is that of the file when it was opened.
    """

    readable: Readable
    path: Path | None = None
    flaws: tuple[Flaw, ...] = field(default=())
    dirty: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    stamp: tuple[int, int, int] | None = None

    @property
    def label(self) -> str:
        """What to call it; safe to print."""
        return self.readable.label

    @property
    def size(self) -> int:
        """The number of bytes that there are."""
        return self.readable.size

    @cached_property
    def flawed(self) -> tuple[Range, ...]:
        """Give all ranges that are known to be wrong."""
        return merge(flaw.range for flaw in self.flaws)

    def with_flaws(self, ranges: Iterable[Range], reason: str) -> Copy:
        """Add ranges that are wrong for one reason."""
        added = tuple(Flaw(piece, reason) for piece in merge(ranges))
        return replace(self, flaws=(*self.flaws, *added))

    def reason_at(self, offset: int) -> str | None:
        """Say why the byte at an offset is wrong; None where it is not known to be."""
        place = Range(offset, offset + 1)
        return next((why for why, ranges in self._by_reason.items() if within(ranges, place)), None)

    @cached_property
    def _by_reason(self) -> Mapping[str, tuple[Range, ...]]:
        reasons = dict.fromkeys(flaw.reason for flaw in self.flaws)
        return {why: merge(f.range for f in self.flaws if f.reason == why) for why in reasons}

    def read(self, offset: int, length: int) -> bytes:
        """Read what there is of a range; zeros stand for what lies beyond the copy's end.

        Raises DoesNotHold where the copy has become shorter than it was.
        """
        there = max(0, min(length, self.size - offset))
        have = self.readable.read(offset, there)
        if len(have) < there:
            raise self._changed()
        return have.ljust(length, b"\0")

    def refuse_changed(self) -> None:
        """Raise DoesNotHold where the file is not what it was when it was opened."""
        if isinstance(self.readable, FileReadable) and self.readable.stamp() != self.stamp:
            raise self._changed()

    def _changed(self) -> DoesNotHold:
        return DoesNotHold(
            f"{self.label} changed while it was read.",
            remedy="Stop what writes to it, or repair a copy of it.",
        )


def copy_of(readable: Readable, path: Path | None, stated: Sequence[Range] = ()) -> Copy:
    """Take a dump with what is known to be wrong in it: stated, and recorded beside it.

    A `NAME.rescue.map` is read, and the entry of the file in a `recovery.json` or
    `NAME.recovery.json`. Raises Unusable for a map or record that is none.
    """
    stamp = readable.stamp() if isinstance(readable, FileReadable) else None
    doubts = [readable.doubt] if readable.doubt else []
    copy = Copy(readable, path, doubts=tuple(doubts), stamp=stamp)
    copy = copy.with_flaws(stated, Reason.STATED)
    if path is None:
        return copy
    said = recorded(path, readable)
    copy = copy.with_flaws([*_mapped(path, readable.size), *said.unread], Reason.UNREAD)
    return replace(copy, dirty=said.dirty, doubts=(*copy.doubts, *said.doubts))


def _mapped(path: Path, size: int) -> tuple[Range, ...]:
    """Give what a mapfile beside the file does not call finished; of the rest it says nothing."""
    beside = path.with_name(path.name.removesuffix(_PARTIAL) + _MAP_SUFFIX)
    if not beside.is_file():
        return ()
    with FileReadable(beside) as file:
        text = file.read(0, min(file.size, _MAP_LIMIT)).decode("ascii", "replace")
    try:
        rescue_map = RescueMap.from_text(text)
    except Unusable as error:
        raise Unusable(
            f"{printable(os.fsencode(beside))} is damaged: {error.message}",
            remedy="Move it away, and state with --damaged what was not read.",
        ) from None
    return subtract(Range(0, max(size, rescue_map.size)), rescue_map.finished)
