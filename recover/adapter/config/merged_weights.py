"""Prove the scale by a merged model and its base: W_merged - W_base is the scale times B·A.

Least squares of the difference on B·A gives the scale, and the cosine between both says whether
the difference is this adapter's at all. Imports numpy: import it where it is used.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ....errors import DoesNotHold, Unusable
from ....records.names import printable
from ...base.hf_cache import HUB_ID, cached
from ...base.model import Base, ExpertParameter, ModuleKind
from ...checkpoint import Checkpoint
from ...open_checkpoint import open_checkpoint
from ..keys import Part, tensor_name
from ..kinds import expert_of, layer_of
from ..patterns import suffixes
from ..structure import Adapter, LoraModule
from .floats import Floats, Store
from .measured_scale import ScaleProof
from .proof import Proof
from .scale_fit import Fit, joined, scale_of

_LEAST_COSINE = 0.99
_ROWS = 512


# Told after each module how many of how many are measured.
Progress: TypeAlias = Callable[[int, int], None]
# Where a single expert's module is on disk, by its layer, its last name and its number.
_Singles: TypeAlias = Mapping[tuple[str | None, str, int | None], str]


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
    progress: Progress | None = None,
) -> ScaleProof:
    """Measure the scale in every module, all experts included; a part that was not merged refutes.

    Reads both models as far as the adapter changes them, some rows at a time. Raises DoesNotHold
    where the models do not differ, or not by this adapter, Unusable where the base's weights are
    not at hand.
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
        stores = Store(checkpoint), Store(before), Store(after)
        return _measure(*stores, adapter, proof, base, progress)


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
    before: Store,
    after: Store,
    adapter: Adapter,
    proof: Proof,
    base: Base,
    progress: Progress | None,
) -> ScaleProof:
    fits: list[Fit] = []
    unchanged: list[str] = []
    silent: set[str] = set()
    singles = _single_experts(base)
    for number, (place, module) in enumerate(adapter.modules.items(), 1):
        name = proof.places[place]
        if name not in proof.ranks:
            continue  # the head of tied embeddings, whose LoRA is that of the embedding
        pieces = [*_pieces(adapter_store, module, name, base, singles, before, after)]
        parts: list[Fit] = []
        for piece in pieces:
            fit = _fit(piece, before, after) if piece is not None and piece.b.any() else None
            if fit is not None and fit.unchanged:
                unchanged.append(name)
            elif fit is not None:
                parts.append(fit)
        if parts and None not in pieces:
            fits.append(joined(name, parts))
        elif None not in pieces:
            silent.add(name)
        if progress is not None:
            progress(number, len(adapter.modules))
    _demand_merged(fits, unchanged, after)
    worst = min(fits, key=lambda fit: fit.cosine)
    if worst.cosine < _LEAST_COSINE:
        raise DoesNotHold(
            f"What {after.label} adds to the base is not this adapter, or is lost in rounding: in "
            f"{printable(worst.module)} the cosine is {worst.cosine:.4f}.",
            remedy="Name the merge of this very step, made on this base.",
        )
    return scale_of(fits, frozenset(silent), proof.ranks, after.label)


def _single_experts(base: Base) -> _Singles:
    found = (name for name in base.modules if expert_of(name) is not None)
    return {(layer_of(n), n.rpartition(".")[2], expert_of(n)): n for n in found}


def _pieces(
    store: Store,
    module: LoraModule,
    name: str,
    base: Base,
    singles: _Singles,
    before: Store,
    after: Store,
) -> Iterator[_Piece | None]:
    """Give what a module consists of: itself, or the experts of a fused parameter.

    None stands for a part whose weight is not in both models.
    """
    parts = (Part.EMBEDDING_A, Part.EMBEDDING_B) if module.embedding else (Part.A, Part.B)
    a, b = (store.floats(tensor_name(module.name, part, module.depth)) for part in parts)
    known = base.modules.get(module.name) or base.routers.get(module.name)
    if known is not None:
        turned = known.kind is not ModuleKind.LINEAR
        yield _found(module.name, name, a, b, turned, before, after)
        return
    parameter = base.parameters.get(name)
    if parameter is None:
        yield None
        return
    # As PEFT's ParamWrapper lays them out: A by expert and rank, B by rank and expert.
    a = a.reshape(parameter.experts, -1, a.shape[-1])
    b = b.reshape(b.shape[0], -1, parameter.experts)
    whole = _weight(name, before, ""), _weight(name, after, "")
    for expert in range(parameter.experts):
        if whole[0] is not None and whole[1] is not None:
            turned = parameter.transposed
            yield _Piece(name, a[expert], b[:, :, expert], whole[0], whole[1], turned, expert)
            continue
        for leaves, rows in _rows(parameter):
            paths = (singles.get((layer_of(name), leaf, expert)) for leaf in leaves)
            path = next((path for path in paths if path is not None), None)
            if path is None:
                yield None
            else:
                yield _found(path, name, a[expert], b[rows, :, expert], False, before, after)


def _found(
    path: str, name: str, a: Floats, b: Floats, turned: bool, before: Store, after: Store
) -> _Piece | None:
    names = _weight(path, before), _weight(path, after)
    if names[0] is None or names[1] is None:
        return None
    shapes = before.tensors[names[0]][1].shape, after.tensors[names[1]][1].shape
    if shapes[0] != shapes[1]:
        raise DoesNotHold(
            f"{printable(path)} has {list(shapes[1])} in {after.label} and {list(shapes[0])} in "
            "the base.",
            remedy="Name the base that it was merged into.",
        )
    return _Piece(name, a, b, names[0], names[1], turned)


def _rows(parameter: ExpertParameter) -> tuple[tuple[tuple[str, str], slice], ...]:
    """Give the names on disk of one fused expert's parts, with their rows: gate before up."""
    half = parameter.outputs // 2
    if parameter.name.endswith(".down_proj"):
        return ((("down_proj", "w2"), slice(None)),)
    gate, up = ("gate_proj", "w1"), ("up_proj", "w3")
    return (gate, slice(0, half)), (up, slice(half, None))


def _weight(path: str, store: Store, leaf: str = ".weight") -> str | None:
    """Find a weight in a checkpoint, whose names may begin otherwise."""
    return next((name for end in suffixes(path) if (name := f"{end}{leaf}") in store.tensors), None)


def _fit(piece: _Piece, before: Store, after: Store) -> Fit | None:
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
    return Fit(piece.module, scale, error, cosine, unchanged=not square)


def _demand_merged(fits: list[Fit], unchanged: list[str], after: Store) -> None:
    if unchanged and not fits:
        raise DoesNotHold(
            f"{after.label} was not merged: its weights are the base's ({len(unchanged):,} "
            "compared).",
            remedy="Name the merged model; some mergers copy the base and say that they merged.",
        )
    if unchanged:
        raise DoesNotHold(
            f"{printable(unchanged[0])} is the same in the base and in {after.label}, although the "
            "adapter changes it: only some modules were merged, or the change is lost in rounding.",
            remedy="Name a model that this adapter was merged into as a whole.",
        )
    if not fits:
        raise DoesNotHold(
            f"No module of the adapter has a weight in both the base and {after.label}, or every "
            "lora_B is zero: nothing can be measured.",
            remedy="Name the merged model and its base, or state alpha with --set.",
        )
