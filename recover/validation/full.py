"""Hold a full checkpoint against its base: names, shapes, dtypes, tied weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..adapter.expected.heads import CLASSIFIERS
from ..adapter.naming.prefixes import diagnose
from ..base.model import Base, ModuleKind
from ..formats.safetensors import Tensor
from ..formats.safetensors_errors import shown
from . import coverage
from .compare_names import Differences, differences
from .compared import Compared, renamed_tensors, said_of_names
from .dtypes import SCALES, model_dtypes
from .packed import is_extra, packed
from .result import Caution, Kind, Modules


@dataclass(frozen=True)
class FullComparison:
    """What a full checkpoint lacks, has too much, and has otherwise than its base."""

    required: Mapping[str, tuple[int, ...]]
    differences: Differences
    extras: tuple[str, ...]
    cautions: tuple[Caution, ...]
    modules: Modules
    not_checked: tuple[str, ...] = ()


def compare_full(found: Mapping[str, Tensor], base: Base) -> FullComparison:
    """Compare both ways; of two tied tensors one is enough."""
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
        (extras if is_extra(found, base, name) else unexpected).append(name)
    stored, missing = _packed(found, result.missing)
    casts = model_dtypes(found, base, frozenset(extras), stored, cautions)
    mismatched = tuple(m for m in result.mismatched if m.tensor not in stored)
    layers = packed(found, base)
    missing = tuple(dict.fromkeys((*missing, *layers.missing)))
    shapes |= {name: found[name].shape if name in found else () for name in layers.required}
    extras = [name for name in extras if name not in layers.required]
    bad = {*missing, *(m.tensor for m in mismatched)}
    if stored:
        text = f"{len(stored):,} weights are packed, so that their shapes are not the base's."
        cautions.append(Caution("quantised", text))
    return FullComparison(
        required=shapes,
        differences=Differences(missing, tuple(unexpected), (*mismatched, *casts)),
        extras=tuple(extras),
        cautions=tuple(cautions),
        modules=_modules(base, shapes, bad),
        not_checked=layers.not_checked,
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
        f"The embeddings have {count:,} rows and those of {shown(base.label)} {known:,}: the "
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
        if tensor.dtype in ("U8", "I8", "I32") and any(f"{name}{end}" in found for end in SCALES):
            packed.add(name)
    return frozenset(packed), tuple(left)


def compare_model(found: Mapping[str, Tensor], base: Base | None, configured: bool) -> Compared:
    """Hold a full checkpoint against its base."""
    if not found:
        kind = Kind.ADAPTER if configured else Kind.UNKNOWN
        return Compared(kind, base, {}, Differences(), counted=Modules(0, 0))
    if base is None:
        return Compared(Kind.FULL, None, {}, Differences(), counted=Modules(0, 0))
    spelled = _spelled(found, base)
    heads = _classifier(found, base)
    diagnosis = diagnose([spelled.get(name, name) for name in found if name not in heads], base)
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
        cautions=(*said_of_names(diagnosis), *_said_of_head(heads), *compared.cautions),
        not_checked=compared.not_checked,
    )


def _classifier(found: Mapping[str, Tensor], base: Base) -> tuple[str, ...]:
    """Name the tensors of a classifier that the base does not have."""
    return tuple(
        name for name in found if name.partition(".")[0] in CLASSIFIERS and name not in base.tensors
    )


def _said_of_head(heads: tuple[str, ...]) -> tuple[Caution, ...]:
    if not heads:
        return ()
    text = (
        f"`{shown(heads[0])}` is the head of a classifier, which the base's config.json does not "
        "have: give the config.json of the classifier as --base."
    )
    return (Caution("other-head", text),)


def _spelled(found: Mapping[str, Tensor], base: Base) -> dict[str, str]:
    """Map the names that loaders accept as well to those that the base has."""
    from ..base.spellings import expected_name

    spelled = {
        name: known
        for name in found
        if name not in base.tensors and (known := expected_name(base, name)) is not None
    }
    return {name: known for name, known in spelled.items() if known not in found}
