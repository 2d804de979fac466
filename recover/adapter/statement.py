"""What somebody states about an adapter, and how well it is known."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import cast

from ...records.strict_json import Json


class Source(str, Enum):
    """How a field of a rebuilt configuration is known, best first."""

    PROVEN = "proven"
    STATED = "stated"
    DEFAULT = "default"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Statement:
    """One value of one field; `origin` says where it stands, fit to print: `serve.yaml:12: key`.

    `field` is a name of PEFT's LoraConfig, or one of TRAINER_FIELDS. `local` says of a base model
    that it is a path, also where it reads like `owner/name`: it exists near its recipe.
    """

    field: str
    value: Json
    source: Source
    origin: str
    local: bool = False


# What recipes say beyond LoraConfig that decides how tensors are read.
TRAINER_FIELDS: Mapping[str, str] = MappingProxyType(
    {
        "normalize_moe_lora": "Megatron-Bridge divides the rank of experts by the routed number",
        "share_expert_adapters": "Megatron-Bridge keeps one adapter for all experts of a layer",
        "converted_initialisation": "the saved adapter has twice the rank (PiSSA, OLoRA, ...)",
        "learning_rate": "the largest learning rate of the schedule",
        "step": "the number of optimiser steps done",
        "optimizer": "the optimiser's name",
        "tokenizer_size": "the number of rows after a vocabulary resize",
    }
)


# Lists whose order PEFT does not keep.
_SETS = frozenset("target_modules target_parameters exclude_modules modules_to_save".split())


def agree(field: str, one: object, other: object) -> bool:
    """Tell whether two values of a field mean the same: 32 and 32.0 do, true and 1 do not."""
    return _canonical(field, one) == _canonical(field, other)


def _canonical(field: str, value: object) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        value = int(value)
    if field in _SETS and isinstance(value, list):
        value = sorted(json.dumps(item, default=str) for item in cast("list[object]", value))
    return json.dumps(value, sort_keys=True, default=str)


@dataclass(frozen=True)
class Recipe:
    """All that one document states; `trainer` and `version` say whose defaults are used.

    Several statements of one field contradict each other and are all kept.
    """

    label: str
    trainer: str
    version: str | None
    statements: tuple[Statement, ...]
    notes: tuple[str, ...] = field(default=())

    def of(self, name: str) -> tuple[Statement, ...]:
        """Give what it states of one field."""
        return tuple(s for s in self.statements if s.field == name)
