"""Hold two files against each other by raw bits: a zero's sign and a NaN's payload count.

Tensors of equal name are compared wherever they lie in their files; dtype and shape count as well.
Everything is read in blocks, so that memory stays bounded whatever the size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...errors import Unusable
from ...records.names import printable
from ...records.strict_json import parse_object
from ...recover.readable import Readable, read_exactly
from .json_difference import first_difference
from .layout import NotLaidOut, Span, layout
from .model import Difference
from .place_in_model import order_within

_BLOCK = 3 << 20  # a multiple of three, so that a block holds whole elements of six bits too
_JSON_LIMIT = 16 << 20
_NAMED = 64
# Bits of the exponent and of the fraction, of formats that have NaN as IEEE 754 has.
_FLOATS = {
    "F64": (11, 52), "<f8": (11, 52), "F32": (8, 23), "<f4": (8, 23), "F16": (5, 10),
    "<f2": (5, 10), "BF16": (8, 7), "F8_E5M2": (5, 2),
}  # fmt: skip


@dataclass(frozen=True)
class Comparison:
    """The differences in order of execution; `note` says what else is not the same."""

    differences: tuple[Difference, ...]
    note: str | None = None


def compare_bits(name: str, artifact: Readable, reference: Readable) -> Comparison:
    """Compare an artifact with its reference, knowing that their bytes are not all the same.

    Tensor by tensor where both are of the same format with tensors, else byte by byte. At most 64
    differences are listed. Raises what reading the sources raises.
    """
    try:
        ours = _layout(artifact)
    except NotLaidOut as error:
        return Comparison((Difference(name, None, f"cannot be read: {error}"),))
    try:
        theirs = _layout(reference)
    except NotLaidOut as error:
        return Comparison((Difference(name, None, f"the reference cannot be read: {error}"),))
    if ours is not None and theirs is not None:
        found = _Tensors(name, artifact, reference).compare(ours, theirs)
        if found:
            return Comparison(found)
        return Comparison((), f"{printable(name)}: all tensors equal, header or order not")
    if (ours is None) != (theirs is None):
        return Comparison((Difference(name, None, "is of another format than the reference"),))
    return Comparison((_bytes(name, artifact, reference),))


def _layout(source: Readable) -> tuple[Span, ...] | None:
    """Give the tensors of a file. Raises NotLaidOut, also for headers that Python cannot evaluate.

    A NumPy header is a literal of Python: a list as a key is no value, a number may be too large.
    """
    try:
        return layout(source)
    except (TypeError, ValueError, ArithmeticError, SyntaxError, RecursionError, MemoryError):
        raise NotLaidOut("its header cannot be evaluated") from None


@dataclass(frozen=True)
class _Tensors:
    name: str
    artifact: Readable
    reference: Readable

    def compare(self, ours: tuple[Span, ...], theirs: tuple[Span, ...]) -> tuple[Difference, ...]:
        here = {span.name: span for span in ours}
        there = {span.name: span for span in theirs}
        names = sorted(here.keys() | there.keys(), key=lambda name: order_within(name or ""))
        found: list[Difference] = []
        for name in names:
            one = self._one(name, here.get(name), there.get(name))
            if one is not None and len(found) < _NAMED:
                found.append(one)
        return tuple(found)

    def _one(self, name: str | None, ours: Span | None, theirs: Span | None) -> Difference | None:
        # NumPy's format holds one tensor without a name: that of the file stands for it.
        stem = self.name.rsplit("/", 1)[-1].removesuffix(".npy")
        at = Difference(self.name, stem if name is None else name, "")
        if ours is None:
            return replace(at, reason="is missing; the reference has this tensor")
        if theirs is None:
            return replace(at, reason="is extra; the reference has no such tensor")
        if ours.dtype != theirs.dtype:
            return replace(at, reason=f"dtype {ours.dtype} against {theirs.dtype}")
        if ours.shape != theirs.shape:
            return replace(at, reason=f"shape {_shape(ours)} against {_shape(theirs)}")
        return self._values(at, ours, theirs)

    def _values(self, at: Difference, ours: Span, theirs: Span) -> Difference | None:
        different, first, reason = 0, None, ""
        for start, left, right in self._blocks(ours, theirs):
            count, where = count_different(left, right, ours.bits)
            if count and first is None:
                first = start * 8 // ours.bits + where
                reason = _described(left, right, where, ours)
            different += count
        if first is None:
            return None
        total = ours.nbytes * 8 // ours.bits
        return replace(at, reason=reason, element=first, different=different, total=total)

    def _blocks(self, ours: Span, theirs: Span) -> Iterator[tuple[int, bytes, bytes]]:
        size = max(ours.bits // 8, 1)
        step = max(_BLOCK // size // 3 * 3, 3) * size
        for start in range(0, ours.nbytes, step):
            length = min(step, ours.nbytes - start)
            left = read_exactly(self.artifact, ours.offset + start, length)
            right = read_exactly(self.reference, theirs.offset + start, length)
            if left != right:
                yield start, left, right


def count_different(left: bytes, right: bytes, bits: int) -> tuple[int, int]:
    """Count the elements that differ, and give the index of the first (0 where none does).

    Both sides are equally long and whole elements of `bits` bits; those smaller than a byte lie
    with the first in the lowest bits.
    """
    import numpy as np

    if left == right or not bits:
        return 0, 0
    unequal = np.frombuffer(left, np.uint8) ^ np.frombuffer(right, np.uint8)
    if bits % 8:
        unequal = np.unpackbits(unequal, bitorder="little").reshape(-1, bits)
    else:
        unequal = unequal.reshape(-1, bits // 8)
    differs = unequal.any(axis=1)
    return int(np.count_nonzero(differs)), int(differs.argmax())


def _described(left: bytes, right: bytes, index: int, span: Span) -> str:
    if span.bits % 8 or span.bits > 128:
        return "values differ"
    size = span.bits // 8
    a = int.from_bytes(left[index * size : (index + 1) * size], "little")
    b = int.from_bytes(right[index * size : (index + 1) * size], "little")
    return f"0x{a:0{2 * size}x} against 0x{b:0{2 * size}x}{_kind(a, b, span.dtype)}"


def _kind(a: int, b: int, dtype: str) -> str:
    if dtype.split(" ")[0] not in _FLOATS:
        return ""
    exponent, fraction = _FLOATS[dtype.split(" ")[0]]
    magnitude = (1 << exponent + fraction) - 1
    infinity = ((1 << exponent) - 1) << fraction
    if not a & magnitude and not b & magnitude:
        return ", zeros of other sign"
    if a & magnitude > infinity and b & magnitude > infinity:
        return ", NaN of other payload or sign"
    return ""


def _shape(span: Span) -> str:
    return str(list(span.shape)) if len(span.shape) <= 8 else f"of {len(span.shape)} dimensions"


def _bytes(name: str, artifact: Readable, reference: Readable) -> Difference:
    shared = min(artifact.size, reference.size)
    different, first = 0, None
    for start in range(0, shared, _BLOCK):
        length = min(_BLOCK, shared - start)
        left = read_exactly(artifact, start, length)
        right = read_exactly(reference, start, length)
        count, where = count_different(left, right, 8)
        if count and first is None:
            first = start + where
        different += count
    longest = max(artifact.size, reference.size)
    sizes = f", {artifact.size:,} bytes against {reference.size:,}" if longest != shared else ""
    return Difference(
        name,
        _json_key(name, artifact, reference),
        f"bytes differ{sizes}",
        element=shared if first is None else first,
        different=different + longest - shared,
        total=longest,
    )


def _json_key(name: str, artifact: Readable, reference: Readable) -> str | None:
    if not name.endswith(".json") or max(artifact.size, reference.size) > _JSON_LIMIT:
        return None
    try:
        ours = parse_object(read_exactly(artifact, 0, artifact.size), "it")
        theirs = parse_object(read_exactly(reference, 0, reference.size), "it")
    except Unusable:
        return None
    return first_difference(ours, theirs)
