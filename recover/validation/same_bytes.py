"""Compare tensors bit for bit, in blocks, whatever files they lie in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ..checkpoint import Checkpoint, Shard
from ..formats.safetensors import DTYPE_BITS, Tensor
from ..formats.safetensors_errors import shown
from ..readable import read_exactly
from .result import Damage, DamageClass

_BLOCK = 1 << 20


class Difference(NamedTuple):
    """Where two tensors begin to differ: the element, and the offset in the second's file."""

    element: int
    offset: int


def first_difference(one: Tensor, first: Shard, other: Tensor, second: Shard) -> Difference | None:
    """Find the first byte that differs between two tensors of one dtype and shape.

    Raises what reading raises; Unusable if a file ends too early.
    """
    assert first.header is not None and second.header is not None
    here, there = first.header.span(one), second.header.span(other)
    for position in range(0, here.size, _BLOCK):
        length = min(_BLOCK, here.size - position)
        a = read_exactly(first.readable, here.start + position, length)
        b = read_exactly(second.readable, there.start + position, length)
        if a != b:
            at = position + _mismatch(a, b)
            return Difference(at * 8 // DTYPE_BITS[one.dtype], there.start + at)
    return None


def differences_from(
    reference: Checkpoint, tensors: Mapping[str, Tensor], shards: Mapping[str, Shard]
) -> Iterator[Damage]:
    """Hold every tensor against a reference, over any shards: same names, dtypes, shapes, bits."""
    known: set[str] = set()
    for shard in reference.shards:
        if shard.header is None:
            yield Damage(
                DamageClass.DIFFERS,
                f"The reference's {shown(shard.name)} cannot be read, so nothing equals it.",
            )
            continue
        for tensor in shard.header.tensors:
            if tensor.name in known:
                continue
            known.add(tensor.name)
            found = tensors.get(tensor.name)
            if found is None:
                text = f"`{shown(tensor.name)}` of the reference is not there."
                yield Damage(DamageClass.DIFFERS, text, tensor=tensor.name)
                continue
            holder = shards[tensor.name]
            yield from _unequal(tensor, shard, found, holder)
    for name in tensors:
        if name not in known:
            yield Damage(
                DamageClass.DIFFERS,
                f"`{shown(name)}` is not in the reference.",
                shard=shards[name].name,
                tensor=name,
            )


def _unequal(tensor: Tensor, shard: Shard, found: Tensor, holder: Shard) -> Iterator[Damage]:
    if (tensor.dtype, tensor.shape) != (found.dtype, found.shape):
        text = (
            f"`{shown(tensor.name)}` is {found.dtype} {list(found.shape)}, and {tensor.dtype} "
            f"{list(tensor.shape)} in the reference."
        )
        yield Damage(DamageClass.DIFFERS, text, shard=holder.name, tensor=found.name)
        return
    if not reaches(shard, tensor) or not reaches(holder, found):
        text = f"`{shown(tensor.name)}` is not whole on both sides."
        yield Damage(DamageClass.DIFFERS, text, shard=holder.name, tensor=found.name)
        return
    difference = first_difference(tensor, shard, found, holder)
    if difference is not None:
        yield Damage(
            DamageClass.DIFFERS,
            f"`{shown(tensor.name)}` differs from the reference, first in element "
            f"{difference.element:,}.",
            shard=holder.name,
            tensor=found.name,
            offset=difference.offset,
            bytes=found.nbytes,
        )


def reaches(shard: Shard, tensor: Tensor) -> bool:
    """Tell whether the file is long enough for all of a tensor."""
    return shard.header is not None and shard.header.span(tensor).stop <= shard.size


def _mismatch(a: bytes, b: bytes) -> int:
    low, high = 0, len(a)
    while high - low > 1:
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low
