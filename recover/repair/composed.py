"""The repaired file as it will be: a header, the first copy, and pieces from elsewhere."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..formats.safetensors import Header
from ..ranges import Range
from .copies import Copy
from .merge import Piece


class Drawn(NamedTuple):
    """So many bytes of the result, from an offset in the copy of that number."""

    copy: int
    offset: int
    bytes: int


class Composed:
    """Reads the result at any offset without writing it; `pieces` replace the first copy's."""

    def __init__(self, header: Header, copies: Sequence[Copy], pieces: Sequence[Piece]) -> None:
        """Take what the result consists of; pieces must not overlap."""
        self.header = header
        self.size = header.file_size
        self.pieces = sorted(pieces, key=lambda piece: piece.range)
        self._copies = copies
        self._stops = [piece.range.stop for piece in self.pieces]

    def read(self, offset: int, length: int) -> bytes:
        """Read bytes that lie inside the result's size."""
        stop = min(offset + length, self.size)
        head = self.header.raw[offset:stop]
        parts = self.drawn(Range(offset + len(head), stop))
        return b"".join((head, *(self._copies[p.copy].read(p.offset, p.bytes) for p in parts)))

    def drawn(self, window: Range) -> Iterator[Drawn]:
        """Say where each part of a range of the data comes from, in order."""
        position = window.start
        for number in range(bisect_right(self._stops, position), len(self.pieces)):
            piece = self.pieces[number]
            if piece.range.start >= window.stop:
                break
            if piece.range.start > position:
                yield Drawn(0, position, piece.range.start - position)
                position = piece.range.start
            stop = min(piece.range.stop, window.stop)
            yield Drawn(piece.copy, piece.offset + position - piece.range.start, stop - position)
            position = stop
        if position < window.stop:
            yield Drawn(0, position, window.stop - position)

    def refuse_changed(self) -> None:
        """Raise DoesNotHold where a copy is no longer what it was when it was opened."""
        for copy in self._copies:
            copy.refuse_changed()
