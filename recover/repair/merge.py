"""Join dumps of one file page by page; a copy wins only where every other one is proven wrong.

Never by majority, never by averaging. Where copies that are not known to be wrong differ, that is
a conflict; where all are wrong, the bytes are lost. Neither is ever passed off as restored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise

from ..ranges import Range, within
from .copies import Copy, Reason
from .not_finite import not_finite_bytes, runs_of
from .places import TensorMap

PAGE = 4096
BLOCK = 1 << 20
_MOST_EXACT = 10_000  # so many conflicts are named to the byte, the others by page
_MOST_IN_PAGE = 16
_NONE = -1


@dataclass(frozen=True)
class Piece:
    """Bytes of the result that come from somewhere else than the same place of the first copy."""

    range: Range
    copy: int
    offset: int
    how_known: str

    def continues(self, other: Piece) -> bool:
        """Tell whether it goes on where `other` ends, in the same copy and for the same reason."""
        return (
            self.range.start == other.range.stop
            and self.offset == other.offset + other.range.size
            and (self.copy, self.how_known) == (other.copy, other.how_known)
        )


@dataclass(frozen=True)
class Merge:
    """What joining gave: pieces from other copies, what is lost in all, and the conflicts."""

    pieces: tuple[Piece, ...] = ()
    lost: tuple[Range, ...] = ()
    conflicts: tuple[Range, ...] = ()


@dataclass
class _Collected:
    pieces: list[Piece] = field(default_factory=list[Piece])
    lost: list[Range] = field(default_factory=list[Range])
    conflicts: list[Range] = field(default_factory=list[Range])

    def take(self, piece: Piece) -> None:
        if self.pieces and piece.continues(self.pieces[-1]):
            last = self.pieces.pop()
            joined = Range(last.range.start, piece.range.stop)
            piece = Piece(joined, last.copy, last.offset, last.how_known)
        self.pieces.append(piece)

    def lose(self, part: Range) -> None:
        _append(self.lost, part)

    def contest(self, part: Range, differing: Sequence[Range]) -> None:
        if len(self.conflicts) < _MOST_EXACT and len(differing) <= _MOST_IN_PAGE:
            for piece in differing:
                _append(self.conflicts, piece)
        else:
            _append(self.conflicts, part)


def _append(ranges: list[Range], piece: Range) -> None:
    """Add a range behind the others, joined with the last where it goes on from there."""
    start = ranges.pop().start if ranges and ranges[-1].stop == piece.start else piece.start
    ranges.append(Range(start, piece.stop))


def merge_copies(copies: Sequence[Copy], tensors: TensorMap) -> Merge:
    """Join the data of copies whose flaws are known; the header is not looked at.

    Reads each copy once, a block at a time.
    """
    header = tensors.header
    found = _Collected()
    flawed = [copy.flawed for copy in copies]
    if len(copies) == 1:
        return Merge(lost=within(flawed[0], Range(header.data_start, header.file_size)))
    first = header.data_start // BLOCK * BLOCK
    for start in range(first, header.file_size, BLOCK):
        block = Range(max(start, header.data_start), min(start + BLOCK, header.file_size))
        data = [copy.read(block.start, block.size) for copy in copies]
        cuts = [within(ranges, block) for ranges in flawed]
        if not any(cuts) and all(other == data[0] for other in data[1:]):
            continue
        suspect = [bool(not_finite_bytes(each, block, tensors).any()) for each in data]
        for page in _pages(block):
            _merge_page(page, block, data, cuts, suspect, tensors, copies, found)
    return Merge(tuple(found.pieces), tuple(found.lost), tuple(found.conflicts))


def _pages(block: Range) -> Iterator[Range]:
    start = block.start
    while start < block.stop:
        stop = min(start - start % PAGE + PAGE, block.stop)
        yield Range(start, stop)
        start = stop


def _merge_page(
    page: Range,
    block: Range,
    data: Sequence[bytes],
    cuts: Sequence[Sequence[Range]],
    suspect: Sequence[bool],
    tensors: TensorMap,
    copies: Sequence[Copy],
    found: _Collected,
) -> None:
    views = [each[page.start - block.start : page.stop - block.start] for each in data]
    flawed = [within(ranges, page) for ranges in cuts]
    if not any(flawed) and all(view == views[0] for view in views[1:]):
        return
    for part in _cut(page, flawed):
        here = slice(part.start - page.start, part.stop - page.start)
        sound = [n for n, ranges in enumerate(flawed) if not within(ranges, part)]
        values = [views[number][here] for number in sound]
        doubted = len(sound) < len(copies) and any(suspect[number] for number in sound)
        if not sound:
            found.lose(part)
        elif doubted or any(value != values[0] for value in values[1:]):
            _settle(part, sound, values, tensors, copies, found)
        elif sound[0] != 0 and values[0] != views[0][here]:
            reason = copies[0].reason_at(part.start) or Reason.NOT_FINITE
            found.take(Piece(part, sound[0], part.start, reason))


def _cut(page: Range, flawed: Sequence[Sequence[Range]]) -> Iterator[Range]:
    """Cut a page where a flaw begins or ends, so that each part is wrong in whole or not at all."""
    edges = {edge for piece in chain.from_iterable(flawed) for edge in piece}
    ordered = sorted(edges | set(page))
    return (Range(a, b) for a, b in pairwise(ordered))


def _settle(
    part: Range,
    sound: Sequence[int],
    values: Sequence[bytes],
    tensors: TensorMap,
    copies: Sequence[Copy],
    found: _Collected,
) -> None:
    """Decide a part by the copies that are not known to be wrong there.

    Only a NaN or infinity speaks against one of these, and only against that element: where all
    else in the part is equal, the finite element of another copy is taken. Anything more is a
    conflict. Nor does a NaN replace what is wrong in another copy: those elements are lost.
    """
    import numpy as np

    octets = np.stack([np.frombuffer(value, np.uint8) for value in values])
    finite = ~np.stack([not_finite_bytes(value, part, tensors) for value in values])
    chosen = finite.argmax(axis=0)
    wanted = np.take_along_axis(octets, chosen[None], axis=0)
    same = octets == wanted
    if not (same | (~finite & finite.any(axis=0))).all():
        differing = (octets != octets[0]).any(axis=0)
        moved = (Range(part.start + r.start, part.start + r.stop) for r in runs_of(differing))
        found.contest(part, list(moved))
        return
    numbers = np.asarray(sound)[chosen]
    if len(sound) < len(copies):
        numbers[~finite.any(axis=0)] = _NONE
    edges = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), part.size]
    for start, stop in pairwise(edges):
        place = Range(part.start + start, part.start + stop)
        number = int(numbers[start])
        if number == _NONE:
            found.lose(place)
        elif number != 0:
            reason = copies[0].reason_at(place.start) or Reason.NOT_FINITE
            found.take(Piece(place, number, place.start, reason))
