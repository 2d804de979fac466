"""What names, shapes and dtypes say: an adapter held against its base, or a full checkpoint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from ...records.names import printable
from ..adapter.config.faults import config_faults
from ..adapter.expected.by_closure import expected_by_closure
from ..adapter.expected.by_config import expected_by_config
from ..adapter.expected.expectation import Expectation
from ..adapter.expected.wrappers import expert_modules
from ..adapter.keys import PREFIX, Part
from ..adapter.kinds import kind_of_module
from ..adapter.naming.foreign import Foreign, recognise
from ..adapter.naming.methods import Method, method_of
from ..adapter.naming.prefixes import diagnose
from ..adapter.structure import Adapter, read_adapter
from ..base.model import Base
from ..formats.safetensors import Tensor
from ..formats.safetensors_errors import shown
from . import coverage
from .compare_names import Differences, differences
from .compared import Compared, renamed_tensors, said_of_names
from .explain import explain
from .result import (
    Caution,
    Kind,
    Modules,
)
from .said import Overlaid

_MARK = ".lora_"


def compare_adapter(
    found: Mapping[str, Tensor],
    metadata: Mapping[str, str],
    base: Base | None,
    overlaid: Overlaid,
) -> Compared | None:
    """Hold an adapter against what its configuration or its own structure promises.

    None for what is no adapter. Raises Unusable for unusable patterns of the configuration.
    """
    names = list(found)
    foreign = recognise(names, metadata)
    method = method_of(names)
    marked = any(_MARK in name for name in names) or any(n.startswith(PREFIX) for n in names)
    if not (marked or foreign or method or overlaid.config is not None):
        return None
    if foreign is not None:
        return _foreign(foreign, base, method)
    if method is not None and not method.is_lora:
        return _other_method(method, base)
    diagnosis = diagnose(names, base)
    tensors = renamed_tensors(found, diagnosis.renamed)
    adapter = read_adapter(tensors.values())
    faults = (
        tuple(f.fault for f in config_faults(overlaid.config, document=overlaid.document))
        if overlaid.config is not None
        else ()
    )
    common = Compared(
        kind=Kind.ADAPTER,
        base=base,
        required={},
        differences=Differences(),
        adapter=adapter,
        renames=diagnosis.renames,
        renamed=diagnosis.renamed,
        method=method.name if method else None,
        ranks=tuple(sorted(adapter.ranks)),
        faults=faults,
        cautions=(*said_of_names(diagnosis), *_mixed_dtypes(adapter)),
    )
    if base is None:
        whole = {place: module.whole for place, module in adapter.modules.items()}
        counted = Modules(len(whole), sum(whole.values()))
        return replace(common, counted=counted, extras=())
    return _against(common, adapter, base, overlaid)


def _against(common: Compared, adapter: Adapter, base: Base, overlaid: Overlaid) -> Compared:
    expectation = _expectation(adapter, base, overlaid)
    result = differences(
        adapter.tensors, expectation.tensors, expectation.optional, only_floats=True
    )
    bad = {*result.missing, *result.misshapen}
    cautions = [*common.cautions, *expectation.cautions]
    if base.config is None and (result.unexpected or result.mismatched):
        text = (
            "The base has no config.json: fused experts, tied heads and the order of wrappers are "
            "known only with it. Put it beside the base's weights and repeat this."
        )
        cautions.append(Caution("base-without-config", text))
    held = {module: parameters[0].experts for module, parameters in expert_modules(base).items()}
    not_checked: tuple[str, ...] = ()
    if expectation.inferred:
        not_checked = (
            "Modules that no layer has: no adapter_config.json, recipe or --set says what was "
            "targeted.",
        )
    return replace(
        common,
        required=expectation.tensors,
        differences=result,
        ranks=_ranks(adapter, held),
        expected_modules=expectation.modules,
        layers=coverage.layers(expectation.tensors, result.missing),
        experts=(
            *coverage.experts(expectation.tensors, bad),
            *coverage.fused_experts(expectation.modules, held, adapter.tensors),
        ),
        faults=(
            *common.faults,
            *explain(adapter, base, overlaid, expectation, result.unexpected),
        ),
        cautions=tuple(cautions),
        not_checked=not_checked,
    )


def _ranks(adapter: Adapter, experts: Mapping[str, int]) -> tuple[int, ...]:
    """Give the ranks that occur: of fused experts that of each, not of all of them together."""
    return tuple(
        sorted(
            {
                module.first // count if module.first % count == 0 else module.first
                for (name, _), module in adapter.modules.items()
                if module.first is not None
                for count in (experts.get(name, 1),)
            }
        )
    )


def _expectation(adapter: Adapter, base: Base, overlaid: Overlaid) -> Expectation:
    config = overlaid.config
    targets = config is not None and (config.get("target_modules") or
                                      config.get("target_parameters"))  # fmt: skip
    if config is None or not targets:
        return expected_by_closure(adapter, base)
    if any(f.fatal for f in config_faults(config, document=overlaid.document)):
        return expected_by_closure(adapter, base)
    if "r" not in config:
        usual = max(adapter.ranks, key=adapter.ranks.__getitem__, default=8)
        config = {**config, "r": usual}
    return expected_by_config(adapter, base, config, overlaid.said)


def _foreign(foreign: Foreign, base: Base | None, method: Method | None) -> Compared:
    text = (
        f"The names are those of {foreign.producer}, such as `{shown(foreign.evidence)}`, and PEFT "
        f"does not read them: {foreign.trap}. {foreign.remedy}"
    )
    return Compared(
        kind=Kind.ADAPTER,
        base=base,
        required={},
        differences=Differences(),
        counted=Modules(0, 0),
        naming=foreign.producer,
        method=method.name if method else None,
        cautions=(Caution("foreign-naming", text),),
        not_checked=("Names, shapes and coverage: the naming is not PEFT's.",),
    )


def _other_method(method: Method, base: Base | None) -> Compared:
    text = (
        f"This is an adapter of the method {method.name}, by `{shown(method.evidence)}`: what it "
        "must consist of is known for LORA only."
    )
    return Compared(
        kind=Kind.ADAPTER,
        base=base,
        required={},
        differences=Differences(),
        counted=Modules(0, 0),
        method=method.name,
        cautions=(Caution("other-method", text),),
        not_checked=(f"Names, shapes and coverage: nothing is known of {method.name}.",),
    )


def _mixed_dtypes(adapter: Adapter) -> list[Caution]:
    """Find kinds of matrices that have more than one dtype, as merging saves of two runs would."""
    if len(adapter.dtypes) < 2:
        return []
    kinds: dict[tuple[str, Part, int], Counter[str]] = {}
    for name, key in adapter.keys.items():
        if key.part.is_lora:
            kind = (kind_of_module(key.module), key.part, key.depth)
            kinds.setdefault(kind, Counter())[adapter.tensors[name].dtype] += 1
    mixed = [(kind, counted) for kind, counted in kinds.items() if len(counted) > 1]
    if not mixed:
        return []
    (module, part, _), counted = mixed[0]
    listed = ", ".join(f"{count:,} {dtype}" for dtype, count in counted.most_common())
    example = f"{printable(module)}.{part.value}"
    text = f"{len(mixed):,} kinds have mixed dtypes, such as {example}: {listed}."
    return [Caution("mixed-dtypes", text)]
