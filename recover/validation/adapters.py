"""What names, shapes and dtypes say: an adapter held against its base, or a full checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from ..adapter.config.faults import Found, config_faults, faults_of_base
from ..adapter.expected.bare import bare, trained_bare
from ..adapter.expected.by_closure import expected_by_closure
from ..adapter.expected.by_config import expected_by_config
from ..adapter.expected.expectation import Expectation
from ..adapter.expected.whole import resized_rows
from ..adapter.expected.wrappers import expert_modules
from ..adapter.keys import PREFIX
from ..adapter.naming.foreign import Foreign, recognise
from ..adapter.naming.methods import Method, method_of
from ..adapter.naming.prefixes import Diagnosis, diagnose
from ..adapter.structure import Adapter, read_adapter
from ..base.model import Base
from ..formats.safetensors import Tensor
from ..formats.safetensors_errors import shown
from . import coverage
from .compare_names import Differences, differences
from .compared import Compared, renamed_tensors, said_of_names
from .dtypes import adapter_dtypes
from .explain import explain
from .result import (
    Caution,
    Kind,
    Modules,
)
from .said import Overlaid

_MARK = ".lora_"


def is_adapter(names: Sequence[str], metadata: Mapping[str, str] = MappingProxyType({})) -> bool:
    """Tell by the names alone whether tensors are an adapter's, whoever wrote it."""
    return (
        any(_MARK in name or name.startswith(PREFIX) for name in names)
        or recognise(names, metadata) is not None
        or method_of(names) is not None
    )


def compare_adapter(
    found: Mapping[str, Tensor],
    metadata: Mapping[str, str],
    base: Base | None,
    overlaid: Overlaid,
) -> Compared | None:
    """Hold an adapter against what its configuration or its own structure promises.

    None for what is no adapter: no name is one's, and no adapter_config.json lies beside it.
    Raises Unusable for unusable patterns of the configuration.
    """
    names = list(found)
    if not (overlaid.document or is_adapter(names, metadata)):
        return None
    foreign = recognise(names, metadata)
    method = method_of(names)
    if foreign is not None:
        return _foreign(foreign, base, method)
    if method is not None and not method.is_lora:
        return _other_method(method, base)
    diagnosis, base, without_head = _diagnosed(names, base, overlaid)
    tensors = renamed_tensors(found, diagnosis.renamed)
    adapter = read_adapter(tensors.values())
    faults = tuple(one.fault for one in faults_of(adapter, base, overlaid))
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
        cautions=(*said_of_names(diagnosis), *without_head),
    )
    if base is None:
        whole = {place: module.whole for place, module in adapter.modules.items()}
        counted = Modules(len(whole), sum(whole.values()))
        odd = Differences(mismatched=tuple(adapter_dtypes(adapter)))
        return replace(common, differences=odd, counted=counted)
    return _against(common, adapter, base, overlaid)


def faults_of(adapter: Adapter, base: Base | None, overlaid: Overlaid) -> tuple[Found, ...]:
    """Give what is wrong with the configuration by itself, and on this base."""
    config, said = overlaid.config, overlaid.said
    if config is None or (not config and not overlaid.document):
        return ()
    readable = overlaid.readable
    found = config_faults(config, document=readable, replaced=said.replaced)
    if base is None or not readable or any(one.fatal for one in found):
        return found
    rows = said.rows or resized_rows(adapter, base)
    return (*found, *faults_of_base(config, base, rows=rows, replaced=said.replaced))


def _diagnosed(
    names: Sequence[str], base: Base | None, overlaid: Overlaid
) -> tuple[Diagnosis, Base | None, tuple[Caution, ...]]:
    """Hold the names against the base, or against the model below its head where they fit that."""
    without = bare(base) if base is not None else None
    if base is None or without is None:
        return diagnose(names, base), base, ()
    said = trained_bare(overlaid.config)
    first, second = (without, base) if said else (base, without)
    diagnosis = diagnose(names, first)
    if said is False or not diagnosis.renames:
        return diagnosis, first, ()
    other = diagnose(names, second)
    if len(other.renames) >= len(diagnosis.renames):
        return diagnosis, first, ()
    model = "the model with its head, and task_type says that it had none"
    text = f"The names fit {model}." if said else (
        "The names fit the bare model, as AutoModel builds it, and not the one with a head: load "
        "the adapter onto that."
    )  # fmt: skip
    return other, second, (Caution("bare-model", text),)


def _against(common: Compared, adapter: Adapter, base: Base, overlaid: Overlaid) -> Compared:
    expectation = _expectation(adapter, base, overlaid)
    result = differences(
        adapter.tensors, expectation.tensors, expectation.optional, only_floats=True
    )
    result = replace(result, mismatched=(*result.mismatched, *adapter_dtypes(adapter)))
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
    if any(one.fatal for one in faults_of(adapter, base, overlaid)):
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
