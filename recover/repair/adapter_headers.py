"""The headers that an adapter of a base can have: by what is stated of it, and by its size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, cast

from ...errors import Unusable
from ..adapter.config.faults import config_faults
from ..adapter.expected.by_config import expected_by_config
from ..adapter.expected.expectation import Shape
from ..adapter.keys import Part, tensor_name
from ..adapter.structure import Adapter, read_adapter
from ..base.model import Base
from ..formats.safetensors import Tensor
from .header_candidate import HeaderCandidate, candidate_of
from .header_length import file_size
from .size_oracle import DTYPES, LARGEST_RANK, fits

_WORDS: Mapping[str, Sequence[str]] = {
    "BF16": ("bf16", "bfloat16"),
    "F16": ("f16", "fp16", "float16", "half"),
    "F32": ("f32", "fp32", "float32", "float"),
}


class _Variant(NamedTuple):
    """What a configuration leaves open: how experts are named, and if embeddings are saved."""

    adapter: Adapter
    embeddings: bool


def adapter_headers(
    base: Base, stated: Mapping[str, object], size: int
) -> Iterator[HeaderCandidate]:
    """Give the headers of every adapter of the base that is stated so and has this size.

    `stated` holds names of LoraConfig, and `dtype`. A rank that is not stated follows from the
    size; where the targets are not stated, the size decides among plain LoRAs on linear layers.
    Raises Unusable for values that cannot be used.
    """
    dtypes = _dtypes(stated)
    fault = next((found.fault for found in config_faults(stated, document=False)), None)
    if fault is not None:
        raise Unusable(fault.message, remedy="Correct the recipe, or state it with --set.")
    config = {key: value for key, value in stated.items() if key != "dtype"}
    rank = cast("int | None", config.get("r"))
    if "target_modules" in config or "target_parameters" in config:
        for dtype in dtypes:
            yield from _of_targets(base, config, dtype, size)
        return
    for fit in fits(base, size, rank=rank, dtypes=dtypes):
        chosen = {**config, "r": fit.rank, "target_modules": list(fit.targets)}
        yield from _of_targets(base, chosen, fit.dtype, size)


def _of_targets(
    base: Base, config: Mapping[str, object], dtype: str, size: int
) -> Iterator[HeaderCandidate]:
    seen: set[bytes] = set()
    for variant in _variants(base):
        rank = config.get("r") or _rank_of_size(base, config, variant, dtype, size)
        tensors = _tensors(base, {**config, "r": rank}, variant)
        origin = f"{base.label}, r={rank}, {dtype}, {_named(config)}"
        candidate = candidate_of(((n, dtype, shape) for n, shape in tensors.items()), origin)
        fitting = candidate is not None and candidate.header.file_size == size
        if candidate is not None and fitting and candidate.raw not in seen:
            seen.add(candidate.raw)
            yield candidate


def _rank_of_size(
    base: Base, config: Mapping[str, object], variant: _Variant, dtype: str, size: int
) -> int:
    """Give the least rank whose file is not smaller: a file grows with the rank."""
    low, high = 1, LARGEST_RANK
    while low < high:
        middle = (low + high) // 2
        tensors = _tensors(base, {**config, "r": middle}, variant)
        if file_size(sorted(tensors.items()), dtype) < size:
            low = middle + 1
        else:
            high = middle
    return low


def _tensors(base: Base, config: Mapping[str, object], variant: _Variant) -> dict[str, Shape]:
    expectation = expected_by_config(variant.adapter, base, config)
    tensors = dict(expectation.tensors)
    if variant.embeddings:
        optional = expectation.optional.items()
        tensors |= {name: shape for name, shape in optional if shape is not None}
    return tensors


def _variants(base: Base) -> Iterator[_Variant]:
    """Give each reading; experts that transformers 5 has fused are named by their parameters."""
    holders = dict.fromkeys(name.rpartition(".")[0] for name in base.parameters)
    names = (tensor_name(holder, Part.A) for holder in holders)
    adapters = [read_adapter(())]
    if holders:
        adapters.append(read_adapter(Tensor(name, "F32", (1, 1), 0, 4) for name in names))
    for adapter in adapters:
        yield _Variant(adapter, embeddings=False)
        yield _Variant(adapter, embeddings=True)


def _named(config: Mapping[str, object]) -> str:
    targets = config.get("target_modules") or config.get("target_parameters")
    if isinstance(targets, list):
        return ",".join(sorted(map(str, cast("list[object]", targets))))
    return str(targets)


def _dtypes(stated: Mapping[str, object]) -> tuple[str, ...]:
    value = stated.get("dtype")
    if value is None:
        return DTYPES
    word = str(value).removeprefix("torch.").lower()
    found = tuple(dtype for dtype, words in _WORDS.items() if word in words)
    if not found:
        raise Unusable(
            "The dtype of an adapter is BF16, F16 or F32.", remedy="State one: --set dtype=BF16."
        )
    return found
