"""Restore lost bytes from a tensor that holds the same values by construction.

Megatron's fused linear_qkv and linear_fc1 have one A, which their export writes for each of q, k
and v, and for gate and up: byte-identical tensors. A twin is used only where the file shows the
pattern in every other place that is whole, and where something of the lost tensor survives and
agrees. Tied embeddings are used where the base says that they are tied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..formats.safetensors import Tensor
from ..ranges import Range, merge, subtract, within
from .composed import Composed
from .merge import Piece

_FUSED = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
_END = ".lora_A.weight"
_BLOCK = 1 << 20
_LEAST_SHOWN = 3  # so many whole groups must show the pattern before it is believed
_LEAST_COMMON = 64  # bytes that a member must still have in common with another one
_LEAST_SURVIVING = 4  # of a tied pair, which nothing else speaks for, a fourth must be comparable


@dataclass(frozen=True)
class Restored:
    """Pieces that a twin gives, and what is lost after that."""

    pieces: tuple[Piece, ...]
    lost: tuple[Range, ...]


def restore(
    composed: Composed, lost: Sequence[Range], tied: Mapping[str, str] | None = None
) -> Restored:
    """Find a twin for every lost range. Reads every group of a kind that has a loss."""
    tensors = {tensor.name: tensor for tensor in composed.header.tensors}
    lost = merge(lost)
    found: list[Piece] = []
    groups = _fused_groups(tensors)
    for kind in sorted({kind for kind, _ in groups}):
        members = [names for (each, _), names in groups.items() if each == kind]
        if any(_hit(composed, tensors[n], lost) for names in members for n in names):
            found += _of_kind(composed, tensors, members, lost)
    for one, other in (tied or {}).items():
        if one in tensors and other in tensors and _alike(tensors[one], tensors[other]):
            how = f"redundancy: the base ties {one} to {other}"
            pair = [tensors[one], tensors[other]]
            span, twin = (composed.header.span(tensor) for tensor in pair)
            if _shared(span, twin, lost) * _LEAST_SURVIVING >= span.size:
                found += _of_group(composed, pair, lost, how)
    restored = merge(piece.range for piece in found)
    left = [part for piece in lost for part in subtract(piece, within(restored, piece))]
    return Restored(tuple(found), tuple(left))


def _fused_groups(tensors: Mapping[str, Tensor]) -> dict[tuple[int, str], list[str]]:
    """Group the A matrices by kind of fusion and by the module that holds the fused ones."""
    groups: dict[tuple[int, str], list[str]] = {}
    for name in tensors:
        if not name.endswith(_END):
            continue
        holder, _, leaf = name.removesuffix(_END).rpartition(".")
        for kind, leaves in enumerate(_FUSED):
            if leaf in leaves:
                groups.setdefault((kind, holder), []).append(name)
    return {place: names for place, names in groups.items() if len(names) > 1}


def _of_kind(
    composed: Composed,
    tensors: Mapping[str, Tensor],
    groups: Iterable[list[str]],
    lost: Sequence[Range],
) -> Iterator[Piece]:
    damaged: list[list[Tensor]] = []
    shown = 0
    for names in groups:
        members = [tensors[name] for name in names]
        if any(not _alike(members[0], other) for other in members[1:]):
            return
        if any(_hit(composed, tensor, lost) for tensor in members):
            damaged.append(members)
        elif _equal(composed, members, lost):
            shown += 1
        else:
            return
    if shown < _LEAST_SHOWN:
        return
    how = f"redundancy: {shown} other groups of fused modules each hold one A, byte for byte"
    for members in damaged:
        yield from _of_group(composed, members, lost, how)


def _of_group(
    composed: Composed, members: Sequence[Tensor], lost: Sequence[Range], how: str
) -> Iterator[Piece]:
    """Give each lost part of a group from a member that has it, if all that survives agrees."""
    if not any(_hit(composed, tensor, lost) for tensor in members):
        return
    if not _equal(composed, members, lost):
        return
    spans = [composed.header.span(tensor) for tensor in members]
    spans = [span for span in spans if _is_attested(span, spans, lost)]
    for number, span in enumerate(spans):
        wanted = list(within(lost, span))
        for twin in spans[:number] + spans[number + 1 :]:
            shift = twin.start - span.start
            left: list[Range] = []
            for part in wanted:
                there = Range(part.start + shift, part.stop + shift)
                missing = within(lost, there)
                for whole in subtract(there, missing):
                    place = Range(whole.start - shift, whole.stop - shift)
                    yield from _drawn(composed, place, whole.start, how)
                left += [Range(m.start - shift, m.stop - shift) for m in missing]
            wanted = left


def _is_attested(span: Range, spans: Sequence[Range], lost: Sequence[Range]) -> bool:
    """Tell whether enough of a member survives to be seen in another one, too."""
    others = (other for other in spans if other != span)
    return any(_shared(span, other, lost) >= _LEAST_COMMON for other in others)


def _drawn(composed: Composed, place: Range, offset: int, how: str) -> Iterator[Piece]:
    """Give the pieces of the copies that stand at `offset` in the result."""
    position = place.start
    for number, at, count in composed.drawn(Range(offset, offset + place.size)):
        yield Piece(Range(position, position + count), number, at, how)
        position += count


def _alike(one: Tensor, other: Tensor) -> bool:
    return (one.shape, one.dtype) == (other.shape, other.dtype)


def _hit(composed: Composed, tensor: Tensor, lost: Sequence[Range]) -> bool:
    return bool(within(lost, composed.header.span(tensor)))


def _equal(composed: Composed, members: Sequence[Tensor], lost: Sequence[Range]) -> bool:
    """Tell whether members hold the same bytes wherever both still have them."""
    first, *others = (composed.header.span(tensor) for tensor in members)
    return all(_same(composed, first, other, lost) for other in others)


def _shared(a: Range, b: Range, lost: Sequence[Range]) -> int:
    """Count the bytes that both of two tensors still have."""
    return sum(piece.size for piece in _both(a, b, lost))


def _both(a: Range, b: Range, lost: Sequence[Range]) -> tuple[Range, ...]:
    """Give the parts of `a` that survive there and in `b`."""
    shift = b.start - a.start
    there = (Range(r.start - shift, r.stop - shift) for r in within(lost, b))
    return subtract(a, (*within(lost, a), *there))


def _same(composed: Composed, a: Range, b: Range, lost: Sequence[Range]) -> bool:
    shift = b.start - a.start
    for piece in _both(a, b, lost):
        for at in range(piece.start, piece.stop, _BLOCK):
            size = min(_BLOCK, piece.stop - at)
            if composed.read(at, size) != composed.read(at + shift, size):
                return False
    return True
