"""Gather what is stated, and choose between statements of one field."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ....errors import Unusable
from ..statement import Recipe, Source, Statement, agree
from .evidence import Ledger, Side
from .schema import check_value


@dataclass(frozen=True)
class Statements:
    """The command line's statements, and those of the recipes, of which each is one document."""

    settings: Recipe
    recipes: tuple[Recipe, ...]

    def set_on_command_line(self, field: str) -> Statement | None:
        """Give what --set states of a field."""
        return next(iter(self.settings.of(field)), None)

    def of_recipes(self, field: str, source: Source | None = None) -> tuple[Statement, ...]:
        """Give what the recipes say of a field, in their order."""
        return tuple(
            statement
            for recipe in self.recipes
            for statement in recipe.of(field)
            if source is None or statement.source is source
        )

    def candidates(self, field: str) -> tuple[Statement, ...]:
        """Give the statements of the best source there is: --set, recipes, trainers' defaults.

        All that a source says is given, also where it contradicts itself.
        """
        setting = self.set_on_command_line(field)
        if setting is not None:
            return (setting,)
        return self.of_recipes(field, Source.STATED) or self.of_recipes(field, Source.DEFAULT)

    def overruled(self, field: str, by: Statement) -> tuple[str, ...]:
        """Name the statements of another value that give way to a better source."""
        return tuple(
            f"{other.origin} ({other.source.value} {json.dumps(other.value)[:200]})"
            for other in self.of_recipes(field)
            if other is not by and not agree(field, other.value, by.value)
        )

    def silent_on(self, field: str) -> Recipe | None:
        """Give a document of PEFT's own that says all it sets and nothing of this field.

        Defaults are among its statements only where nothing is left open in it, but for single
        values that cannot be read, which are noted. PEFT's default is then what the run had.
        """
        for recipe in self.recipes:
            whole = recipe.trainer == "PEFT" and any(
                statement.source is Source.DEFAULT for statement in recipe.statements
            )
            if whole and not recipe.of(field) and not noted(recipe, field):
                return recipe
        return None

    def documents(self) -> tuple[Recipe, ...]:
        """Give all documents, the command line first."""
        return (self.settings, *self.recipes)


def noted(recipe: Recipe, field: str) -> bool:
    """Tell whether a document has something of a field that could not be read."""
    return any(field in note for note in recipe.notes)


def usable(recipes: Iterable[Recipe], ledger: Ledger) -> tuple[Recipe, ...]:
    """Leave out statements of values that PEFT cannot use, such as verl's `lora_alpha: 0`."""
    kept: list[Recipe] = []
    for recipe in recipes:
        good: list[Statement] = []
        for statement in recipe.statements:
            try:
                check_value(statement.field, statement.value, statement.origin)
            except Unusable as error:
                ledger.cautions.append(f"{error.message} This statement is not used.")
            else:
                good.append(statement)
        kept.append(replace(recipe, statements=tuple(good)))
    return tuple(kept)


def choose(field: str, statements: Sequence[Statement], ledger: Ledger) -> Statement | None:
    """Choose the one value that these state; enter a conflict where they differ."""
    if not statements:
        return None
    first = statements[0]
    others = [s for s in statements if not agree(field, s.value, first.value)]
    if others:
        ledger.conflict(
            field,
            f"{field} is stated differently: {_said(first)}, and {_said(others[0])}.",
            Side.of(first),
            *(Side.of(other) for other in others),
        )
        return None
    return first


def take(field: str, statements: Statements, ledger: Ledger) -> Statement | None:
    """Choose a field's value and enter it; None without a statement or after a conflict."""
    chosen = choose(field, statements.candidates(field), ledger)
    if chosen is not None:
        overruled = statements.overruled(field, chosen)
        ledger.know(field, chosen.value, chosen.source, chosen.origin, overruled)
    return chosen


def _said(statement: Statement) -> str:
    return f"{json.dumps(statement.value)[:80]} by {statement.origin}"
