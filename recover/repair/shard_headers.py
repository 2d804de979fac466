"""The header of a whole checkpoint's shard, from the index that names its tensors and the base."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from ..base.model import Base, BaseTensor
from ..formats.safetensors import DTYPE_BITS
from .header_candidate import HeaderCandidate, candidate_of
from .size_oracle import DTYPES


def shard_headers(
    base: Base, weight_map: Mapping[str, str], shard: str, size: int
) -> Iterator[HeaderCandidate]:
    """Give the headers that a shard of this size can have; none where the base lacks a tensor."""
    names = [name for name, holder in weight_map.items() if holder == shard]
    tensors = [base.tensors[name] for name in names if name in base.tensors]
    if names and len(tensors) == len(names):
        yield from _of_size(tensors, size, f"the index and {base.label}")


def whole_headers(base: Base, size: int) -> Iterator[HeaderCandidate]:
    """Give the headers that a whole checkpoint in one file can have, tied tensors in or out."""
    everything = tuple(base.tensors.values())
    untied = tuple(tensor for tensor in everything if tensor.name not in base.tied)
    for tensors in dict.fromkeys((everything, untied)):
        yield from _of_size(tensors, size, f"every tensor of {base.label}")


def _of_size(
    tensors: list[BaseTensor] | tuple[BaseTensor, ...], size: int, origin: str
) -> Iterator[HeaderCandidate]:
    """Try the base's own dtypes, and each dtype for all that are not known or could be cast."""
    own = tuple(tensor.dtype for tensor in tensors)
    tried = [own] if None not in own else []
    tried += [(dtype,) * len(tensors) for dtype in DTYPES]
    for dtypes in dict.fromkeys(tried):
        pairs = zip(tensors, dtypes, strict=True)
        entries = [(tensor.name, dtype or "", tensor.shape) for tensor, dtype in pairs]
        if not _fits(entries, size):
            continue
        candidate = candidate_of(entries, origin)
        if candidate is not None and candidate.header.file_size == size:
            yield candidate


def _fits(entries: list[tuple[str, str, tuple[int, ...]]], size: int) -> bool:
    """Pass over what is larger than the file already without its header."""
    return sum(prod(shape) * DTYPE_BITS.get(dtype, 0) // 8 for _, dtype, shape in entries) < size
