"""Find the header of a damaged file: in its copies, in what they still say, or among candidates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
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
    the tensors are those expected, and the metadata is not; `doubts` say what else disagrees.
    """

    header: Header
    origin: str
    how_known: str
    surviving: int
    certain: bool = True
    digests: frozenset[str] = frozenset()
    ambiguous: tuple[HeaderCandidate, ...] = ()
    other_metadata: bool = False
    doubts: tuple[str, ...] = ()


def find_head(copies: Sequence[Copy], candidates: Candidates | None) -> Head:
    """Find the one header that all copies agree with.

    With `candidates` (a function of the file's size) the header is one of those, and any byte of
    a copy that survives and disagrees refutes it. Without, it is a copy's own, or its own mended.
    Copies that agree but for the metadata are a doubt, unless a candidate has the very bytes.
    Raises DoesNotHold, with the ranges that disagree, where none remains.
    """
    own = list(_own(copies))
    if candidates is not None:
        return _chosen(copies, own, candidates)
    found = own[0] if own else _joined(copies)
    if found is None:
        raise DoesNotHold(
            f"The head of {copies[0].label} is damaged or unread, and nothing says what it held"
            f"{_fault(copies[0])}",
            remedy=_SOURCES,
        )
    return _agreed(copies, found, confirmed=False)


def _fault(copy: Copy) -> str:
    try:
        read_header(copy.readable.read, copy.size)
    except HeaderError as error:
        return f": {error.message}"
    return "."


def _own(copies: Sequence[Copy]) -> Iterator[Head]:
    """Give the headers that copies hold whole, then those that can be mended."""
    whole: list[Copy] = []
    for copy in copies:
        try:
            header = read_header(copy.readable.read, copy.size)
        except HeaderError:
            continue
        whole.append(copy)
        if not within(copy.flawed, Range(0, header.data_start)):
            yield Head(header, f"the head of {copy.label}", "it keeps every rule", len(header.raw))
    for copy in (copy for copy in copies if copy not in whole):
        mended = mend_head(copy.readable.read, copy.size)
        if mended and not within(copy.flawed, Range(LENGTH_BYTES, mended.header.data_start)):
            header = mended.header
            origin = f"the head of {copy.label}: {mended.what}"
            yield Head(header, origin, mended.how_known, len(header.raw))


def _joined(copies: Sequence[Copy]) -> Head | None:
    """Put damaged heads together byte by byte, where each byte survives in one of them."""
    import numpy as np

    lengths = {int.from_bytes(copy.read(0, LENGTH_BYTES), "little") for copy in copies}
    for length in sorted(lengths):
        if not 2 <= length <= min(MAX_HEADER, max(copy.size for copy in copies)):
            continue
        count = LENGTH_BYTES + length
        joined = np.zeros(count, np.uint8)
        for copy in reversed(copies):
            alive = np.frombuffer(copy.read(0, count), np.uint8).copy()
            for piece in within(copy.flawed, Range(0, count)):
                alive[piece.start : piece.stop] = 0
            joined = np.where(alive, alive, joined)
        text = joined[LENGTH_BYTES:].tobytes()
        try:
            header = parse_header(length.to_bytes(LENGTH_BYTES, "little") + text)
        except HeaderError:
            continue
        if header.file_size == max(copy.size for copy in copies):
            labels = " and ".join(copy.label for copy in copies)
            how = "each byte survives in one of them, and the data fills the file"
            return Head(header, f"the heads of {labels}", how, count)
    return None


def _agreed(copies: Sequence[Copy], head: Head, *, confirmed: bool) -> Head:
    """Hold a header against every copy. Raises DoesNotHold where a copy has other tensors.

    With `confirmed`, a candidate speaks for it too, and a head that cannot be read is damage.
    """
    doubts: list[str] = []
    for number, copy in enumerate(copies):
        found = _agreement(copy, head.header)
        if not found.disagreeing:
            continue
        its = _header_of(copy)
        if its is not None and its.tensors == head.header.tensors:
            if its.metadata != head.header.metadata:
                doubts.append(f"The metadata of {copy.label} is not that of {head.origin}.")
        elif its is not None or not confirmed:
            raise _refuted(number, copy, found, head.origin)
    return replace(head, doubts=tuple(doubts))


def _agreement(copy: Copy, header: Header) -> Agreement:
    head = copy.read(0, min(copy.size, header.data_start))
    return agreement(header.raw, head, copy.flawed)


def _header_of(copy: Copy) -> Header | None:
    """Read a copy's own header, mended if need be; None where it says nothing that holds."""
    try:
        return read_header(copy.readable.read, copy.size)
    except HeaderError:
        mended = mend_head(copy.readable.read, copy.size)
        return mended.header if mended else None


def _refuted(number: int, copy: Copy, found: Agreement, origin: str) -> DoesNotHold:
    shown = [f"{r.start}:{r.stop}" for r in found.differing[:_RANGES_SHOWN]]
    more = len(found.differing) - len(shown)
    if number:
        advice = "leave it out, or name it first and state them: "
    else:
        advice = "state them: "
    return DoesNotHold(
        f"{found.disagreeing:,} bytes in the head of {copy.label} disagree with {origin}, at "
        + ", ".join(shown)
        + (" and more." if more > 0 else "."),
        remedy=f"It may be the header of another file. If those bytes of {copy.label} are damaged, "
        + advice
        + " ".join(f"--damaged {piece}" for piece in shown),
    )


def _chosen(copies: Sequence[Copy], own: Sequence[Head], candidates: Candidates) -> Head:
    """Keep the candidates of the right size that no surviving byte refutes."""
    size = max(copy.size for copy in copies)
    if own:
        size = own[0].header.file_size
        confirmed = _confirmed(copies, own, candidates)
        if confirmed is not None:
            return confirmed
    kept: dict[bytes, tuple[HeaderCandidate, int]] = {}
    larger: dict[bytes, tuple[HeaderCandidate, int]] = {}
    refuted: list[tuple[int, Agreement, HeaderCandidate]] = []
    for candidate in candidates(size):
        if candidate.header.file_size < size:
            continue
        agreed = [_agreement(copy, candidate.header) for copy in copies]
        surviving = max(found.surviving for found in agreed)
        against = next((n for n, found in enumerate(agreed) if found.disagreeing), None)
        if candidate.header.file_size > size:
            if against is None and not own:
                larger.setdefault(candidate.raw, (candidate, surviving))
        elif against is not None:
            refuted.append((against, agreed[against], candidate))
        else:
            kept.setdefault(candidate.raw, (candidate, surviving))
    if kept:
        return _of_kept(list(kept.values()), size)
    if refuted:
        number, found, candidate = min(refuted, key=lambda each: each[1].disagreeing)
        raise _refuted(number, copies[number], found, candidate.origin)
    if larger:
        return _of_kept(list(larger.values()), size)
    raise DoesNotHold(
        f"No header that was stated gives a file of {size:,} bytes, as {copies[0].label} has.",
        remedy="Check the base, the rank, the targets and the dtype; leave one out and the size "
        "decides. A file that was cut short, or that has bytes after its end, has no such size: "
        "for one that was cut short, name a sibling with --like.",
    )


def _confirmed(copies: Sequence[Copy], own: Sequence[Head], candidates: Candidates) -> Head | None:
    """Take a copy's own header where its tensors are those of a candidate; best its very bytes.

    It may be another writer's, with other spaces or metadata; candidates go by the library's.
    """
    alike: Head | None = None
    for head in own:
        entries = ((tensor.name, tensor.dtype, tensor.shape) for tensor in head.header.tensors)
        usual = candidate_of(entries, head.origin)
        sizes = {head.header.file_size, *([usual.header.file_size] if usual else [])}
        for candidate in chain.from_iterable(map(candidates, sorted(sizes))):
            if not _same_tensors(head.header, candidate.header):
                continue
            how = f"{head.how_known}; its tensors are those of {candidate.origin}"
            found = replace(head, how_known=how, digests=candidate.digests)
            if candidate.raw == head.header.raw:
                return replace(_agreed(copies, found, confirmed=True), doubts=())
            if alike is None and not candidate.digests:  # else the very header is known: another
                differs = candidate.header.metadata != head.header.metadata
                alike = replace(found, other_metadata=differs)
    return None if alike is None else _agreed(copies, alike, confirmed=True)


def _of_kept(kept: list[tuple[HeaderCandidate, int]], size: int) -> Head:
    """Take the one candidate, or state that there are several; `size` is that of the copies."""
    candidate, surviving = kept[0]
    whole = candidate.header.file_size
    if whole == size:
        how = f"it gives exactly {size:,} bytes"
    else:
        how = f"it was named, and the copy ends {whole - size:,} bytes early"
    spoken = (
        f"{surviving:,} bytes of the head agree" if surviving else "no byte of the head is left"
    )
    undecided = tuple(each for each, _ in kept) if len(kept) > 1 else ()
    return Head(
        candidate.header,
        candidate.origin,
        f"{how}, and {spoken}",
        surviving,
        candidate.certain or surviving == len(candidate.raw),
        candidate.digests,
        undecided,
    )


def _same_tensors(one: Header, other: Header) -> bool:
    return sorted(one.tensors, key=repr) == sorted(other.tensors, key=repr)
