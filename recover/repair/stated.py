"""Gather what is stated of an adapter's shapes, on the command line and in recipes.

The command line wins. Recipes that contradict each other decide nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...errors import Unusable
from ..adapter.config.settings import read_settings
from ..adapter.statement import Recipe, Source, Statement, agree

_DTYPE = "dtype"
_SHAPING = frozenset(
    "r target_modules target_parameters exclude_modules modules_to_save rank_pattern bias use_dora "
    "lora_bias kasa_config layer_replication layers_pattern layers_to_transform "
    "trainable_token_indices ensure_weight_tying".split()
)


def stated(settings: Sequence[str], recipes: Iterable[Recipe]) -> dict[str, object]:
    """Join `KEY=VALUE` settings with recipes; only what decides shapes is kept, and `dtype`.

    Defaults of a recipe's trainer count where nothing is stated. Raises Unusable for a setting
    that is none, and for contradictions that no setting decides.
    """
    dtypes = [text for text in settings if text.partition("=")[0].strip() == _DTYPE]
    said = read_settings(tuple(text for text in settings if text not in dtypes))
    values = {s.field: s.value for s in said.statements if s.field in _SHAPING}
    found: dict[str, list[Statement]] = {}
    for recipe in recipes:
        for statement in recipe.statements:
            if statement.field in _SHAPING and statement.value is not None:
                found.setdefault(statement.field, []).append(statement)
    for field, statements in found.items():
        if field not in values:
            values[field] = _decided(field, statements).value
    result: dict[str, object] = dict(values)
    if dtypes:
        result[_DTYPE] = dtypes[-1].partition("=")[2].strip()
    return result


def _decided(field: str, statements: list[Statement]) -> Statement:
    """Give the one value that is stated, or else is a default."""
    best = [s for s in statements if s.source is not Source.DEFAULT] or statements
    for other in best[1:]:
        if not agree(field, other.value, best[0].value):
            raise Unusable(
                f"{best[0].origin} and {other.origin} contradict each other over {field}.",
                remedy=f"State which holds: --set {field}=…",
            )
    return best[0]
