"""What tells that a document turns LoRA on."""

from __future__ import annotations

from ....records.strict_json import Json
from .document import Unresolved
from .reading import Reading
from .table import Gate, GateRule
from .values import says_a_flag


def positive(key: str) -> GateRule:
    """Turn on by a rank above zero, off by zero; a rank that is uncertain tells nothing."""

    def gate(reading: Reading, prefix: str) -> Gate:
        found = [entry.value for entry in reading.document.at(prefix + key)]
        found = [v for v in found if v not in (None, "???") and not isinstance(v, Unresolved)]
        if not found:
            return Gate.SILENT
        zeros = [str(_first(value)).strip() in ("0", "0.0") for value in found]
        return Gate.OFF if all(zeros) else Gate.ON

    return gate


def _first(value: Json | Unresolved) -> Json | Unresolved:
    return value[0] if isinstance(value, list) and value else value


def switched(key: str, *on: str, otherwise: Gate = Gate.SILENT) -> GateRule:
    """Turn on by one of some values, `true` if none are named; off by others."""
    wanted = on or ("true", "1", "yes", "on")

    def gate(reading: Reading, prefix: str) -> Gate:
        value = reading.value(prefix + key)
        if value is None:
            return otherwise
        if isinstance(value, Unresolved):
            return Gate.SILENT
        if not on and not says_a_flag(value):
            return Gate.ON if reading.document.at(prefix + key)[-1].loose else Gate.SILENT
        return Gate.ON if str(value).strip().lower() in wanted else Gate.OFF

    return gate


def always(_reading: Reading, _prefix: str) -> Gate:
    """Turn on for documents that only LoRA has."""
    return Gate.ON


def present(key: str = "") -> GateRule:
    """Turn on by the mere presence of a section, or of a key in it."""

    def gate(reading: Reading, prefix: str) -> Gate:
        wanted = f"{prefix}{key}".rstrip(".")
        return Gate.ON if reading.document.has(wanted) else Gate.SILENT

    return gate
