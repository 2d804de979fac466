"""Repair a checkpoint: find its header, join its copies, use what is redundant, write anew."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...records.names import printable
from ..adapter.keys import Part, parse_key
from ..formats.safetensors import Tensor
from ..ranges import Range, merge, subtract, within
from ..save.verdict import Verdict
from .composed import Composed
from .content import Content, judge_content
from .copies import Copy, Reason
from .head import Candidates, Head, find_head
from .header_candidate import changed_ranges
from .merge import Piece, merge_copies
from .places import TensorMap
from .redundancy import restore
from .result import Change, Damaged, HeaderFound, Repair, Source
from .written import Destination, digest_of

_MOST_LISTED = 10_000
_MOST_HASHED = 64
_TEMPORARY = re.compile(r"\.tmp[A-Za-z0-9]{6}")


@dataclass(frozen=True)
class Request:
    """What to repair, and what is known of it.

    `candidates` gives headers for a size in bytes. `tied` pairs tensors that the base ties.
    """

    copies: tuple[Copy, ...]
    candidates: Candidates | None = None
    tied: Mapping[str, str] = field(default_factory=dict[str, str])
    expected_sha256: str | None = None
    mode: int = 0o600


@dataclass(frozen=True)
class Plan:
    """A repair that is worked out and not yet written."""

    result: Repair
    composed: Composed | None
    mode: int

    @property
    def writes(self) -> bool:
        """Tell whether there is a file to write: something changed, and nothing contradicts."""
        return self.composed is not None and bool(self.result.changes) and self.result.is_settled


def plan(request: Request) -> Plan:
    """Work out the repair; nothing is written.

    Raises DoesNotHold where no header is found, and where a copy changes while it is read.
    """
    head = find_head(request.copies, request.candidates)
    stated = request.expected_sha256
    digests = frozenset([stated]) if stated is not None else head.digests
    if head.ambiguous and digests:
        head = _decided_by_digest(head, request.copies, digests)
    if head.ambiguous:
        return Plan(_judged(_undecided(head, request, digests)), None, request.mode)
    tensors = TensorMap(head.header)
    contents = [judge_content(copy, tensors) for copy in request.copies]
    pairs = zip(request.copies, contents, strict=True)
    copies = tuple(_with_flaws(copy, content, tensors) for copy, content in pairs)
    joined = merge_copies(copies, tensors)
    composed = Composed(head.header, copies, joined.pieces)
    restored = restore(composed, joined.lost, request.tied) if joined.lost else None
    pieces = joined.pieces + (restored.pieces if restored else ())
    lost = restored.lost if restored else ()
    composed = Composed(head.header, copies, pieces)
    result = Repair(
        sources=tuple(_source(copy) for copy in copies),
        size=head.header.file_size,
        header=_header_found(head, copies[0]),
        digests=digests,
        changes=tuple(_changes(head, copies, pieces)),
        damaged=tuple(_damaged(copies[0], pieces, lost, tensors)),
        conflicts=tuple(tensors.places(joined.conflicts)),
        zero_tensors=_zero_tensors(lost, tensors),
        doubts=tuple(_doubts(head, copies[0], contents[0])),
        notes=tuple(_notes(head, copies, contents[0], lost)),
    )
    composed.refuse_changed()
    return Plan(_judged(result), composed, request.mode)


def check_digest(worked_out: Plan) -> Repair:
    """Give the result without writing it; where a digest is expected, its bytes are hashed."""
    result, composed = worked_out.result, worked_out.composed
    if not result.digests or composed is None or not result.is_settled:
        return result
    digest = digest_of(composed)
    composed.refuse_changed()
    return _judged(replace(result, sha256=digest))


def write(worked_out: Plan, destination: Destination) -> Repair:
    """Write the file and its record. Only for a plan that writes.

    Raises DestinationExists, Unusable, and DoesNotHold where a copy changed while it was read.
    """
    composed = worked_out.composed
    assert composed is not None and worked_out.writes
    digest = destination.write(composed, worked_out.mode)
    composed.refuse_changed()
    result = _judged(worked_out.result.written_to(str(destination.path), digest))
    destination.finish(result.to_json())
    return result


def open_destination(
    path: Path, copies: Sequence[Copy], operands: Iterable[Path] = (), *, force: bool
) -> Destination:
    """Open the place for the result, which is no copy and no other operand. Raises Unusable."""
    inputs = [copy.path for copy in copies if copy.path is not None]
    return Destination(path, [*inputs, *operands], force=force)


def _judged(result: Repair) -> Repair:
    """Give the result its verdict: the digest proves all; else what is lost, else unproven."""
    changed = bool(result.changes)
    if result.matches_expected:
        damaged = tuple(replace(each, restored=True) for each in result.damaged)
        verdict = Verdict.REBUILT_VERIFIED if changed else None
        return replace(result, verdict=verdict, damaged=damaged, zero_tensors=(), doubts=())
    if not result.is_settled:
        damaged = tuple(replace(each, restored=False) for each in result.damaged)
        return replace(result, verdict=Verdict.PARTIAL, damaged=damaged)
    if result.lost:
        return replace(result, verdict=Verdict.PARTIAL)
    return replace(result, verdict=Verdict.REBUILT_UNVERIFIED if changed else None)


def _with_flaws(copy: Copy, content: Content, tensors: TensorMap) -> Copy:
    """Add what the copy lacks, what its record calls changed, and what it cannot have held."""
    header = tensors.header
    dirty = (header.span(tensor) for tensor in header.tensors if tensor.name in set(copy.dirty))
    copy = copy.with_flaws([Range(copy.size, header.file_size)], Reason.MISSING)
    copy = copy.with_flaws(dirty, Reason.DIRTY)
    copy = copy.with_flaws(content.zero, Reason.ZERO)
    return copy.with_flaws(content.not_finite, Reason.NAN_RUN)


def _decided_by_digest(head: Head, copies: Sequence[Copy], digests: frozenset[str]) -> Head:
    """Take the candidate with which the first copy has a digest; the same head if none has."""
    for candidate in head.ambiguous[:_MOST_HASHED]:
        if digest_of(Composed(candidate.header, copies, ())) in digests:
            how = f"{head.how_known}, and the digest is the expected"
            return replace(
                head, header=candidate.header, origin=candidate.origin, how_known=how, ambiguous=()
            )
    return head


def _undecided(head: Head, request: Request, digests: frozenset[str]) -> Repair:
    """Give the result where several headers fit, by none of which anything else can be judged."""
    return Repair(
        sources=tuple(_source(copy) for copy in request.copies),
        size=head.header.file_size,
        digests=digests,
        candidates=tuple(candidate.origin for candidate in head.ambiguous),
    )


def _data(header_end: int, ranges: Sequence[Range]) -> tuple[Range, ...]:
    return merge(Range(max(r.start, header_end), r.stop) for r in ranges)


def _damaged(
    copy: Copy, pieces: Sequence[Piece], lost: Sequence[Range], tensors: TensorMap
) -> Iterator[Damaged]:
    """List the damage of the first copy by tensor, and what other copies could not restore."""
    header = tensors.header
    remaining = merge(lost)
    body = _data(header.data_start, copy.flawed)
    body = merge(Range(r.start, min(r.stop, header.file_size)) for r in body)
    replaced = merge(piece.range for piece in pieces)
    for piece in merge([*body, *replaced, *remaining]):
        for part, restored in _split(piece, remaining):
            for place in tensors.places([part]):
                reason = copy.reason_at(place.offset) or Reason.NOT_FINITE
                yield Damaged(place, reason, restored)


def _split(piece: Range, lost: Sequence[Range]) -> Iterator[tuple[Range, bool]]:
    """Cut a range into what is restored and what is lost."""
    gone = within(lost, piece)
    yield from sorted([(r, False) for r in gone] + [(r, True) for r in subtract(piece, gone)])


def _changes(head: Head, copies: Sequence[Copy], pieces: Sequence[Piece]) -> Iterator[Change]:
    first = copies[0]
    before = first.readable.read(0, min(first.size, head.header.data_start))
    for part in changed_ranges(before, head.header.raw):
        yield Change(part, "header", head.origin, head.how_known)
    for piece in pieces:
        source = f"{copies[piece.copy].label} at byte {piece.offset:,}"
        yield Change(piece.range, "data", source, piece.how_known)
    end = head.header.file_size
    if first.size > end:
        what = "bytes after the end of the data were left out"
        yield Change(Range(end, first.size), what, head.origin, "the header declares the size")


def _source(copy: Copy) -> Source:
    route = "file" if copy.path is not None else "process"
    return Source(copy.label, copy.size, route, copy.flawed[:_MOST_LISTED])


def _header_found(head: Head, copy: Copy) -> HeaderFound:
    raw = head.header.raw
    return HeaderFound(
        bytes=len(raw),
        tensors=len(head.header.tensors),
        origin=head.origin,
        surviving=head.surviving,
        certain=head.certain,
        rebuilt=copy.readable.read(0, len(raw)) != raw,
        other_metadata=head.other_metadata,
    )


def _zero_tensors(lost: Sequence[Range], tensors: TensorMap) -> tuple[str, ...]:
    """Name the tensors of which nothing is left."""
    return tuple(
        tensor.name
        for piece in merge(lost)
        for tensor, part in tensors.tensors_in(piece)
        if part.size == tensor.nbytes
    )


def _doubts(head: Head, copy: Copy, content: Content) -> Iterator[str]:
    """Say why the first copy may not be the file, although nothing in it is proven wrong."""
    yield from head.doubts
    yield from copy.doubts
    yield from content.doubts
    integers = [tensor for tensor in head.header.tensors if _is_integer_lora(tensor)]
    if integers:
        yield f"{printable(integers[0].name)} is of {integers[0].dtype}, which no LoRA is."


def _is_integer_lora(tensor: Tensor) -> bool:
    key = parse_key(tensor.name)
    is_lora = key is not None and key.part in (Part.A, Part.B)
    return is_lora and tensor.dtype.startswith(("BOOL", "I", "U"))


def _notes(
    head: Head, copies: Sequence[Copy], content: Content, lost: Sequence[Range]
) -> Iterator[str]:
    path = copies[0].path
    if lost and path is not None and _TEMPORARY.fullmatch(path.name):
        yield (
            "A name like this is what safetensors 0.8 leaves when a save is killed: the tensors up "
            "to some byte, and zeros behind it."
        )
    if not head.certain:
        yield (
            "The library writes several metadata entries in an order that differs from save to "
            "save: the header's length is exact, and its bytes may not be."
        )
    if head.other_metadata:
        yield "The tensors are those expected; the metadata is not, and was left as it is."
    yield from content.notes
    yield from (doubt for copy in copies[1:] for doubt in copy.doubts)
