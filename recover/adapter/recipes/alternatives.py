"""What is stated where one of several runs, or of several calls, made the adapter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..statement import Source, Statement, agree
from .identity import looks_like_hub_id

_BASE = "base_model_name_or_path"


def either(
    alternatives: Sequence[Sequence[Statement]], places: Sequence[str] = ()
) -> tuple[list[Statement], list[str]]:
    """Join alternatives: what all say counts, what they say differently is a contradiction.

    A field that one of them leaves open is not stated. A default that contradicts is made a
    statement too, since another alternative's statement is no better; `places` says where each
    alternative stands. Gives statements and notes.
    """
    if len(alternatives) < 2:
        return [s for alternative in alternatives for s in alternative], []
    kept: list[Statement] = []
    open_fields: list[str] = []
    unnamed = False
    fields = dict.fromkeys(s.field for alternative in alternatives for s in alternative)
    for field in fields:
        found = [
            (statement, places[number] if places else "")
            for number, alternative in enumerate(alternatives)
            for statement in alternative
            if statement.field == field
        ]
        if any(all(s.field != field for s in alternative) for alternative in alternatives):
            open_fields.append(field)
            continue
        first = found[0][0]
        differing = any(not agree(field, s.value, first.value) for s, _ in found)
        if differing and field == _BASE and not all(_identity(s) for s, _ in found):
            unnamed = True
            continue
        kept += [_contradicting(s, place) if differing else s for s, place in found]
    notes: list[str] = []
    several = f"{len(alternatives)} runs or calls may have made the adapter"
    if open_fields:
        said = ", ".join(open_fields)
        notes.append(f"{several}; what only some of them state is not used: {said}")
    if unnamed:
        notes.append(f"{several}, of base models that not all have a Hub id: none is used")
    return kept, notes


def _contradicting(statement: Statement, place: str) -> Statement:
    if statement.source is Source.STATED:
        return statement
    at = f" ({place})" if place else ""
    return replace(statement, source=Source.STATED, origin=f"{statement.origin}{at}")


def _identity(statement: Statement) -> bool:
    return isinstance(statement.value, str) and looks_like_hub_id(statement.value)
