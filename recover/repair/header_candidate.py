"""A header that a damaged file may have had, and how far the bytes that survive agree with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import compress

from ...errors import HeaderError
from ..formats.safetensors import Header, parse_header, write_header
from ..ranges import Range, merge

LENGTH_BYTES = 8
PEFT_METADATA = {"format": "pt"}
_ALIVE = bytes([0]) + bytes([1]) * 255  # NUL is no byte of JSON


@dataclass(frozen=True)
class HeaderCandidate:
    """A whole header and where it comes from; `origin` is fit to print.

    `certain` is False where only the length is: the library writes two or more metadata entries
    in an order that differs from save to save. `sha256` is that of the whole file, where known.
    """

    header: Header = field(repr=False)
    origin: str
    certain: bool = True
    sha256: str | None = None

    @property
    def raw(self) -> bytes:
        """The 8 bytes of length and the JSON."""
        return self.header.raw


@dataclass(frozen=True)
class Agreement:
    """How the surviving bytes of a damaged head compare with a candidate.

    `surviving` counts the bytes that could be compared; `differing` are ranges of the file.
    """

    surviving: int
    differing: tuple[Range, ...]


def candidate_of(
    tensors: Iterable[tuple[str, str, tuple[int, ...]]], origin: str
) -> HeaderCandidate | None:
    """Write the header that PEFT and transformers give these tensors; None where none is valid."""
    try:
        return HeaderCandidate(parse_header(write_header(tensors, PEFT_METADATA)), origin)
    except HeaderError:
        return None


def has_unsure_order(header: Header) -> bool:
    """Tell whether the writer would shuffle the metadata of this header."""
    return header.metadata is not None and len(header.metadata) > 1


def agreement(
    raw: bytes, head: bytes, damaged: Iterable[Range], size: int | None = None
) -> Agreement:
    """Hold the bytes of a head that can be intact against a header.

    NUL is never a byte of a header's JSON, so that zeros there are damage by themselves; the 8
    bytes of length are damaged by themselves when all are zero. `damaged` are ranges that are
    known not to be the file's bytes. `size` limits what of `head` exists.
    """
    count = min(len(raw), len(head), len(head) if size is None else size)
    alive = bytearray(head[:count].translate(_ALIVE))
    if count >= LENGTH_BYTES:
        alive[:LENGTH_BYTES] = bytes([any(alive[:LENGTH_BYTES])]) * LENGTH_BYTES
    for piece in damaged:
        start, stop = min(piece.start, count), min(piece.stop, count)
        alive[start:stop] = bytes(stop - start)
    places = compress(range(count), map(int.__and__, alive, map(int.__ne__, head, raw)))
    return Agreement(alive.count(1), tuple(_together(places)))


def _together(places: Iterable[int]) -> Iterator[Range]:
    """Join ascending places that follow one another."""
    start = stop = -1
    for place in places:
        if place != stop:
            if stop > start:
                yield Range(start, stop)
            start = place
        stop = place + 1
    if stop > start:
        yield Range(start, stop)


def changed_ranges(before: bytes, after: bytes) -> tuple[Range, ...]:
    """Give the ranges of `after` that are not the same in `before`; what is missing counts.

    Ranges that only a few equal bytes part, as zeros of a length written over zeros, are one.
    """
    count = min(len(before), len(after))
    places = compress(range(count), map(int.__ne__, before, after))
    found = merge([*_together(places), Range(count, len(after))])
    joined: list[Range] = []
    for piece in found:
        start = joined.pop().start if joined and piece.start - joined[-1].stop < 8 else piece.start
        joined.append(Range(start, piece.stop))
    return tuple(joined)
