"""The repaired file as it will be: a header, the first copy, and pieces from elsewhere."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from ..formats.safetensors import Header
from ..ranges import Range
from .copies import Copy
from .merge import Piece


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
        return b"".join(self._parts(Range(offset, min(offset + length, self.size))))

    def _parts(self, window: Range) -> Iterator[bytes]:
        position = window.start
        start = self.header.data_start
        if position < start:
            yield self.header.raw[position : window.stop]
            position = min(start, window.stop)
        for number in range(bisect_right(self._stops, position), len(self.pieces)):
            piece = self.pieces[number]
            if piece.range.start >= window.stop:
                break
            yield self._copies[0].read(position, max(0, piece.range.start - position))
            position = max(position, piece.range.start)
            stop = min(piece.range.stop, window.stop)
            at = piece.offset + position - piece.range.start
            yield self._copies[piece.copy].read(at, stop - position)
            position = stop
        if position < window.stop:
            yield self._copies[0].read(position, window.stop - position)
