"""What of a document keeps a default from counting, besides gaps in its own text."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from ....records.strict_json import Json
from .document import Document, Kind

_MAX_POSITIONS = 8
_SWITCHES = re.compile(r"(?:^|[._])(?:use_)?(rslora|dora)$")
_NOTHING: tuple[Json, ...] = (None, "", [], False, "null", "None", "false", "False")


def continued_adapter(document: Document, keys: Collection[str]) -> str | None:
    """Say that the run goes on with an adapter that one of these keys names."""
    for key in keys:
        for entry in document.at(key):
            if entry.value not in _NOTHING:
                return (
                    f"{document.origin(entry)}: the run continues an adapter, whose own "
                    "configuration counts: give its adapter_config.json as a recipe"
                )
    return None


def shortened_flags(document: Document, known: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Give the fields that argparse may set by the beginning of a known flag, with notes."""
    for entry in document.entries if document.kind is Kind.SHELL else ():
        if entry.key in known or not entry.shown.startswith("--"):
            continue
        for key, field in known.items():
            if key.startswith(entry.key):
                yield field, f"{document.origin(entry)}: it may be short for {key}"


def stray_switches(document: Document, read: Collection[str]) -> Iterator[tuple[str, str]]:
    """Give the switches that a document has where its trainer is not known to look, with notes."""
    for entry in document.entries if document.kind is not Kind.PYTHON else ():
        found = _SWITCHES.search(entry.key)
        if found and entry.key not in read and entry.value not in _NOTHING:
            yield (
                f"use_{found[1]}",
                f"{document.origin(entry)}: not a key that the trainer is known to read",
            )


def unnamed_arguments(document: Document, prefix: str) -> str | None:
    """Say that a call has arguments without names, but for a model that comes first."""
    if not prefix or document.kind is not Kind.PYTHON:
        return None
    own = prefix.partition("#")[0].rstrip(".").rpartition(".")[2]
    first = 1 if own.startswith(("get_peft_model", "create_lora_training_client")) else 0
    for argument in ("**", *map(str, range(first, first + _MAX_POSITIONS))):
        for entry in document.raw(prefix + argument):
            return f"{document.origin(entry)}: arguments that are not named here"
    return None
