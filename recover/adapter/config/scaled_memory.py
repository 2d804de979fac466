"""Prove the scale by a copy of the adapter whose lora_B was multiplied by it, as vLLM's is.

vLLM multiplies lora_B by alpha / r once, when it loads an adapter (`LoRALayerWeights.optimize`).
Imports numpy: import it where it is used.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ....errors import DoesNotHold
from ....records.names import printable
from ...checkpoint import Checkpoint
from ...open_checkpoint import open_checkpoint
from ...operands import names_a_process
from ...routes import Wanted
from ..keys import PREFIX, Part
from ..structure import Adapter
from .floats import Floats, Store, decode, rounded, spacing
from .measured_scale import ScaleProof
from .proof import Proof

_B = (Part.B, Part.EMBEDDING_B)
_A = (Part.A, Part.EMBEDDING_A)


def prove_by_memory(
    checkpoint: Checkpoint, adapter: Adapter, operand: str, proof: Proof
) -> ScaleProof:
    """Measure the factor between the adapter's lora_B and the copy's, which must be one number.

    Each element of the copy allows the factors that round to it; one factor must be allowed by
    all elements of a module. Raises DoesNotHold where there is no such factor, or where some
    modules are not scaled, which a factor of 1 cannot be told from.
    """
    wanted = Wanted.MEMORY if names_a_process(operand) else Wanted.AUTO
    with open_checkpoint(operand, wanted) as scaled:
        return _measure(Store(checkpoint), Store(scaled), adapter, proof)


def _measure(file: Store, memory: Store, adapter: Adapter, proof: Proof) -> ScaleProof:
    scales: dict[str, float] = {}
    tolerance = 0.0
    elements = 0
    unscaled: list[str] = []
    silent: set[str] = set()
    for name, key in adapter.keys.items():
        if key.part not in (*_A, *_B):
            continue
        other = _named(name, memory)
        if other is None:
            continue
        _same_shape(name, file, other, memory)
        if key.part in _A:
            if not _is_cast(name, file, other, memory):
                raise DoesNotHold(
                    f"{printable(name)} differs in {memory.label}: it is not this adapter's copy.",
                    remedy="Name a copy of the same step.",
                )
            continue
        values = file.floats(name).ravel()
        place = proof.places[key.module, key.depth]
        if place not in proof.ranks:
            continue  # the head of tied embeddings, whose LoRA is that of the embedding
        if not values.any():
            silent.add(place)
            continue
        low, high = _bounds(name, values, memory, other)
        scales[place] = (low + high) / 2
        if low <= 1 <= high:
            unscaled.append(place)
        tolerance = max(tolerance, (high - low) / (high + low))
        elements += values.size
    if not scales:
        raise DoesNotHold(
            f"{memory.label} has no lora_B of this adapter that is not zero.",
            remedy="Name a copy of the adapter, or state alpha with --set lora_alpha=NUMBER.",
        )
    if unscaled:
        raise _not_scaled(unscaled, scales, memory)
    shown = sorted(set(round(scale, 9) for scale in scales.values()))
    return ScaleProof(
        scales,
        tolerance + 1e-9,
        f"lora_B in {memory.label} is that of the file times {_numbers(shown)}, exactly so in "
        f"{len(scales):,} modules and {elements:,} elements",
        frozenset(silent),
    )


def _not_scaled(unscaled: list[str], scales: Mapping[str, float], memory: Store) -> DoesNotHold:
    remedy = "Name the copy that the server computes with, or state alpha with --set."
    if len(unscaled) == len(scales):
        return DoesNotHold(
            f"{memory.label} holds the same values as the file: it is not scaled, or by 1, and "
            "both look the same.",
            remedy=remedy,
        )
    return DoesNotHold(
        f"{len(unscaled):,} of {len(scales):,} modules hold the file's lora_B in {memory.label} "
        f"({printable(unscaled[0])}), and the others a scaled one: the copy is scaled in part "
        "only, or these by 1, and both look the same.",
        remedy=remedy,
    )


def _numbers(values: list[float]) -> str:
    return ", ".join(f"{value:.6g}" for value in values[:4]) + (", …" if len(values) > 4 else "")


def _named(name: str, memory: Store) -> str | None:
    """Find a tensor in the copy, whose names may lack PEFT's prefix."""
    return next((n for n in (name, name.removeprefix(PREFIX)) if n in memory.tensors), None)


def _same_shape(name: str, file: Store, other: str, memory: Store) -> None:
    shapes = file.tensors[name][1].shape, memory.tensors[other][1].shape
    if shapes[0] != shapes[1]:
        raise DoesNotHold(
            f"{printable(name)} has another shape in {memory.label}: {list(shapes[1])}.",
            remedy="Name a copy of this adapter, before it is packed with others.",
        )


def _is_cast(name: str, file: Store, other: str, memory: Store) -> bool:
    if file.raw(name) == memory.raw(other):
        return True
    values = rounded(file.floats(name), memory.dtype(other))
    return bool(np.array_equal(values, memory.floats(other)))


def _bounds(name: str, values: Floats, memory: Store, other: str) -> tuple[float, float]:
    """Give the least and the greatest factor under which every element rounds to the copy's."""
    dtype = memory.dtype(other)
    scaled = decode(memory.raw(other), dtype, other)
    for source in (rounded(values, dtype), values):  # the cast comes before, or after
        zero = source == 0
        if scaled[zero].any():
            continue
        wide = np.abs(source) > 0
        wide &= np.abs(scaled) > 64 * spacing(np.zeros(1), dtype)[0]
        if not wide.any():
            continue
        # A product computed in a wider dtype is rounded twice, which adds next to nothing.
        slack = spacing(scaled[wide], dtype) * (0.5 + 2.0**-8)
        edges = np.stack([(scaled[wide] - slack), (scaled[wide] + slack)]) / source[wide]
        low, high = float(edges.min(axis=0).max()), float(edges.max(axis=0).min())
        if 0 < low <= high:
            return low, high
    raise DoesNotHold(
        f"{printable(name)} in {memory.label} is not the file's times one number.",
        remedy="Name a copy of the same adapter and step, or state alpha with --set.",
    )
