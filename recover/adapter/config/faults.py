"""What makes an adapter_config.json load another adapter than was trained, or none at all."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple, cast

from ....records.names import printable
from ....records.strict_json import Json
from ...base.model import Base
from ...validation.result import ConfigFault
from .refusals import Refusal, refusals, refusals_of_base
from .schema import FIELDS

_METHOD = "LORA"
_LONGEST = 60
# Fields that decide which tensors PEFT makes; without them nothing can be derived.
_DECISIVE = (
    "r rank_pattern target_modules target_parameters exclude_modules bias modules_to_save "
    "layers_to_transform layer_replication trainable_token_indices use_dora lora_bias "
    "ensure_weight_tying"
).split()
_SCALING = ("lora_alpha", "alpha_pattern", "use_rslora")
# Without one of these nothing can be derived either, though they fit in form.
_FATAL_REFUSALS = ("layer_replication", "layers_to_transform", "layers_pattern", "target_modules")
_UNSTATED = {
    "r": "r is not there, and PEFT takes 8.",
    "lora_alpha": "lora_alpha is not there: PEFT takes 8 in silence, and scales by 8 / r.",
}


class Found(NamedTuple):
    """A fault; a fatal one leaves nothing to derive tensors from."""

    fault: ConfigFault
    fatal: bool = False


def config_faults(
    config: Mapping[str, object], *, document: bool, replaced: Collection[str] = ()
) -> tuple[Found, ...]:
    """Judge the fields that decide what PEFT loads; measured with peft 0.21.2.

    A field that a document lacks takes a default in silence, which hardly ever is what was trained
    with; of what is only stated, nothing need be complete. `replaced` are fields of the document
    that a statement stands in for, which PEFT never reads.
    """
    method = config.get("peft_type")
    if method is None and ("model_type" in config or "architectures" in config):
        text = "This is the config.json of a model, not of an adapter, and PEFT refuses it."
        return (Found(ConfigFault("peft_type", text), fatal=True),)
    found: list[Found] = []
    if method != _METHOD and (document or method is not None):
        text = (
            "peft_type is not there: PEFT raises KeyError."
            if method is None and "peft_type" not in config
            else f"peft_type is {_shown(method)}, and not LORA."
        )
        found.append(Found(ConfigFault("peft_type", text), fatal=True))
    for name in (*_DECISIVE, *_SCALING):
        if name not in config:
            if document and name in _UNSTATED:
                fault = ConfigFault(name, _UNSTATED[name])
                found.append(Found(fault, fatal=name in _DECISIVE))
        elif not _fits(name, config[name]):
            text = f"{name} is {_shown(config[name])}, and must be {FIELDS[name].shape.words}."
            found.append(Found(ConfigFault(name, text), fatal=name in _DECISIVE))
    if document:
        if config.get("target_modules") is None and not config.get("target_parameters"):
            text = (
                "target_modules is not there: PEFT falls back to few modules by the architecture, "
                "and drops the tensors of all others in silence."
            )
            found.append(Found(ConfigFault("target_modules", text), fatal=True))
        judged = {one.fault.field for one in found} | set(replaced)
        found += (_refused(one) for one in refusals(config) if one.field not in judged)
    return tuple(found)


def faults_of_base(
    config: Mapping[str, object],
    base: Base,
    *,
    rows: int | None = None,
    replaced: Collection[str] = (),
) -> tuple[Found, ...]:
    """Judge what PEFT refuses of a document on this base; it must be free of fatal faults.

    `rows` is the size of a resized vocabulary.
    """
    refused = refusals_of_base(config, base, rows)
    return tuple(_refused(one) for one in refused if one.field not in replaced)


def _refused(refusal: Refusal) -> Found:
    fault = ConfigFault(refusal.field, refusal.message)
    return Found(fault, fatal=refusal.field in _FATAL_REFUSALS)


def _fits(name: str, value: object) -> bool:
    if value is None and FIELDS[name].neutral == {}:
        return True
    return FIELDS[name].shape.fits(cast("Json", value))


def _shown(value: object) -> str:
    return f"`{printable(str(value)[:_LONGEST])}`"
