"""Heads that an adapter brings along and that its base does not have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

from ...base.model import Base
from ...formats.safetensors_errors import shown
from ...validation.result import Caution
from ..keys import PREFIX, Part
from ..patterns import suffixes
from ..structure import Adapter
from .expectation import Shape
from .whole import endings, paths

CLASSIFIERS = ("classifier", "score")  # what PEFT saves for SEQ_CLS and TOKEN_CLS by itself


def heads(
    adapter: Adapter,
    base: Base,
    config: Mapping[str, object],
    whole: Mapping[str, Shape],
    cautions: list[Caution],
) -> dict[str, Shape | None]:
    """Allow a head that the base does not have, as a classifier on a language model.

    A name of which the base has a module is no such head: what else ends in it is unexpected.
    """
    saved = config.get("modules_to_save")
    named = [n for n in cast("list[object]", saved or []) if isinstance(n, str) and n]
    if config.get("task_type") in ("SEQ_CLS", "TOKEN_CLS", None):
        named += CLASSIFIERS
    strangers = {
        name: key.module
        for name, key in adapter.keys.items()
        if key.part is Part.WHOLE and name not in whole
    }
    lacking = frozenset(_lacking(named, base)) if strangers else frozenset[str]()
    found: dict[str, Shape | None] = {
        name: None for name, module in strangers.items() if _in_head(module, lacking)
    }
    if found:
        first = shown(next(iter(found)).removeprefix(PREFIX))
        text = (
            f"{len(found):,} tensors are of a head that the base does not have, such as `{first}`: "
            "their shapes are held against nothing."
        )
        cautions.append(Caution("new-head", text))
    return found


def _lacking(named: Iterable[str], base: Base) -> list[str]:
    """Leave out the names that select something of the base, by the letters that they end in."""
    places = {*base.modules, *(name.rpartition(".")[0] for name in base.tensors)}
    known = dict.fromkeys(named)
    held = {end for place in places for path in paths(place) for end in endings(path, known)}
    return [name for name in known if name not in held]


def _in_head(module: str, lacking: frozenset[str]) -> bool:
    """Tell whether a module is one of these or lies in one; a classifier stands at the top."""
    if module.partition(".")[0] in lacking:
        return True
    others = lacking.difference(CLASSIFIERS)
    return bool(others) and any(end in others for path in paths(module) for end in suffixes(path))
