"""Find the header of a damaged file: in its copies, in what they still say, or among candidates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from ...errors import DoesNotHold, HeaderError
from ..formats.safetensors import MAX_HEADER, Header, parse_header, read_header
from ..ranges import Range, within
from .copies import Copy
from .head_mends import mend_head
from .header_candidate import LENGTH_BYTES, Agreement, HeaderCandidate, agreement, candidate_of

_RANGES_SHOWN = 5
_SOURCES = (
    "Say what the header was: --like SIBLING, --manifest FILE, or --base BASE with --recipe FILE "
    "or --set r=32; or give a second dump with --with."
)
Candidates = Callable[[int], Iterable[HeaderCandidate]]


@dataclass(frozen=True)
class Head:
    """The header of the result, and how it was found; `ambiguous` names what else it can be.

    `surviving` counts the bytes of the copies' heads that speak for it. `other_metadata` says that
    the tensors are those expected, and the metadata is not.
    """

    header: Header
    origin: str
    how_known: str
    surviving: int
    certain: bool = True
    sha256: str | None = None
    ambiguous: tuple[HeaderCandidate, ...] = ()
    other_metadata: bool = False


def find_head(copies: Sequence[Copy], candidates: Candidates | None) -> Head:
    """Find the one header that all copies agree with.

    With `candidates` (a function of the file's size) the header is one of those, and any byte of
    a copy that survives and disagrees refutes it. Without, it is a copy's own, or its own mended.
    Raises DoesNotHold, with the ranges that disagree, where none remains.
    """
    own = _own(copies)
    if candidates is not None:
        return _chosen(copies, own, candidates)
    if own is None:
        own = _joined(copies)
    if own is None:
        raise DoesNotHold(
            f"The head of {copies[0].label} is damaged, and nothing says what it held"
            f"{_fault(copies[0])}",
            remedy=_SOURCES,
        )
    for copy in copies:
        _refuse_disagreement(copy, own.header, own.origin)
    return own


def _fault(copy: Copy) -> str:
    try:
        read_header(copy.readable.read, copy.size)
    except HeaderError as error:
        return f": {error.message}"
    return "."


def _own(copies: Sequence[Copy]) -> Head | None:
    """Take the first header that a copy holds whole, else the first that can be mended."""
    for copy in copies:
        try:
            header = read_header(copy.readable.read, copy.size)
        except HeaderError:
            continue
        if not within(copy.flawed, Range(0, header.data_start)):
            return Head(header, f"the head of {copy.label}", "it keeps every rule", len(header.raw))
    for copy in copies:
        mended = mend_head(copy.readable.read, copy.size)
        if mended and not within(copy.flawed, Range(LENGTH_BYTES, mended.header.data_start)):
            header = mended.header
            origin = f"the head of {copy.label}: {mended.what}"
            return Head(header, origin, mended.how_known, len(header.raw))
    return None


def _joined(copies: Sequence[Copy]) -> Head | None:
    """Put damaged heads together byte by byte, where each byte survives in one of them."""
    lengths = {int.from_bytes(copy.read(0, LENGTH_BYTES), "little") for copy in copies}
    for length in sorted(lengths):
        if not 2 <= length <= min(MAX_HEADER, max(copy.size for copy in copies)):
            continue
        count = LENGTH_BYTES + length
        joined = bytearray(count)
        for copy in reversed(copies):
            alive = bytearray(copy.read(0, count))
            for piece in within(copy.flawed, Range(0, count)):
                alive[piece.start : piece.stop] = bytes(piece.size)
            joined = bytearray(a or b for a, b in zip(alive, joined, strict=True))
        joined[:LENGTH_BYTES] = length.to_bytes(LENGTH_BYTES, "little")
        try:
            header = parse_header(bytes(joined))
        except HeaderError:
            continue
        if header.file_size == max(copy.size for copy in copies):
            labels = " and ".join(copy.label for copy in copies)
            how = "each byte survives in one of them, and the data fills the file"
            return Head(header, f"the heads of {labels}", how, count)
    return None


def _refuse_disagreement(copy: Copy, header: Header, origin: str) -> int:
    """Count the bytes of a copy's head that agree. Raises DoesNotHold where some do not."""
    found = _agreement(copy, header)
    if found.differing and not _is_mended(copy, header):
        raise _refuted(copy, found, origin)
    return found.surviving


def _agreement(copy: Copy, header: Header) -> Agreement:
    head = copy.read(0, min(copy.size, header.data_start))
    return agreement(header.raw, head, copy.flawed)


def _is_mended(copy: Copy, header: Header) -> bool:
    """Tell whether the copy's own head, mended, says the same."""
    mended = mend_head(copy.readable.read, copy.size)
    return mended is not None and mended.header.tensors == header.tensors


def _refuted(copy: Copy, found: Agreement, origin: str) -> DoesNotHold:
    shown = ", ".join(f"{r.start}:{r.stop}" for r in found.differing[:_RANGES_SHOWN])
    more = len(found.differing) - _RANGES_SHOWN
    count = sum(piece.size for piece in found.differing)
    return DoesNotHold(
        f"{count:,} bytes in the head of {copy.label} disagree with {origin}, at {shown}"
        + (f" and {more:,} more ranges." if more > 0 else "."),
        remedy="It may be the header of another file. If those bytes are damaged, say so: "
        + " ".join(f"--damaged {r.start}:{r.stop}" for r in found.differing[:_RANGES_SHOWN]),
    )


def _chosen(copies: Sequence[Copy], own: Head | None, candidates: Candidates) -> Head:
    """Keep the candidates of the right size that no surviving byte refutes."""
    size = max(copy.size for copy in copies)
    if own is not None:
        size = own.header.file_size
        confirmed = _confirmed(own, candidates)
        if confirmed is not None:
            return confirmed
    kept: dict[bytes, tuple[HeaderCandidate, int]] = {}
    refuted: list[tuple[int, Copy, Agreement, HeaderCandidate]] = []
    for candidate in candidates(size):
        if candidate.header.file_size != size:
            continue
        agreed = [(copy, _agreement(copy, candidate.header)) for copy in copies]
        against = [(copy, found) for copy, found in agreed if found.differing]
        if against:
            copy, found = against[0]
            count = sum(piece.size for piece in found.differing)
            refuted.append((count, copy, found, candidate))
        else:
            surviving = max(found.surviving for _, found in agreed)
            kept.setdefault(candidate.raw, (candidate, surviving))
    if kept:
        return _of_kept(list(kept.values()))
    if refuted:
        _, copy, found, candidate = min(refuted, key=lambda each: each[0])
        raise _refuted(copy, found, candidate.origin)
    raise DoesNotHold(
        f"No header that was stated gives a file of {size:,} bytes, as {copies[0].label} has.",
        remedy="Check the base, the rank, the targets and the dtype; leave one out and the size "
        "decides. A file that was cut short, or that has bytes after its end, has no such size.",
    )


def _confirmed(own: Head, candidates: Candidates) -> Head | None:
    """Take a copy's own header where its tensors are those of a candidate.

    It may be another writer's, with other spaces or metadata; candidates go by the library's.
    """
    entries = ((tensor.name, tensor.dtype, tensor.shape) for tensor in own.header.tensors)
    usual = candidate_of(entries, own.origin)
    sizes = {own.header.file_size, *([usual.header.file_size] if usual else [])}
    for candidate in chain.from_iterable(map(candidates, sorted(sizes))):
        if _same_tensors(own.header, candidate.header):
            how = f"{own.how_known}; its tensors are those of {candidate.origin}"
            if candidate.raw == own.header.raw:
                return replace(own, how_known=how, sha256=candidate.sha256)
            if candidate.sha256 is not None:
                continue  # the very header is known, and this one is not it
            differs = candidate.header.metadata != own.header.metadata
            return replace(own, how_known=how, other_metadata=differs)
    return None


def _of_kept(kept: list[tuple[HeaderCandidate, int]]) -> Head:
    candidate, surviving = kept[0]
    size = f"it gives exactly {candidate.header.file_size:,} bytes"
    spoken = (
        f"{surviving:,} bytes of the head agree" if surviving else "no byte of the head is left"
    )
    undecided = tuple(each for each, _ in kept) if len(kept) > 1 else ()
    return Head(
        candidate.header,
        candidate.origin,
        f"{size}, and {spoken}",
        surviving,
        candidate.certain or surviving == len(candidate.raw),
        candidate.sha256,
        undecided,
    )


def _same_tensors(one: Header, other: Header) -> bool:
    return sorted(one.tensors, key=repr) == sorted(other.tensors, key=repr)
