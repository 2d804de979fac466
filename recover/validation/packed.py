"""Hold the weights of a quantised checkpoint layer against layer, where no base says their form.

A quantiser puts tensors of its own beside a weight or in its place. Which ones, config.json does
not say; but every layer has those that most layers have, and none is there without its weight.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ..adapter.kinds import in_order, kind_of_module
from ..base.extras import is_known_extra
from ..base.model import Base, Module, ModuleKind
from ..base.spellings import on_disk
from ..formats.safetensors import Tensor

_PLAIN = ("F64", "F32", "F16", "BF16")
_WEIGHTS = ("qweight", "weight_packed", "weight")
_WEIGHT = ".weight"


class Packed(NamedTuple):
    """The tensors of packed weights that must be there, those that are not, and what is unknown."""

    required: frozenset[str]
    missing: tuple[str, ...]
    not_checked: tuple[str, ...] = ()


class _Held(NamedTuple):
    """A module on disk and the leaves that the file has of it, as far as no base expects them."""

    stem: str
    kind: str
    form: str | None  # the dtype of the weight; None without one
    leaves: frozenset[str]
    plain: bool


def is_quantised(base: Base) -> bool:
    """Tell whether the base says of itself that its weights are quantised."""
    return bool((base.config or {}).get("quantization_config"))


def is_extra(found: Mapping[str, Tensor], base: Base, name: str) -> bool:
    """Tell whether a tensor may be there although nothing expects it.

    What a quantiser adds may be there only in a quantised model, or beside a packed weight.
    """
    reason = is_known_extra(base, name)
    if reason is None:
        return False
    if not reason.startswith("quantis") or is_quantised(base):
        return True
    stem, _ = _split(name)
    holders = (stem, f"{stem}.k_proj")  # the scale of a cache belongs to all of an attention
    forms = (found.get(f"{holder}.{leaf}") for holder in holders for leaf in _WEIGHTS)
    return any(tensor is not None and tensor.dtype not in _PLAIN for tensor in forms)


def packed(found: Mapping[str, Tensor], base: Base) -> Packed:
    """Derive from most layers what every layer must have of its packed weights."""
    held = _held(found, base)
    if not is_quantised(base) and all(one.plain or not one.leaves for one in held):
        return Packed(frozenset(), ())
    everywhere = _usual(one for one in held if _is_packed(one))
    by_kind: dict[str, list[_Held]] = {}
    for one in held:
        by_kind.setdefault(one.kind, []).append(one)
    required: set[str] = set()
    missing: list[str] = []
    unknown: list[str] = []
    for kind, members in by_kind.items():
        usual = _usual(one for one in members if _is_packed(one))
        sizes = Counter(one.form for one in members if _is_packed(one))
        for one in members:
            wanted = _wanted(one, usual, sizes, everywhere)
            if wanted is None:
                if _is_former(one, base):
                    unknown.append(kind)
                elif not _is_expected(one, base):
                    missing.append(one.stem + _WEIGHT)
                continue
            names = {f"{one.stem}.{leaf}" for leaf in wanted}
            required |= names
            missing += names - found.keys()
    required.update(missing)
    notes: list[str] = []
    count = sum(_is_packed(one) and not _is_expected(one, base) for one in held)
    if count:
        notes.append(
            f"Shapes of {count:,} packed weights: config.json does not say how they are stored, so "
            "they are held layer against layer."
        )
    if unknown:
        notes.append(f"{len(set(unknown)):,} kinds of modules that may be stored otherwise.")
    return Packed(frozenset(required), tuple(sorted(missing, key=in_order)), tuple(notes))


def _held(found: Mapping[str, Tensor], base: Base) -> list[_Held]:
    leaves: dict[str, set[str]] = {}
    for name in found:
        if name not in base.tensors and name not in base.tied:
            stem, leaf = _split(name)
            leaves.setdefault(stem, set()).add(leaf)
    held: list[_Held] = []
    for module in base.modules.values():
        stem = on_disk(base, module.name)
        own = frozenset(leaves.get(stem, ()))
        if module.kind is ModuleKind.EMBEDDING and not own:
            continue
        weight = next((found[n] for leaf in _WEIGHTS if (n := f"{stem}.{leaf}") in found), None)
        plain = weight is not None and weight.dtype in _PLAIN and _is_whole(weight, module)
        held.append(_Held(stem, kind_of_module(stem), weight.dtype if weight else None, own, plain))
    return held


def _split(name: str) -> tuple[str, str]:
    """Take a name apart into its module and the leaf, which may have a dot of its own."""
    place = name.rfind(_WEIGHT)
    if place >= 0:
        return name[:place], name[place + 1 :]
    stem, _, leaf = name.rpartition(".")
    return stem, leaf


def _is_whole(weight: Tensor, module: Module) -> bool:
    conv = module.kind is not ModuleKind.LINEAR
    shape = (module.inputs, module.outputs) if conv else (module.outputs, module.inputs)
    return weight.shape == shape


def _is_packed(one: _Held) -> bool:
    return bool(one.leaves) and not one.plain


def _usual(members: Iterable[_Held]) -> dict[str | None, frozenset[str]]:
    """Give by the form of the weight the leaves that most members have; None for all forms."""
    counts: dict[str | None, Counter[str]] = {}
    sizes: Counter[str | None] = Counter()
    for one in members:
        for form in {one.form, None}:
            counts.setdefault(form, Counter()).update(one.leaves)
            sizes[form] += 1
    return {
        form: frozenset(leaf for leaf, count in each.items() if 2 * count > sizes[form])
        for form, each in counts.items()
    }


def _wanted(
    one: _Held,
    usual: Mapping[str | None, frozenset[str]],
    sizes: Mapping[str | None, int],
    everywhere: Mapping[str | None, frozenset[str]],
) -> frozenset[str] | None:
    """Give the leaves that a module must have; None where only its weight is certain."""
    if one.plain:
        return one.leaves & {"weight"}
    if one.form is None and not one.leaves:
        return usual.get(None)
    if sizes.get(one.form, 0) < 2:
        # A weight that its kind has once, as a head, is held against all weights of its form.
        most = everywhere.get(one.form, frozenset())
        return most if one.leaves <= most else one.leaves
    return usual[one.form] if one.form in usual else usual.get(None)


def _is_expected(one: _Held, base: Base) -> bool:
    """Tell whether the base itself says of a weight what it must be."""
    name = one.stem + _WEIGHT
    return name in base.tied or name in base.tensors


def _is_former(one: _Held, base: Base) -> bool:
    """Tell whether a module may be stored under another name: as a part of fused experts."""
    module = base.modules.get(one.stem)
    return module is not None and module.former and not _is_expected(one, base)
