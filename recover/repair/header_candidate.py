"""A header that a damaged file may have had, and how far the bytes that survive agree with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from ...errors import HeaderError
from ..formats.safetensors import Header, parse_header, write_header
from ..ranges import Range, merge
from .not_finite import runs_of

LENGTH_BYTES = 8
PEFT_METADATA = {"format": "pt"}
_MOST_NAMED = 1000
_APART = 8


@dataclass(frozen=True)
class HeaderCandidate:
    """A whole header and where it comes from; `origin` is fit to print.

    `certain` is False where only the length is: the library writes two or more metadata entries
    in an order that differs from save to save. `digests` are what the sha256 of the whole file can
    be, where that is known.
    """

    header: Header = field(repr=False)
    origin: str
    certain: bool = True
    digests: frozenset[str] = frozenset()

    @property
    def raw(self) -> bytes:
        """The 8 bytes of length and the JSON."""
        return self.header.raw


@dataclass(frozen=True)
class Agreement:
    """How the surviving bytes of a damaged head compare with a candidate.

    `surviving` counts the bytes that could be compared, and `disagreeing` those of them that are
    not the same; `differing` are the first ranges of these.
    """

    surviving: int
    disagreeing: int
    differing: tuple[Range, ...]


def together(candidates: Iterable[HeaderCandidate]) -> Iterator[HeaderCandidate]:
    """Make one candidate of those with the same bytes: any of their digests proves the file."""
    joined: dict[bytes, HeaderCandidate] = {}
    for one in candidates:
        known = joined.setdefault(one.raw, one)
        certain = known.certain or one.certain
        joined[one.raw] = replace(known, digests=known.digests | one.digests, certain=certain)
    yield from joined.values()


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


def agreement(raw: bytes, head: bytes, damaged: Iterable[Range]) -> Agreement:
    """Hold the bytes of a head that can be intact against a header.

    NUL is never a byte of a header's JSON, so that zeros there are damage by themselves; the 8
    bytes of length are damaged by themselves when all are zero. `damaged` are ranges that are
    known not to be the file's bytes.
    """
    import numpy as np

    count = min(len(raw), len(head))
    have, want = (np.frombuffer(text, np.uint8, count) for text in (head, raw))
    alive = have != 0
    alive[:LENGTH_BYTES] = alive[:LENGTH_BYTES].any()
    for piece in damaged:
        if piece.start < count:
            alive[piece.start : piece.stop] = False
    wrong = alive & (have != want)
    disagreeing = int(np.count_nonzero(wrong))
    differing = tuple(runs_of(wrong, _MOST_NAMED)) if disagreeing else ()
    return Agreement(int(np.count_nonzero(alive)), disagreeing, differing)


def changed_ranges(before: bytes, after: bytes) -> tuple[Range, ...]:
    """Give the ranges of `after` that are not the same in `before`; what is missing counts.

    Ranges that only a few equal bytes part, as zeros of a length written over zeros, are one, and
    so are all where there are very many.
    """
    import numpy as np

    count = min(len(before), len(after))
    pair = [np.frombuffer(text, np.uint8, count) for text in (before, after)]
    places = np.flatnonzero(pair[0] != pair[1])
    if not places.size:
        return merge([Range(count, len(after))])
    breaks = np.flatnonzero(np.diff(places) > _APART) + 1
    if len(breaks) >= _MOST_NAMED:
        return (Range(int(places[0]), len(after) if len(after) > count else int(places[-1]) + 1),)
    firsts, lasts = places[np.r_[0, breaks]], places[np.r_[breaks - 1, -1]]
    changed = (Range(a, b + 1) for a, b in zip(firsts.tolist(), lasts.tolist(), strict=True))
    return merge([*changed, Range(count, len(after))])
