"""The dumps that a repair draws on, and the bytes of each that are known to be wrong."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import cast

from ...errors import Unusable
from ...records.names import printable
from ..ranges import Range, merge, within
from ..readable import FileReadable, Readable
from ..save.rescue_map import RescueMap

_RECORD_LIMIT = 256 << 20
_MAP_LIMIT = 256 << 20
_MAP_SUFFIX = ".rescue.map"
_PARTIAL = ".partial"


class Reason:
    """Why bytes of a copy are not the file's; these words stand in `changes` and `damaged`."""

    STATED = "stated on the command line"
    UNREAD = "listed as unread beside the copy"
    MISSING = "the copy ends before them"
    ZERO = "zeros where the tensor cannot hold them"
    NOT_FINITE = "NaN or infinity that the other copy does not have"


@dataclass(frozen=True)
class Flaw:
    """A range of one copy that is provably not what the file held, and why."""

    range: Range
    reason: str


@dataclass(frozen=True)
class Copy:
    """One dump of the file. `path` is None for a file of a process."""

    readable: Readable
    path: Path | None = None
    flaws: tuple[Flaw, ...] = field(default=())

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
        """Read what there is of a range; zeros stand for what the copy does not have."""
        have = self.readable.read(offset, max(0, min(length, self.size - offset)))
        return have.ljust(length, b"\0")


def copy_of(readable: Readable, path: Path | None, stated: Sequence[Range] = ()) -> Copy:
    """Take a dump with what is known to be wrong in it: stated, and recorded beside it.

    A `NAME.rescue.map` is read, and the entry of the file in a `recovery.json` or
    `NAME.recovery.json`. Raises Unusable for a map or record that is none.
    """
    copy = Copy(readable, path).with_flaws(stated, Reason.STATED)
    if path is None:
        return copy
    return copy.with_flaws([*_mapped(path), *_recorded(path, readable.size)], Reason.UNREAD)


def _mapped(path: Path) -> tuple[Range, ...]:
    """Give what a mapfile beside the file does not call finished."""
    beside = path.with_name(path.name.removesuffix(_PARTIAL) + _MAP_SUFFIX)
    if not beside.is_file():
        return ()
    with FileReadable(beside) as file:
        text = file.read(0, min(file.size, _MAP_LIMIT)).decode("ascii", "replace")
    rescue_map = RescueMap.from_text(text)
    position = 0
    missing: list[Range] = []
    for piece in rescue_map.finished:
        missing.append(Range(position, piece.start))
        position = piece.stop
    return merge([*missing, Range(position, rescue_map.size)])


def _recorded(path: Path, size: int) -> tuple[Range, ...]:
    """Give what the record of the recovery lists as unread of this file."""
    for record in (path.with_name(f"{path.name}.recovery.json"), *_records_above(path)):
        if not record.is_file() or record.stat().st_size > _RECORD_LIMIT:
            continue
        try:
            document: object = json.loads(record.read_bytes())
        except (ValueError, RecursionError):
            raise Unusable(
                f"{printable(os.fsencode(record))} is not a record of reefkit.",
                remedy="Move it away, or name the copy from another folder.",
            ) from None
        found = _unread(document, path, record.parent, size)
        if found is not None:
            return found
    return ()


def _records_above(path: Path) -> Iterable[Path]:
    """Give where `dump` puts its record: in the output folder, at most two levels up."""
    return (folder / "recovery.json" for folder in list(path.absolute().parents)[:3])


def _unread(document: object, path: Path, folder: Path, size: int) -> tuple[Range, ...] | None:
    if not isinstance(document, dict):
        return None
    files = cast("Mapping[str, object]", document).get("files")
    for entry in cast("list[object]", files) if isinstance(files, list) else ():
        if not isinstance(entry, dict):
            continue
        fields = cast("Mapping[str, object]", entry)
        name = fields.get("path")
        if not isinstance(name, str) or "\0" in name or fields.get("size") != size:
            continue
        if (folder / name).absolute() == path.absolute():
            return merge(_ranges(fields.get("unread")))
    return None


def _ranges(value: object) -> list[Range]:
    found: list[Range] = []
    for each in cast("list[object]", value) if isinstance(value, list) else ():
        if not isinstance(each, dict):
            continue
        piece = cast("Mapping[str, object]", each)
        offset, count = piece.get("offset"), piece.get("bytes")
        if isinstance(offset, int) and isinstance(count, int) and offset >= 0 < count:
            found.append(Range(offset, offset + count))
    return found
