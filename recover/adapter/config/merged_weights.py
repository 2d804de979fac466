"""Prove the scale by a merged model and its base: W_merged - W_base is the scale times B·A.

Least squares of the difference on B·A gives the scale, and the cosine between both says whether
the difference is this adapter's at all. Imports numpy: import it where it is used.
"""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ....errors import DoesNotHold, Unusable
from ....records.names import printable
from ...base.hf_cache import HUB_ID, cached
from ...base.model import Base, ExpertParameter, ModuleKind
from ...checkpoint import Checkpoint
from ...open_checkpoint import open_checkpoint
from ..keys import Part, tensor_name
from ..kinds import expert_of, in_order, kind_of_module, layer_of
from ..patterns import suffixes
from ..structure import Adapter, LoraModule
from .floats import Floats, Store
from .proof import Proof
from .scale import ScaleProof

_LEAST_COSINE = 0.99
_SAMPLES = 4  # modules of each kind: the first, the last, and two between
_ROWS = 512
_SIGMAS = 6.0


class _Fit(NamedTuple):
    """The scale of one module, its standard error, and the cosine."""

    module: str
    scale: float
    error: float
    cosine: float


@dataclass(frozen=True)
class _Piece:
    """A and B of a module or of one expert, and the weight that they are merged into.

    The weight has its own name in each checkpoint. `turned` means (inputs, outputs), as Conv1D and
    embeddings hold it; `expert` is the number of a matrix in a weight of three dimensions.
    """

    module: str
    a: Floats
    b: Floats
    before: str
    after: str
    turned: bool
    expert: int | None = None

    def same(self, base: Store, merged: Store) -> bool:
        """Tell whether the weight has the same bytes in both."""
        return base.raw(self.before) == merged.raw(self.after)

    def differences(self, base: Store, merged: Store) -> Iterator[tuple[int, Floats]]:
        """Give the difference in pieces of rows, with the number of the first row."""
        if self.expert is not None:
            after = merged.floats(self.after, self.expert, 1)
            yield 0, (after - base.floats(self.before, self.expert, 1))[0]
            return
        rows = base.tensors[self.before][1].shape[0]
        for first in range(0, rows, _ROWS):
            after = merged.floats(self.after, first, _ROWS)
            yield first, after - base.floats(self.before, first, _ROWS)


def prove_by_merge(
    checkpoint: Checkpoint,
    adapter: Adapter,
    proof: Proof,
    base: Base,
    base_operand: str,
    merged_operand: str,
) -> ScaleProof:
    """Measure the scale in several modules of each kind, and demand that they agree.

    Raises DoesNotHold where the models do not differ, or not by this adapter, Unusable where the
    base's weights are not at hand.
    """
    if proof.use_dora:
        raise DoesNotHold(
            "A merged DoRA adapter does not prove alpha: its magnitudes rescale the whole weight.",
            remedy="State alpha with --set lora_alpha=NUMBER.",
        )
    with (
        open_checkpoint(_with_weights(base_operand)) as before,
        open_checkpoint(merged_operand) as after,
    ):
        return _measure(Store(checkpoint), adapter, proof, base, Store(before), Store(after))


def _with_weights(operand: str) -> str:
    if os.path.lexists(operand):
        return operand
    named = HUB_ID.fullmatch(operand)
    entry = cached(named[1], named[2]) if named else None
    if entry is None:
        raise Unusable(
            f"--merged needs the weights of the base, and {printable(operand)} is not here.",
            remedy="Download it, and name its folder with --base.",
        )
    return os.fspath(entry.folder)


def _measure(
    adapter_store: Store,
    adapter: Adapter,
    proof: Proof,
    base: Base,
    before: Store,
    after: Store,
) -> ScaleProof:
    fits: list[_Fit] = []
    unchanged: list[str] = []
    for place in _samples(adapter.modules):
        module = adapter.modules[place]
        for piece in _pieces(adapter_store, module, proof.places[place], base, before, after):
            if not piece.b.any():
                continue
            if piece.same(before, after):
                unchanged.append(piece.module)
            elif (fit := _fit(piece, before, after)) is not None:
                fits.append(fit)
    _demand_merged(fits, unchanged, after)
    worst = min(fits, key=lambda fit: fit.cosine)
    if worst.cosine < _LEAST_COSINE:
        raise DoesNotHold(
            f"What {after.label} adds to the base is not this adapter, or is lost in rounding: in "
            f"{printable(worst.module)} the cosine is {worst.cosine:.4f}.",
            remedy="Name the merge of this very step, made on this base.",
        )
    return _proof(fits, proof, after)


def _samples(places: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    kinds: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for place in sorted(places, key=lambda place: in_order(place[0])):
        kinds[f"{kind_of_module(place[0])} {place[1]}"].append(place)
    chosen: list[tuple[str, int]] = []
    for listed in kinds.values():
        last = len(listed) - 1
        chosen += [listed[i] for i in sorted({last * n // (_SAMPLES - 1) for n in range(_SAMPLES)})]
    return chosen


def _pieces(
    store: Store, module: LoraModule, name: str, base: Base, before: Store, after: Store
) -> Iterator[_Piece]:
    """Give what can be measured of a module: itself, or two experts of a fused parameter."""
    parts = (Part.EMBEDDING_A, Part.EMBEDDING_B) if module.embedding else (Part.A, Part.B)
    a, b = (store.floats(tensor_name(module.name, part, module.depth)) for part in parts)
    known = base.modules.get(module.name) or base.routers.get(module.name)
    if known is not None:
        turned = known.kind is not ModuleKind.LINEAR
        yield from _found(module.name, name, a, b, turned, before, after)
        return
    parameter = base.parameters.get(name)
    if parameter is None:
        return
    # As PEFT's ParamWrapper lays them out: A by expert and rank, B by rank and expert.
    a = a.reshape(parameter.experts, -1, a.shape[-1])
    b = b.reshape(b.shape[0], -1, parameter.experts)
    for expert in sorted({0, parameter.experts - 1}):
        whole = _weight(name, before, ""), _weight(name, after, "")
        if whole[0] is not None and whole[1] is not None:
            turned = parameter.transposed
            yield _Piece(name, a[expert], b[:, :, expert], whole[0], whole[1], turned, expert)
            continue
        for single, rows in _singles(parameter, expert, base):
            yield from _found(single, name, a[expert], b[rows, :, expert], False, before, after)


def _found(
    path: str, name: str, a: Floats, b: Floats, turned: bool, before: Store, after: Store
) -> Iterator[_Piece]:
    names = _weight(path, before), _weight(path, after)
    if names[0] is None or names[1] is None:
        return
    shapes = before.tensors[names[0]][1].shape, after.tensors[names[1]][1].shape
    if shapes[0] != shapes[1]:
        raise DoesNotHold(
            f"{printable(path)} has {list(shapes[1])} in {after.label} and {list(shapes[0])} in "
            "the base.",
            remedy="Name the base that it was merged into.",
        )
    yield _Piece(name, a, b, names[0], names[1], turned)


def _singles(parameter: ExpertParameter, expert: int, base: Base) -> Iterator[tuple[str, slice]]:
    """Give the modules on disk of one fused expert, with their rows: gate before up."""
    half = parameter.outputs // 2
    rows: dict[str, slice] = {}
    if parameter.name.endswith(".down_proj"):
        rows |= dict.fromkeys(("down_proj", "w2"), slice(None))
    else:
        rows |= dict.fromkeys(("gate_proj", "w1"), slice(0, half))
        rows |= dict.fromkeys(("up_proj", "w3"), slice(half, None))
    layer = layer_of(parameter.name)
    for name in base.modules:
        leaf = name.rpartition(".")[2]
        if leaf in rows and expert_of(name) == expert and layer_of(name) == layer:
            yield name, rows[leaf]


def _weight(path: str, store: Store, leaf: str = ".weight") -> str | None:
    """Find a weight in a checkpoint, whose names may begin otherwise."""
    return next((name for end in suffixes(path) if (name := f"{end}{leaf}") in store.tensors), None)


def _fit(piece: _Piece, before: Store, after: Store) -> _Fit | None:
    """Fit the difference D to s·B·A without forming B·A; None where that is zero.

    <D, BA> = <BᵀD, A>, and |BA|² = <BᵀB, AAᵀ>.
    """
    a, b = piece.a, piece.b
    norm = float(np.sum((b.T @ b) * (a @ a.T)))
    if norm <= 0:
        return None
    product = square = 0.0
    count = 0
    for first, difference in piece.differences(before, after):
        rows = slice(first, first + len(difference))
        if piece.turned:  # the difference is (some inputs, outputs)
            product += float(np.sum((difference @ b) * a[:, rows].T))
        else:
            product += float(np.sum((b[rows].T @ difference) * a))
        square += float(np.sum(difference * difference))
        count += difference.size
    scale = product / norm
    rest = max(square - scale * product, 0.0)
    error = math.sqrt(rest / max(count - 1, 1) / norm)
    cosine = product / math.sqrt(norm * square) if square else 0.0
    return _Fit(piece.module, scale, error, cosine)


def _demand_merged(fits: list[_Fit], unchanged: list[str], after: Store) -> None:
    if not fits and unchanged:
        raise DoesNotHold(
            f"{after.label} was not merged: its weights have the very bytes of the base's "
            f"({len(unchanged):,} compared).",
            remedy="Name the merged model; some mergers copy the base and say that they merged.",
        )
    if unchanged:
        raise DoesNotHold(
            f"{printable(unchanged[0])} is the same in the base and in {after.label}, although the "
            "adapter changes it: only some modules were merged.",
            remedy="Name a model that this adapter was merged into as a whole.",
        )
    if not fits:
        raise DoesNotHold(
            f"No module of the adapter has a weight in both the base and {after.label}, or every "
            "lora_B is zero: nothing can be measured.",
            remedy="Name the merged model and its base, or state alpha with --set.",
        )


def _proof(fits: list[_Fit], proof: Proof, after: Store) -> ScaleProof:
    """Average the scales of modules of one rank where they agree within their errors."""
    by_rank: dict[int, list[_Fit]] = defaultdict(list)
    for fit in fits:
        by_rank[proof.ranks[fit.module]].append(fit)
    scales: dict[str, float] = {}
    tolerance = 1e-9
    for group in by_rank.values():
        mean, error = _mean(group)
        agree = all(
            abs(fit.scale - mean) <= _SIGMAS * fit.error + 1e-5 * abs(mean) for fit in group
        )
        for fit in group:
            scales[fit.module] = mean if agree else fit.scale
            spread = error if agree else fit.error
            tolerance = max(tolerance, (_SIGMAS * spread) / abs(mean) + 1e-6)
    cosine = min(fit.cosine for fit in fits)
    measured = [fit.scale for fit in fits]
    modules = len({fit.module for fit in fits})
    return ScaleProof(
        scales,
        tolerance,
        f"{after.label} less the base is B·A times {_range(measured)} in {modules:,} modules, "
        f"cosine {cosine:.6f} at least",
    )


def _mean(group: list[_Fit]) -> tuple[float, float]:
    """Weigh by the inverse square of the errors; give the mean and its error."""
    weights = [1 / max(fit.error, 1e-9 * abs(fit.scale), 1e-300) ** 2 for fit in group]
    total = sum(weights)
    mean = sum(w * fit.scale for w, fit in zip(weights, group, strict=True)) / total
    return mean, math.sqrt(1 / total)


def _range(values: list[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:.6g}" if math.isclose(low, high, rel_tol=1e-6) else f"{low:.6g} to {high:.6g}"
