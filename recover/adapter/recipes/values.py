"""Turn what recipes write into the values that PEFT's LoraConfig takes, or refuse it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import TypeAlias

from ....records.names import printable
from ....records.strict_json import Json
from .identity import looks_like_secret, names_a_secret

Convert: TypeAlias = Callable[[Json], Json]

MAX_RANK = 65_536
MAX_ALPHA = 1_000_000
_MAX_NAMES = 20_000
_MAX_TEXT = 4_096
_LEADING_ZERO = re.compile(r"[-+]?0[0-9_]")
# Long runs of letters and digits, as keys and tokens of any service are.
_RANDOM = re.compile(r"(?<![A-Za-z0-9])(?=[A-Za-z]*[0-9])[A-Za-z0-9+/=_-]{32,}(?![A-Za-z0-9])")
_TRUE = frozenset({"true", "yes", "on", "1", "t", "y"})
_FALSE = frozenset({"false", "no", "off", "0", "f", "n"})


class Unfit(ValueError):
    """A value that a field cannot have; the message completes `KEY ...` and holds no value."""


class Secret(Exception):
    """A value that has the form of a secret and must not be repeated."""


def number(value: Json) -> int | float:
    """Read a finite number, from text as well; integral ones become integers."""
    found: int | float
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise Unfit("is not a number")
    if isinstance(value, str):
        if len(value) > 100 or not value.isascii() or "_" in value:
            raise Unfit("is not a number")
        if _LEADING_ZERO.match(value.strip()):
            raise Unfit("is a number with a leading zero, which YAML 1.1 takes as octal")
        try:
            found = float(value)
        except ValueError:
            raise Unfit("is not a number") from None
    else:
        found = value
    if isinstance(found, float):
        if not math.isfinite(found):
            raise Unfit("is not a finite number")
        if found.is_integer() and abs(found) < 1 << 53:
            return int(found)
    return found


def whole(value: Json, least: int, most: int) -> int:
    """Read an integer of a range."""
    found = number(value)
    if isinstance(found, float) or not least <= found <= most:
        raise Unfit(f"is not a whole number from {least} to {most:,}")
    return found


def rank(value: Json) -> Json:
    """Read a rank."""
    return whole(value, 1, MAX_RANK)


def rank_or_none(value: Json) -> Json:
    """Read a rank where zero means that there is no LoRA, which states nothing."""
    return whole(value, 0, MAX_RANK) or None


def alpha_or_none(value: Json) -> Json:
    """Read an alpha where zero, `None` or nothing stands for a value that nobody has stated."""
    if value in ("None", "none") or number(value) == 0:
        return None
    return alpha(value)


def alpha(value: Json) -> Json:
    """Read an alpha, which need not be whole."""
    found = number(value)
    if not 0 < found <= MAX_ALPHA:
        raise Unfit(f"is not above 0 and at most {MAX_ALPHA:,}")
    return found


def fraction(value: Json) -> Json:
    """Read a probability."""
    found = number(value)
    if not 0 <= found <= 1:
        raise Unfit("is not from 0 to 1")
    return found


def rate(value: Json) -> Json:
    """Read a learning rate."""
    found = number(value)
    if not 0 < found <= 1_000:
        raise Unfit("is not above 0 and at most 1,000")
    return found


def step(value: Json) -> Json:
    """Read a number of steps."""
    return whole(value, 0, 1 << 53)


def count(value: Json) -> Json:
    """Read a number of rows."""
    return whole(value, 1, 1 << 40)


def flag(value: Json) -> Json:
    """Read a boolean, from text as well."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int) and value in (0, 1):
        return value == 1
    if isinstance(value, str) and value.strip().lower() in _TRUE | _FALSE:
        return value.strip().lower() in _TRUE
    raise Unfit("is neither true nor false")


def says_a_flag(value: Json) -> bool:
    """Tell whether a value can be read as a boolean."""
    return isinstance(value, (bool, int)) or str(value).strip().lower() in _TRUE | _FALSE


def text(value: Json) -> Json:
    """Read a line of text that a terminal can show."""
    if not isinstance(value, str) or not value.strip() or len(value) > _MAX_TEXT:
        raise Unfit("is not a text of reasonable length")
    value = value.strip()
    if looks_like_secret(value):
        raise Secret
    without = value.replace("\\", "")
    if printable(without) != without:
        raise Unfit("holds characters that cannot be printed")
    return value


def optimiser(value: Json) -> Json:
    """Read an optimiser's name."""
    return text(value)


def names(value: Json) -> Json:
    """Read a list of module names, also of one or with commas; `all-linear` stays a word."""
    items: list[Json] = value if isinstance(value, list) else [*_split(value)]
    if len(items) > _MAX_NAMES:
        raise Unfit("names too many modules")
    found: list[Json] = [*dict.fromkeys(str(text(item)) for item in items)]
    if [str(name).lower() for name in found[:2]] in (["all-linear"], ["all_linear"]):
        return "all-linear"
    return found


def _split(value: Json) -> list[str]:
    if not isinstance(value, str):
        raise Unfit("is not a list of names")
    return [part.strip() for part in value.split(",") if part.strip()]


def targets(value: Json) -> Json:
    """Read target modules: names, `all-linear`, or a regular expression; none are nothing."""
    if value in ([], ""):
        return None
    if isinstance(value, str) and any(char in value for char in "*+?()[]{}|^$\\"):
        return text(value)
    return names(value)


def words(value: Json) -> Json:
    """Read names that a command line also separates by spaces."""
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
        return targets(value[0])
    return targets(value)


def initialisation(value: Json) -> Json:
    """Read `init_lora_weights`: true, false, or a method's name."""
    if isinstance(value, bool):
        return value
    found = text(value)
    return flag(found) if str(found).lower() in ("true", "false") else found


def task(value: Json) -> Json:
    """Read a task type; some write it as `TaskType.CAUSAL_LM`."""
    return str(text(value)).rpartition(".")[2].upper()


def integers(value: Json) -> Json:
    """Read an integer or a list of integers, none below zero."""
    if isinstance(value, list):
        if len(value) > _MAX_NAMES:
            raise Unfit("is too long")
        return [whole(item, 0, 1 << 40) for item in value]
    return whole(value, 0, 1 << 40)


def tokens(value: Json) -> Json:
    """Read token indices, for all embeddings or by their names."""
    if isinstance(value, dict):
        return {str(text(key)): integers(item) for key, item in _bounded(value).items()}
    return integers(value)


def ranks(value: Json) -> Json:
    """Read a rank for each pattern."""
    return {str(text(key)): rank(item) for key, item in _bounded(value).items()}


def alphas(value: Json) -> Json:
    """Read an alpha for each pattern."""
    return {str(text(key)): alpha(item) for key, item in _bounded(value).items()}


def anything(value: Json, depth: int = 0) -> Json:
    """Keep a value that only its own method understands, once its texts are harmless.

    Raises Secret for a key that names a secret, and for a text that could be one.
    """
    if depth > 16:
        raise Unfit("is nested too deeply")
    if isinstance(value, str):
        if _RANDOM.search(value):
            raise Secret
        return text(value) if value else value
    if isinstance(value, list):
        if len(value) > _MAX_NAMES:
            raise Unfit("is too long")
        return [anything(item, depth + 1) for item in value]
    if isinstance(value, dict):
        members = _bounded(value)
        if any(names_a_secret(key) for key in members):
            raise Secret
        return {str(anything(key)): anything(item, depth + 1) for key, item in members.items()}
    if isinstance(value, float) and not math.isfinite(value):
        raise Unfit("is not a finite number")
    return value


def _bounded(value: Json) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise Unfit("is not a mapping")
    if len(value) > _MAX_NAMES:
        raise Unfit("is too long")
    return value
