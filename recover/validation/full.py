"""Hold a full checkpoint against its base: names, shapes, dtypes, tied weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from ...records.names import printable
from ..adapter.kinds import kind_of_module
from ..adapter.naming.prefixes import diagnose
from ..base.model import Base, ModuleKind
from ..formats.safetensors import Tensor
from . import coverage
from .compare_names import FLOATS, Differences, differences
from .compared import Compared, renamed_tensors, said_of_names
from .result import Caution, Kind, Mismatch, Modules


@dataclass(frozen=True)
class FullComparison:
    """What a full checkpoint lacks, has too much, and has otherwise than its base."""

    required: Mapping[str, tuple[int, ...]]
    differences: Differences
    extras: tuple[str, ...]
    cautions: tuple[Caution, ...]
    modules: Modules


def compare_full(found: Mapping[str, Tensor], base: Base) -> FullComparison:
    """Compare both ways; of two tied tensors one is enough."""
    from ..base.extras import is_known_extra

    cautions: list[Caution] = []
    shapes = {name: tensor.shape for name, tensor in base.tensors.items()}
    shapes = _resized(found, base, shapes, cautions)
    tied = {name: shapes.pop(name, shapes.get(other)) for name, other in base.tied.items()}
    optional: dict[str, tuple[int, ...] | None] = dict(tied)
    for name, other in base.tied.items():
        if name in found and other not in found and other in shapes:
            optional[other] = shapes.pop(other)
            shapes[name] = optional.pop(name) or found[name].shape
    result = differences(found, shapes, optional, unsized=base.unsized)
    extras: list[str] = []
    unexpected: list[str] = []
    for name in result.unexpected:
        (extras if is_known_extra(base, name) else unexpected).append(name)
    packed, missing = _packed(found, result.missing)
    casts = _dtypes(found, base, frozenset(extras), cautions)
    mismatched = tuple(m for m in result.mismatched if m.tensor not in packed)
    bad = {*missing, *(m.tensor for m in mismatched)}
    if packed:
        text = f"{len(packed):,} weights are packed, so that their shapes are not the base's."
        cautions.append(Caution("quantised", text))
    return FullComparison(
        required=shapes,
        differences=Differences(missing, tuple(unexpected), (*mismatched, *casts)),
        extras=tuple(extras),
        cautions=tuple(cautions),
        modules=_modules(base, shapes, bad),
    )


def _modules(base: Base, required: Mapping[str, object], bad: set[str]) -> Modules:
    """Count the base's weights that are there, by module."""
    names = {name for name in required if name.endswith("weight")}
    return Modules(len(names), len(names - bad))


def _resized(
    found: Mapping[str, Tensor],
    base: Base,
    shapes: dict[str, tuple[int, ...]],
    cautions: list[Caution],
) -> dict[str, tuple[int, ...]]:
    """Accept another size of the vocabulary where all embeddings agree on it."""
    embedding = base.modules.get(base.input_embedding or "")
    if embedding is None or embedding.kind is not ModuleKind.EMBEDDING:
        return shapes
    places = {
        name
        for name in shapes
        for module in (base.input_embedding, base.output_embedding)
        if module and module.endswith(name.removesuffix(".weight"))
    }
    rows = {found[n].shape[0] for n in places if n in found and len(found[n].shape) == 2}
    widths = {found[n].shape[1] for n in places if n in found and len(found[n].shape) == 2}
    known = embedding.inputs
    if len(rows) != 1 or rows == {known} or widths != {embedding.outputs}:
        return shapes
    (count,) = rows
    text = (
        f"The embeddings have {count:,} rows and those of {printable(base.label)} {known:,}: the "
        "vocabulary was resized, or vocab_size is that of another tokenizer."
    )
    cautions.append(Caution("resized-vocabulary", text))
    return {**shapes, **{name: (count, *shapes[name][1:]) for name in places}}


def _packed(
    found: Mapping[str, Tensor], missing: tuple[str, ...]
) -> tuple[frozenset[str], tuple[str, ...]]:
    """Tell weights that a quantiser stores in another shape, or under names beside the weight's."""
    packed: set[str] = set()
    left: list[str] = []
    for name in missing:
        stem = name.removesuffix(".weight")
        if any(f"{stem}.{leaf}" in found for leaf in ("qweight", "weight_packed")):
            packed.add(name)
        elif f"{name}_blocks" in found or f"{name}_packed" in found:
            packed.add(name)
        else:
            left.append(name)
    for name, tensor in found.items():
        if tensor.dtype in ("U8", "I8", "I32") and any(f"{name}{end}" in found for end in _ENDS):
            packed.add(name)
    return frozenset(packed), tuple(left)


_ENDS = (".absmax", "_scale", "_scale_inv", ".quant_map", "_scale_2")


def _dtypes(
    found: Mapping[str, Tensor], base: Base, extras: frozenset[str], cautions: list[Caution]
) -> list[Mismatch]:
    """Judge dtypes other than the base's: lawful for whole kinds, a mismatch for single tensors."""
    judged = {
        name: tensor.dtype
        for name, tensor in found.items()
        if name in base.tensors and base.tensors[name].dtype is not None and name not in extras
    }
    others = {name: new for name, new in judged.items() if new != base.tensors[name].dtype}
    if not others:
        return []
    sizes = Counter((kind_of_module(name), base.tensors[name].dtype) for name in judged)
    changed: dict[tuple[str, str], dict[str, list[str]]] = {}
    for name, after in others.items():
        group = changed.setdefault((str(base.tensors[name].dtype), after), {})
        group.setdefault(kind_of_module(name), []).append(name)
    mismatched: list[Mismatch] = []
    for (before, after), kinds in changed.items():
        whole = 0
        for kind, names in kinds.items():
            cast = len(names) == sizes[kind, before] and after in FLOATS
            if cast or _are_scaled(names, found):
                whole += len(names)
            else:
                mismatched += (Mismatch(name, "dtype", before, after) for name in names)
        if whole:
            text = f"{whole:,} tensors are {after} and those of the base {before}: a cast."
            cautions.append(Caution("cast", text))
    return mismatched


def _are_scaled(names: list[str], found: Mapping[str, Tensor]) -> bool:
    return all(any(f"{name}{end}" in found for end in _ENDS) for name in names)


def compare_model(found: Mapping[str, Tensor], base: Base | None, configured: bool) -> Compared:
    """Hold a full checkpoint against its base."""
    if not found:
        kind = Kind.ADAPTER if configured else Kind.UNKNOWN
        return Compared(kind, base, {}, Differences(), counted=Modules(0, 0))
    if base is None:
        return Compared(Kind.FULL, None, {}, Differences(), counted=Modules(0, 0))
    spelled = _spelled(found, base)
    diagnosis = diagnose([spelled.get(name, name) for name in found], base)
    renamed = dict(spelled)
    for name in found:
        new = diagnosis.new_name(spelled.get(name, name))
        if new != name:
            renamed[name] = new
    tensors = renamed_tensors(found, renamed)
    compared = compare_full(tensors, base)
    bad = {*compared.differences.missing, *compared.differences.misshapen}
    return Compared(
        kind=Kind.FULL,
        base=base,
        required=compared.required,
        differences=compared.differences,
        counted=compared.modules,
        extras=compared.extras,
        layers=coverage.layers(compared.required, compared.differences.missing),
        experts=coverage.experts(compared.required, bad),
        renames=diagnosis.renames,
        renamed=renamed,
        cautions=(*said_of_names(diagnosis), *compared.cautions),
    )


def _spelled(found: Mapping[str, Tensor], base: Base) -> dict[str, str]:
    """Map the names that loaders accept as well to those that the base has."""
    from ..base.spellings import expected_name

    spelled = {
        name: known
        for name in found
        if name not in base.tensors and (known := expected_name(base, name)) is not None
    }
    return {name: known for name, known in spelled.items() if known not in found}
