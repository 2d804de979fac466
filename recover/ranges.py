"""Half-open ranges of bytes: what was read, what was not, what a tensor covers."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Range(NamedTuple):
    """Bytes from `start` up to, not including, `stop`."""

    start: int
    stop: int

    @property
    def size(self) -> int:
        """The number of bytes covered."""
        return self.stop - self.start

    def to_json(self) -> dict[str, int]:
        """Give the form used in every JSON document: an offset and a number of bytes."""
        return {"offset": self.start, "bytes": self.size}


def merge(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """Sort, drop the empty, and join what touches or overlaps."""
    merged: list[Range] = []
    for piece in sorted(ranges):
        if piece.stop <= piece.start:
            continue
        if merged and piece.start <= merged[-1].stop:
            merged[-1] = Range(merged[-1].start, max(merged[-1].stop, piece.stop))
        else:
            merged.append(piece)
    return tuple(merged)


def intersect(ranges: Iterable[Range], window: Range) -> tuple[Range, ...]:
    """Keep the parts that lie inside `window`."""
    return merge(Range(max(r.start, window.start), min(r.stop, window.stop)) for r in ranges)


def within(merged: Sequence[Range], window: Range) -> tuple[Range, ...]:
    """Do as `intersect` for ranges that `merge` gave: fast where there are many."""
    first = bisect_right(merged, window.start, key=_stop)
    last = bisect_left(merged, window.stop, key=_start)
    pieces = (
        Range(max(r.start, window.start), min(r.stop, window.stop)) for r in merged[first:last]
    )
    return tuple(piece for piece in pieces if piece.size > 0)


def _start(piece: Range) -> int:
    return piece.start


def _stop(piece: Range) -> int:
    return piece.stop


def subtract(window: Range, ranges: Iterable[Range]) -> tuple[Range, ...]:
    """Keep the parts of `window` that none of `ranges` covers."""
    left: list[Range] = []
    position = window.start
    for piece in intersect(ranges, window):
        left.append(Range(position, piece.start))
        position = piece.stop
    left.append(Range(position, window.stop))
    return merge(left)


def total(ranges: Iterable[Range]) -> int:
    """Count the bytes covered by ranges that do not overlap."""
    return sum(r.size for r in ranges)
