"""The form of a trainer's table.

A table is data: where each key stands, the field that it states, the defaults that the trainer
documents, and what tells that LoRA is on. Code is only for rules that are no data.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from ....records.strict_json import Json
from .document import Document, Kind
from .values import Convert

if TYPE_CHECKING:
    from .reading import Reading

# The kinds of documents whose keys no other program's flags can be.
WRITTEN = frozenset(Kind) - {Kind.SHELL}


class Gate(Enum):
    """Whether a document turns LoRA on."""

    ON = "on"
    OFF = "off"
    SILENT = "silent"


Stated: TypeAlias = Mapping[str, Json]
Rule: TypeAlias = "Callable[[Reading, str], None]"
GateRule: TypeAlias = "Callable[[Reading, str], Gate]"


@dataclass(frozen=True)
class Key:
    """A key below its section's prefix, the field that it states, and how its value is read.

    `several` says that a command line may give it several words.
    """

    key: str
    field: str
    convert: Convert
    several: bool = False


@dataclass(frozen=True)
class Default:
    """What the trainer documents for a field that a recipe leaves out.

    A computed one is asked with what is known of the section and gives None where that is too
    little. `text` says it in an origin: `lora_alpha = 2 x lora_rank`.
    """

    field: str
    value: Json | Callable[[Stated], Json]
    text: str


@dataclass(frozen=True)
class Section:
    """Keys that belong together, at any of several places, with one switch and its defaults.

    A rule reads by code what no key alone says, before the defaults are put in.
    """

    prefixes: tuple[str, ...]
    keys: tuple[Key, ...]
    gate: GateRule
    defaults: tuple[Default, ...] = ()
    rule: Rule | None = None


@dataclass(frozen=True)
class Marker:
    """What a document of a trainer has: all of these keys, words, and one of these kinds.

    A key may demand a value (`adapter=lora`). A word is a program or a package: it begins a word of
    the command line, or one of a path's parts; a program is a word or a path's last part. Where it
    is not `sure`, other programs have the same keys: what is stated counts, and what is left out
    does not.
    """

    keys: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    program: str = ""
    kinds: frozenset[Kind] = frozenset(Kind)
    sure: bool = True

    def fits(self, document: Document) -> bool:
        """Tell whether a document has all of it."""
        return (
            document.kind in self.kinds
            and all(_has(document, key) for key in self.keys)
            and all(_runs(document, word) for word in self.words)
            and (not self.program or self.program in map(_last_part, document.words))
        )


def _last_part(word: str) -> str:
    return word.rpartition("/")[2]


def _runs(document: Document, word: str) -> bool:
    pattern = re.compile(rf"(?:^|/){re.escape(word)}(?:[./-]|$)")
    return any(pattern.search(each) for each in document.words)


def _has(document: Document, key: str) -> bool:
    key, equals, wanted = key.partition("=")
    if not equals:
        return document.has(key)
    return any(wanted in str(entry.value) for entry in document.raw(key))


@dataclass(frozen=True)
class Trainer:
    """A trainer's table; `version` is the release whose defaults it holds, empty if unnamed.

    A key of `continues` names an adapter that is trained on: with a value, that adapter's own
    configuration counts. `own_file` says of its scripts that they load a file of their own.
    `null_is_default` says that it documents None for what it then chooses itself.
    """

    name: str
    version: str
    markers: tuple[Marker, ...]
    keys: tuple[Key, ...]
    sections: tuple[Section, ...]
    prefixes: tuple[str, ...] = ("",)
    aliases: tuple[str, ...] = ()
    rule: Rule | None = None
    continues: tuple[str, ...] = ()
    own_file: bool = False
    null_is_default: bool = False

    def knows(self, document: Document) -> bool:
        """Tell whether a document has a mark of this trainer's."""
        return any(marker.fits(document) for marker in self.markers)

    def owns(self, document: Document) -> bool:
        """Tell whether a document is surely this trainer's."""
        return any(marker.sure and marker.fits(document) for marker in self.markers)


def simple(fields: Mapping[str, Convert], **renamed: str) -> tuple[Key, ...]:
    """Make keys that are called like their fields, but for those named `key="field"`."""
    names = {field: key for key, field in renamed.items()}
    return tuple(Key(names.get(f, f), f, convert) for f, convert in fields.items())


def plain_defaults(**values: Json) -> tuple[Default, ...]:
    """Make defaults whose text is `field = value`."""
    return tuple(
        Default(field, value, f"{field} = {_said(value)}") for field, value in values.items()
    )


def _said(value: Json) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


# LoraConfig has had these switches off ever since it has them, and trainers without such a switch
# leave them so.
PLAIN_LORA = plain_defaults(use_rslora=False, use_dora=False)
