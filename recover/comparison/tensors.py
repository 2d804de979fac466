"""Compare two safetensors files tensor by tensor, whatever the order they are stored in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import lcm

from ..formats.safetensors import DTYPE_BITS, Header, Tensor, coverage
from ..formats.safetensors_errors import shown
from ..readable import Readable, read_exactly
from .result import (
    CASTABLE,
    Cast,
    Comparison,
    Differences,
    FirstDifference,
    Result,
    TensorDifference,
    largest,
)

_BLOCK = 3 << 20  # a multiple of three, so that a block holds whole elements of six bits too
_NAMED = 3


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A safetensors file with its header; the data may end early or go on after the last tensor."""

    source: Readable
    header: Header

    def start(self, tensor: Tensor) -> int:
        """Give the absolute offset of a tensor's first byte."""
        return self.header.data_start + tensor.begin

    def present(self, tensor: Tensor) -> int:
        """Count the elements of a tensor before the end of the source, in whole bytes."""
        bits = DTYPE_BITS[tensor.dtype]
        left = min(self.source.size - self.start(tensor), tensor.nbytes)
        unit = lcm(bits, 8) // 8
        return max(0, left) // unit * unit * 8 // bits

    def read(self, tensor: Tensor, element: int, count: int) -> bytes:
        """Read elements, both numbers whole bytes. Raises what the source raises."""
        bits = DTYPE_BITS[tensor.dtype]
        return read_exactly(
            self.source, self.start(tensor) + element * bits // 8, count * bits // 8
        )

    def cut(self) -> str | None:
        """Name the tensors that the data ends in or before; null when all are whole."""
        reach = coverage(self.header, self.source.size)
        names = [*(tensor.name for tensor in reach.cut), *reach.absent]
        if not names:
            return None
        listed = ", ".join(f"`{shown(name)}`" for name in names[:_NAMED])
        more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
        return f"{self.source.label} ends before the end of {listed}{more}."


@dataclass(frozen=True, slots=True)
class _Pair:
    """The same name in A and in B."""

    a: Checkpoint
    in_a: Tensor
    b: Checkpoint
    in_b: Tensor

    def blocks(self) -> Iterator[tuple[int, bytes, bytes]]:
        """Give the index of the first element, and equally many elements of A and of B."""
        step = _BLOCK * 8 // max(DTYPE_BITS[self.in_a.dtype], DTYPE_BITS[self.in_b.dtype])
        end = self.present()
        for start in range(0, end, step):
            count = min(step, end - start)
            yield start, self.a.read(self.in_a, start, count), self.b.read(self.in_b, start, count)

    def present(self) -> int:
        return min(self.a.present(self.in_a), self.b.present(self.in_b))

    def missing(self) -> int:
        return element_count(self.in_a) - self.present()


@dataclass(frozen=True, slots=True)
class _Outcome:
    """How a pair compares; neither of the three means the same values in other bytes."""

    same_bytes: bool = False
    cast: Cast | None = None
    difference: TensorDifference | None = None


def element_count(tensor: Tensor) -> int:
    """Count the elements that a tensor is declared to have."""
    return tensor.nbytes * 8 // DTYPE_BITS[tensor.dtype]


def compare_tensors(a: Checkpoint, b: Checkpoint, shared: int) -> Comparison:
    """Compare files that are not byte-identical, knowing that the first `shared` bytes are.

    Elements that are missing, because the data ends early, count as different, and so do all
    elements of a tensor that one side lacks or has in another shape. Raises what the sources raise.
    """
    only_in_b = {tensor.name: tensor for tensor in b.header.tensors}
    only_in_a: list[Tensor] = []
    outcomes: list[_Outcome] = []
    first: FirstDifference | None = None
    for tensor in a.header.tensors:
        other = only_in_b.pop(tensor.name, None)
        if other is None:
            only_in_a.append(tensor)
            first = first or FirstDifference(tensor.name, None, a.start(tensor))
            continue
        known = a.header.span(tensor).stop <= shared
        outcome = _Outcome(same_bytes=True) if known else _compare_pair(_Pair(a, tensor, b, other))
        outcomes.append(outcome)
        if outcome.difference is not None and first is None:
            element = outcome.difference.first_element
            offset = a.start(tensor) + (element or 0) * DTYPE_BITS[tensor.dtype] // 8
            first = FirstDifference(tensor.name, element, offset)
    if first is None and only_in_b:
        first = FirstDifference(next(iter(only_in_b)), None, None)

    alone = [*only_in_a, *only_in_b.values()]
    differences = tuple(one.difference for one in outcomes if one.difference is not None)
    result = _judge(outcomes, complete=not alone)
    other_file = a.header.raw != b.header.raw or a.source.size != b.source.size
    return Comparison(
        result=result,
        note=" ".join(note for note in (a.cut(), b.cut()) if note) or None,
        re_serialised=result is Result.RE_SERIALISED
        or (result is Result.VALUE_IDENTICAL and other_file),
        first_difference=first,
        different_elements=sum(one.different_elements for one in differences)
        + sum(element_count(tensor) for tensor in alone),
        max_ulp=largest([one.max_ulp for one in differences]),
        equal_tensors=len(outcomes) - len(differences),
        different_tensors=differences,
        casts=tuple(one.cast for one in outcomes if one.cast is not None),
        only_in_a=tuple(tensor.name for tensor in only_in_a),
        only_in_b=tuple(only_in_b),
    )


def _judge(outcomes: list[_Outcome], *, complete: bool) -> Result:
    if not complete or any(one.difference for one in outcomes):
        return Result.DIFFERENT
    if any(one.cast for one in outcomes):
        return Result.CAST
    if all(one.same_bytes for one in outcomes):
        return Result.RE_SERIALISED
    return Result.VALUE_IDENTICAL


def _compare_pair(pair: _Pair) -> _Outcome:
    if pair.in_a.shape != pair.in_b.shape:
        reason = f"shape {_shown(pair.in_a.shape)} against {_shown(pair.in_b.shape)}"
        return _Outcome(difference=_all_elements(pair, reason))
    if pair.in_a.dtype == pair.in_b.dtype:
        return _compare_values(pair)
    if {pair.in_a.dtype, pair.in_b.dtype} <= CASTABLE:
        return _compare_cast(pair)
    return _Outcome(difference=_all_elements(pair, _dtypes(pair)))


def _compare_values(pair: _Pair) -> _Outcome:
    dtype = pair.in_a.dtype
    same_bytes = True
    found = Differences()
    for start, left, right in pair.blocks():
        if left != right:
            from .values import element_differences

            same_bytes = False
            found = found.followed_by(element_differences(left, right, dtype), start)
    missing = pair.missing()
    if missing:
        found = found.followed_by(Differences(missing, 0), pair.present())
    if not found.count:
        return _Outcome(same_bytes=same_bytes)
    return _Outcome(
        difference=TensorDifference(
            tensor=pair.in_a.name,
            dtype=dtype,
            elements=element_count(pair.in_a),
            different_elements=found.count,
            first_element=found.first,
            max_ulp=found.max_ulp,
            reason=_missing(missing),
        )
    )


def _compare_cast(pair: _Pair) -> _Outcome:
    from .values import cast_differences

    in_a, in_b = pair.in_a.dtype, pair.in_b.dtype
    forward, backward = Differences(), Differences()
    for start, left, right in pair.blocks():
        forward = forward.followed_by(cast_differences(left, right, in_a, in_b), start)
        backward = backward.followed_by(cast_differences(right, left, in_b, in_a), start)
    best = min(forward, backward, key=lambda found: found.count)
    missing = pair.missing()
    if best.count or missing:
        best = best.followed_by(Differences(missing, 0), pair.present())
        return _Outcome(difference=_all_elements(pair, _dtypes(pair), best))
    if forward.count:
        return _Outcome(cast=Cast(in_b, in_a, "b"))
    return _Outcome(cast=Cast(in_a, in_b, "a" if backward.count else "either"))


def _all_elements(pair: _Pair, reason: str, found: Differences | None = None) -> TensorDifference:
    count = max(element_count(pair.in_a), element_count(pair.in_b))
    return TensorDifference(
        tensor=pair.in_a.name,
        dtype=pair.in_a.dtype,
        elements=count,
        different_elements=count,
        first_element=found.first if found else None,
        max_ulp=found.max_ulp if found else None,
        reason=reason,
        not_cast=found.count if found else None,
    )


def _dtypes(pair: _Pair) -> str:
    return f"dtype {pair.in_a.dtype} against {pair.in_b.dtype}"


def _missing(count: int) -> str | None:
    if not count:
        return None
    return "1 element missing" if count == 1 else f"{count:,} elements missing"


def _shown(shape: tuple[int, ...]) -> str:
    return str(list(shape)) if len(shape) <= 8 else f"of {len(shape):,} dimensions"
