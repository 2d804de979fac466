"""Read what `--set key=value` states."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

from ....errors import Unusable
from ....records.names import printable
from ....records.strict_json import Json, parse_object
from ..recipes.identity import looks_like_secret, names_a_secret
from ..statement import TRAINER_FIELDS, Recipe, Source, Statement
from .schema import FIELDS, check_value

LABEL = "--set"
_LISTS = frozenset(
    "target_modules modules_to_save exclude_modules target_parameters layers_to_transform "
    "trainable_token_indices alora_invocation_tokens layers_pattern".split()
)
_NAME = re.compile(r"[\w.-]+")
_NUMBER = re.compile(r"\d{1,18}")
_TEXTS = frozenset({"base_model_name_or_path", "revision", "task_type", "peft_version", "bias"})
# Other fields that trainers' recipes have go by PEFT's name here.
_KNOWN = frozenset(FIELDS) | frozenset(TRAINER_FIELDS)


def read_settings(settings: tuple[str, ...]) -> Recipe:
    """Read each `key=value`: JSON, or a plain text, or names with commas between them.

    Raises Unusable for a key that PEFT does not have, or that stands twice.
    """
    statements: dict[str, Statement] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        key = key.strip()
        if looks_like_secret(setting):
            raise _secret(key if key in _KNOWN else "")
        if not equals or key not in _KNOWN:
            raise _unknown(key, bool(equals))
        if key in statements:
            raise Unusable(f"--set {key} is given twice.", remedy="Give it once.")
        value = _value(key, text.strip())
        origin = printable(f"--set {key}={text.strip()}"[:200])
        _demand_fit_to_write(key, value)
        check_value(key, value, origin)
        statements[key] = Statement(key, value, Source.STATED, origin)
    return Recipe(LABEL, LABEL, None, tuple(statements.values()))


def _secret(key: str) -> Unusable:
    return Unusable(
        f"--set {key or 'of an unknown field'} holds what looks like a secret, which would be "
        "written into the configuration.",
        remedy="State the field without it; a token has no place in an adapter's configuration.",
    )


def _demand_fit_to_write(key: str, value: Json) -> None:
    """Refuse, in whatever is nested, secrets spelled with escapes, and what cannot be printed."""
    for text in _texts(value):
        if looks_like_secret(text):
            raise _secret(key)
        if not text.isprintable():
            raise Unusable(
                f"--set {key} holds characters that cannot be printed.",
                remedy="Type the value anew.",
            )


def _texts(value: Json) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from (name, *_texts(item), *_keyed(name, item))


def _keyed(name: str, value: Json) -> Iterator[str]:
    """Give a secret's form for what stands under a secret's name."""
    if names_a_secret(name) and isinstance(value, str):
        yield f"?token={value}"


def _unknown(key: str, has_value: bool) -> Unusable:
    if not has_value:
        return Unusable(
            f"--set {printable(key[:80])} has no value.", remedy="Write --set lora_alpha=32."
        )
    near = difflib.get_close_matches(key, _KNOWN, 1)
    return Unusable(
        f"--set {printable(key[:80])}: PEFT's LoraConfig has no such field.",
        remedy=f"Is {near[0]} meant?" if near else "Use the names of LoraConfig, as r, lora_alpha.",
    )


def _value(key: str, text: str) -> Json:
    if key in _TEXTS:
        return _without_quotes(text) if text != "null" else None
    if text in ("True", "False", "None"):
        return {"True": True, "False": False, "None": None}[text]
    try:
        value = parse_object(f'{{"value": {text}}}'.encode(), "--set")
        parsed: Json = value["value"] if len(value) == 1 else text
    except Unusable:
        parsed = text
    if key in _LISTS and (isinstance(parsed, (str, int)) and not isinstance(parsed, bool)):
        return _as_list(str(parsed))
    return parsed


def _as_list(text: str) -> Json:
    items = [item.strip() for item in text.split(",") if item.strip()]
    if items and all(_NUMBER.fullmatch(item) for item in items):
        return [int(item) for item in items]
    if text.lower() == "all-linear" or not all(_NAME.fullmatch(item) for item in items):
        return text  # a pattern
    return list[Json](items)


def _without_quotes(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text
