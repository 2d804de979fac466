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
from .not_finite import holds_not_finite
from .places import TensorMap
from .zero_damage import BLOCK

PAGE = 4096


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
        suspect = [holds_not_finite(each, block, tensors) for each in data]
        for page in _pages(block):
            _merge_page(page, block, data, cuts, suspect, tensors, copies, found)
    return Merge(tuple(found.pieces), _joined(found.lost), _joined(found.conflicts))


def _joined(ranges: list[Range]) -> tuple[Range, ...]:
    joined: list[Range] = []
    for piece in ranges:
        if joined and joined[-1].stop == piece.start:
            joined[-1] = Range(joined[-1].start, piece.stop)
        else:
            joined.append(piece)
    return tuple(joined)


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
    pairs = zip(suspect, views, strict=True)
    not_finite = [is_so and holds_not_finite(view, page, tensors) for is_so, view in pairs]
    for part in _cut(page, flawed):
        values = [view[part.start - page.start : part.stop - page.start] for view in views]
        wrong = [bool(within(ranges, part)) for ranges in flawed]
        _choose(part, values, wrong, not_finite, copies, found)


def _cut(page: Range, flawed: Sequence[Sequence[Range]]) -> Iterator[Range]:
    """Cut a page where a flaw begins or ends, so that each part is wrong in whole or not at all."""
    edges = {edge for piece in chain.from_iterable(flawed) for edge in piece}
    ordered = sorted(edges | set(page))
    return (Range(a, b) for a, b in pairwise(ordered))


def _choose(
    part: Range,
    values: Sequence[bytes],
    wrong: Sequence[bool],
    not_finite: Sequence[bool],
    copies: Sequence[Copy],
    found: _Collected,
) -> None:
    """Decide one part of a page: keep, take from another copy, lost, or a conflict.

    A NaN speaks against a copy only where another copy has other bytes there.
    """
    if not any(wrong) and len(set(values)) == 1:
        return
    sound = [number for number, is_wrong in enumerate(wrong) if not is_wrong]
    finite = [number for number in sound if not not_finite[number]]
    if finite or any(wrong):
        sound = finite
    if not sound:
        found.lost.append(part)
    elif len({values[number] for number in sound}) > 1:
        found.conflicts.append(part)
    elif sound[0] != 0 and values[sound[0]] != values[0]:
        reason = copies[0].reason_at(part.start) or Reason.NOT_FINITE
        found.take(Piece(part, sound[0], part.start, reason))
