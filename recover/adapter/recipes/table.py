"""The form of a trainer's table, and how a document is read by one.

A table is data: where each key stands, the field that it states, the defaults that the trainer
documents, and what tells that LoRA is on. Code is only for rules that are no data.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from ....errors import Unusable
from ..statement import Json, Source, Statement
from .document import Document, Entry, Kind, Unresolved
from .module_names import Untranslatable
from .values import Convert, Secret, Unfit, flag, says_a_flag


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
    the command line, or one of a path's parts. Where it is not `sure`, other programs have the same
    keys: what is stated counts, and what is left out does not.
    """

    keys: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    kinds: frozenset[Kind] = frozenset(Kind)
    sure: bool = True

    def fits(self, document: Document) -> bool:
        """Tell whether a document has all of it."""
        return (
            document.kind in self.kinds
            and all(_has(document, key) for key in self.keys)
            and all(_runs(document, word) for word in self.words)
        )


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
    """A trainer's table; `version` is the release whose defaults it holds, empty if unnamed."""

    name: str
    version: str
    markers: tuple[Marker, ...]
    keys: tuple[Key, ...]
    sections: tuple[Section, ...]
    prefixes: tuple[str, ...] = ("",)
    aliases: tuple[str, ...] = ()
    rule: Rule | None = None

    def knows(self, document: Document) -> bool:
        """Tell whether a document has a mark of this trainer's."""
        return any(marker.fits(document) for marker in self.markers)

    def owns(self, document: Document) -> bool:
        """Tell whether a document is surely this trainer's."""
        return any(marker.sure and marker.fits(document) for marker in self.markers)


class Reading:
    """Reads a document by a trainer's table and gathers what it states.

    `counting` says whether the defaults count in the section that is read.
    """

    def __init__(
        self, document: Document, trainer: Trainer, version: str | None, *, sure: bool
    ) -> None:
        self.document = document
        self.statements: list[Statement] = []
        self.notes: list[str] = [*document.notes]
        self._trainer = trainer
        self._defaults = document.complete and sure
        self._stated: dict[str, list[Json]] = {}
        self._mentioned: set[str] = set()
        self.counting = False
        known = trainer.version
        if version and known and not f"{version}.".startswith(f"{known}."):
            self._defaults = False
            self.note(f"defaults are known of {trainer.name} {known} only: none are used")
        elif not sure:
            self.note(
                f"{document.name} may be another program's than {trainer.name}: no defaults are "
                "used unless the trainer is named"
            )
        elif not document.complete:
            self.note(
                f"{document.name} names a configuration that it builds on: no defaults are used; "
                "give that one as a recipe too"
            )

    def read(self) -> None:
        """Read all keys, then each section that LoRA is on in."""
        for prefix in self._trainer.prefixes:
            for instance in self.document.instances(prefix[:-1]) if prefix else ("",):
                self.keys(self._trainer.keys, f"{instance}." if instance else "")
        if self._trainer.rule:
            self._trainer.rule(self, "")
        gates = [
            self._section(section, f"{instance}." if instance else "")
            for section in self._trainer.sections
            for prefix in section.prefixes
            for instance in (self.document.instances(prefix[:-1]) if prefix else ("",))
        ]
        if Gate.ON not in gates:
            self.note(f"{self.document.name} does not turn LoRA on for {self._trainer.name}")

    def _section(self, section: Section, prefix: str) -> Gate:
        gate = section.gate(self, prefix)
        if gate is Gate.OFF:
            return gate
        self._stated, self._mentioned = {}, set()
        self.counting = gate is Gate.ON and self._defaults and self._whole(prefix)
        self.keys(section.keys, prefix)
        if section.rule:
            section.rule(self, prefix)
        if self.counting:
            for default in section.defaults:
                if default.field not in self._mentioned:
                    self.default(default)
        return gate

    def _whole(self, prefix: str) -> bool:
        for argument in ("**", "0"):
            for entry in self.document.raw(prefix + argument) if prefix else ():
                if argument == "**" or entry.key.startswith("LoraConfig"):
                    self.note(f"{self.document.origin(entry)}: arguments that are not named here")
                    return False
        return True

    def keys(self, keys: tuple[Key, ...], prefix: str) -> None:
        """State what keys below a prefix say."""
        for key in keys:
            for entry in self.document.at(prefix + key.key):
                self.take(entry, key)

    def take(self, entry: Entry, key: Key) -> None:
        """State what an entry says of a field. Raises Unusable for a value that none can have."""
        value = self.converted(entry, key)
        if value is not None:
            self.state(key.field, value, self.document.origin(entry))

    def converted(self, entry: Entry, key: Key) -> Json:
        """Read an entry's value; None, and a note, where it is uncertain or must not be shown."""
        value = entry.value
        origin = self.document.origin(entry)
        if isinstance(value, Unresolved):
            self._mentioned.add(key.field)
            self.note(f"{origin}: {value.reason}")
            return None
        if entry.loose and not key.several and isinstance(value, list):
            value = value[0] if value else None
        if value is None or value == "":
            return None
        if entry.loose and key.convert is flag and not says_a_flag(value):
            value = True  # what follows a switch on a command line need not be its value
        if value == "???":
            self._mentioned.add(key.field)
            self.note(f"{origin}: left open, to be given when the run is launched")
            return None
        try:
            return key.convert(value)
        except Unfit as error:
            raise Unusable(
                f"{origin} {error}.",
                remedy=f"Mend the recipe, or state it: `--set {key.field}=VALUE`.",
            ) from None
        except Secret:
            reason = "it looks like a secret and is not repeated"
        except Untranslatable:
            reason = "names that only the model itself resolves"
        self._mentioned.add(key.field)
        self.note(f"{origin}: {reason}")
        return None

    def state(self, field: str, value: Json, origin: str) -> None:
        """Add a statement of the document."""
        self._mentioned.add(field)
        self._stated.setdefault(field, []).append(value)
        self._add(Statement(field, value, Source.STATED, origin))

    def default(self, default: Default) -> None:
        """Put in a documented default, if enough is known for it."""
        known = {
            field: found[0]
            for field, found in self._stated.items()
            if all(value == found[0] for value in found)
        }
        value = default.value(known) if callable(default.value) else default.value
        if value is None:
            return
        self._stated.setdefault(default.field, []).append(value)
        named = f"{self._trainer.name} {self._trainer.version}".strip()
        origin = f"default of {named}: {default.text}"
        self._add(Statement(default.field, value, Source.DEFAULT, origin))

    def _add(self, statement: Statement) -> None:
        if statement not in self.statements:
            self.statements.append(statement)

    def mention(self, field: str) -> None:
        """Keep a default from standing for a field that the document decides otherwise."""
        self._mentioned.add(field)

    def mentioned(self, field: str) -> bool:
        """Tell whether the section says anything of a field."""
        return field in self._mentioned

    def note(self, text: str) -> None:
        """Add a remark, once."""
        if text not in self.notes:
            self.notes.append(text)

    def value(self, key: str) -> Json | Unresolved:
        """Give a key's last value as it stands; None where there is none."""
        entries = self.document.at(key)
        if not entries:
            return None
        value = entries[-1].value
        return value[0] if entries[-1].loose and isinstance(value, list) and value else value


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
