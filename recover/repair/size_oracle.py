"""Find which ranks, targets and dtypes give a LoRA adapter of exactly the size that a file has.

The data's size is the rank times a sum over the targeted modules, and the header's length moves
within narrow bounds: for each set of kinds of modules and each dtype at most a few ranks remain,
and only for those is the exact size computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, combinations
from typing import NamedTuple

from ...errors import Unusable
from ..adapter.expected.expectation import lora_shapes
from ..adapter.keys import tensor_name
from ..base.model import Base, Module
from ..formats.safetensors import DTYPE_BITS
from .header_length import entry_length, file_size

LARGEST_RANK = 1024
DTYPES = ("BF16", "F16", "F32")
_MOST_KINDS = 12
_SLACK = 64  # the braces, the metadata, the padding and the 8 bytes of length


class Fit(NamedTuple):
    """Targets by the last part of their names, rank and dtype that give the size."""

    targets: tuple[str, ...]
    rank: int
    dtype: str


class _Kind(NamedTuple):
    """All modules of one last name: bytes of data per rank and width, and bounds of entries."""

    name: str
    modules: tuple[Module, ...]
    elements: int
    shortest: int
    longest: int


def fits(
    base: Base,
    size: int,
    *,
    rank: int | None = None,
    dtypes: Iterable[str] = DTYPES,
) -> Iterator[Fit]:
    """Give every (targets, rank, dtype) of a plain LoRA on linear layers of exactly this size.

    `rank` fixes it where it is known. Raises Unusable where the base has too many kinds of
    linear layers to try every set of them.
    """
    kinds = _kinds(base, size)
    if len(kinds) > _MOST_KINDS:
        raise Unusable(
            f"The base has {len(kinds)} kinds of linear layers, too many to try every set of them.",
            remedy="State the targets: --set target_modules=q_proj,k_proj,…",
        )
    sets = chain.from_iterable(combinations(kinds, n) for n in range(1, len(kinds) + 1))
    dtypes = tuple(dtypes)
    for chosen in sets:
        for dtype in dtypes:
            yield from _ranks(chosen, size, dtype, rank)


def _ranks(chosen: tuple[_Kind, ...], size: int, dtype: str, rank: int | None) -> Iterator[Fit]:
    unit = DTYPE_BITS[dtype] // 8 * sum(kind.elements for kind in chosen)
    least = sum(kind.shortest for kind in chosen)
    most = sum(kind.longest for kind in chosen) + _SLACK
    first = max(1, -(-(size - most) // unit))
    last = min(LARGEST_RANK, (size - least) // unit)
    for each in range(first, last + 1):
        if rank in (None, each) and _exact(chosen, each, dtype) == size:
            yield Fit(tuple(kind.name for kind in chosen), each, dtype)


def _exact(chosen: tuple[_Kind, ...], rank: int, dtype: str) -> int:
    tensors = sorted(
        (tensor_name(module.name, part), shape)
        for kind in chosen
        for module in kind.modules
        for part, shape in lora_shapes(module, rank).items()
    )
    return file_size(tensors, dtype)


def _kinds(base: Base, size: int) -> list[_Kind]:
    """Group the linear layers by their last names, which is how `target_modules` names them."""
    grouped: dict[str, list[Module]] = {}
    for name in base.all_linear:
        grouped.setdefault(name.rpartition(".")[2], []).append(base.modules[name])
    offsets = 2 * len(str(size))
    found: list[_Kind] = []
    for name, modules in grouped.items():
        entries = [
            entry_length(tensor_name(module.name, part), "F16", shape)
            for module in modules
            for part, shape in lora_shapes(module, 1).items()
        ]
        digits = len(str(LARGEST_RANK)) - 1 + len("BF16") - len("F16") + offsets
        found.append(
            _Kind(
                name,
                tuple(modules),
                sum(module.inputs + module.outputs for module in modules),
                sum(entries),
                sum(entries) + len(entries) * digits,
            )
        )
    return found
