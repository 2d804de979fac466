"""Lay what recipes and the command line state over the configuration that was found."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...records.names import printable
from ...records.strict_json import Json
from ..adapter.expected.by_config import Said
from ..adapter.statement import TRAINER_FIELDS, Recipe, Source, Statement, agree
from .result import Caution, ConfigFault


@dataclass(frozen=True)
class Overlaid:
    """The configuration as it is said to be; None where nothing says anything.

    `document` tells whether there is an adapter_config.json, and `readable` whether it is at the
    bottom of `config`, so that a field that it lacks is a fault. `trainer` holds the fields of
    TRAINER_FIELDS.
    """

    config: Mapping[str, object] | None
    document: bool
    said: Said
    trainer: Mapping[str, Json]
    faults: tuple[ConfigFault, ...] = ()
    cautions: tuple[Caution, ...] = ()
    readable: bool = False


def overlay(
    config: Mapping[str, object] | None, recipes: Sequence[Recipe], stated: Sequence[Statement]
) -> Overlaid:
    """Let the command line win over recipes, these over the configuration, and defaults fill gaps.

    Recipes that contradict one another are a fault; one that contradicts the configuration is a
    caution, since the tensors decide between them.
    """
    result: dict[str, object] = dict(config or {})
    trainer: dict[str, Json] = {}
    faults: list[ConfigFault] = []
    cautions: list[Caution] = []
    replaced: set[str] = set()
    chosen: dict[str, Statement] = {}
    defaults: dict[str, Statement] = {}
    for statement in (s for recipe in recipes for s in recipe.statements):
        pool = defaults if statement.source is Source.DEFAULT else chosen
        known = pool.setdefault(statement.field, statement)
        if known is not statement and not agree(statement.field, known.value, statement.value):
            text = (
                f"{statement.field} is {_shown(known.value)} by {known.origin} and "
                f"{_shown(statement.value)} by {statement.origin}."
            )
            faults.append(ConfigFault(statement.field, text))
    chosen.update({statement.field: statement for statement in stated})
    for field, statement in chosen.items():
        if field in TRAINER_FIELDS:
            trainer[field] = statement.value
            continue
        if config is not None and field in config:
            if agree(field, config[field], statement.value):
                continue
            text = (
                f"{statement.origin} states {field} = {_shown(statement.value)}, and the "
                f"configuration says {_shown(config[field])}."
            )
            cautions.append(Caution("recipe-differs", text))
        result[field] = statement.value
        replaced.add(field)
    for field, statement in defaults.items():
        if field in TRAINER_FIELDS:
            trainer.setdefault(field, statement.value)
        elif field not in result:
            result[field] = statement.value
            replaced.add(field)
    rows = trainer.get("tokenizer_size")
    said = Said(
        normalised=trainer.get("normalize_moe_lora") is True,
        converted=bool(trainer.get("converted_initialisation")),
        rows=rows if isinstance(rows, int) and not isinstance(rows, bool) and rows > 0 else None,
        replaced=frozenset(replaced),
    )
    found = config is not None
    return Overlaid(
        result if found or result else None,
        found,
        said,
        trainer,
        tuple(faults),
        tuple(cautions),
        readable=found,
    )


def _shown(value: object) -> str:
    return printable(json.dumps(value, ensure_ascii=False, default=str)[:120])
