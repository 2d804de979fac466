"""Heads that an adapter brings along and that its base does not have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from ....records.names import printable
from ...validation.result import Caution
from ..keys import Part
from ..structure import Adapter
from .expectation import Shape

_CLASSIFIERS = ("classifier", "score")  # what PEFT saves for SEQ_CLS and TOKEN_CLS by itself


def heads(
    adapter: Adapter,
    config: Mapping[str, object],
    whole: Mapping[str, Shape],
    cautions: list[Caution],
) -> dict[str, Shape | None]:
    """Allow a head that the base does not have, as a classifier on a language model."""
    saved = config.get("modules_to_save")
    names = [n for n in cast("list[object]", saved or []) if isinstance(n, str) and n]
    if config.get("task_type") in ("SEQ_CLS", "TOKEN_CLS", None):
        names += _CLASSIFIERS
    found: dict[str, Shape | None] = {}
    for name, key in adapter.keys.items():
        if key.part is Part.WHOLE and name not in whole and key.module.endswith(tuple(names)):
            found[name] = None
    if found:
        text = (
            f"{len(found):,} tensors belong to a head that {printable(next(iter(found)))} names "
            "and the base does not have: their shapes are held against nothing."
        )
        cautions.append(Caution("new-head", text))
    return found
