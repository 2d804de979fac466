"""Read a document by a trainer's table, and gather what it states."""

from __future__ import annotations

from ....errors import Unusable
from ....records.strict_json import Json
from ..statement import Source, Statement
from .alternatives import either
from .completeness import (
    continued_adapter,
    shortened_flags,
    stray_switches,
    unnamed_arguments,
)
from .document import Document, Entry, Kind, Unresolved, builds_on
from .identity import hub_cache
from .module_names import Untranslatable
from .table import Default, Gate, Key, Section, Trainer
from .values import Secret, Unfit, flag, says_a_flag

_BASE = "base_model_name_or_path"
# What a run has of its own, whatever adapter it continues.
_OF_THE_RUN = frozenset({_BASE, "revision", "learning_rate", "optimizer", "step"})


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
        self.on: Gate = Gate.SILENT
        self.trainer = trainer
        self._sink: list[Statement] = self.statements
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
        for gap in document.gaps:
            self.note(gap)
        if trainer.own_file and document.kind is Kind.SHELL and document.complete:
            self._defaults = False
            self.note(builds_on(document.name, f"the one that {trainer.name}'s script loads"))
        continued = continued_adapter(document, trainer.continues)
        self._continued = continued is not None
        if continued:
            self._defaults = False
            self.note(continued)
        self._shortened: set[str] = set()
        fields = {
            key.key: key.field
            for keys in (trainer.keys, *(section.keys for section in trainer.sections))
            for key in keys
        }
        for field, note in shortened_flags(document, fields):
            self._shortened.add(field)
            self.note(note)

    def read(self) -> None:
        """Read all keys, then each section that LoRA is on in."""
        for prefix in self.trainer.prefixes:
            for instance in self.document.instances(prefix[:-1]) if prefix else ("",):
                self.keys(self.trainer.keys, f"{instance}." if instance else "")
        if self.trainer.rule:
            self.trainer.rule(self, "")
        gates: list[Gate] = []
        for section in self.trainer.sections:
            for prefix in section.prefixes:
                instances = self.document.instances(prefix[:-1]) if prefix else ("",)
                gates += self._instances(section, instances)
        self.on = Gate.ON if Gate.ON in gates else Gate.OFF if Gate.OFF in gates else Gate.SILENT
        if Gate.ON not in gates:
            self.note(f"{self.document.name} does not turn LoRA on for {self.trainer.name}")

    def _instances(self, section: Section, instances: tuple[str, ...]) -> list[Gate]:
        """Read a section's repetitions: which of them made the adapter is not known."""
        gates: list[Gate] = []
        found: list[list[Statement]] = []
        for instance in instances:
            self._sink = []
            gates.append(self._section(section, f"{instance}." if instance else ""))
            if gates[-1] is not Gate.OFF:
                found.append(self._sink)
        self._sink = self.statements
        statements, notes = either(found)
        for statement in statements:
            self._add(statement)
        for note in notes:
            self.note(f"{self.document.name}: {note}")
        return gates

    def _section(self, section: Section, prefix: str) -> Gate:
        gate = section.gate(self, prefix)
        if gate is Gate.OFF:
            return gate
        self._stated, self._mentioned = {}, set(self._shortened)
        self.counting = gate is Gate.ON and self._defaults and self._named(prefix)
        self.keys(section.keys, prefix)
        if section.rule:
            section.rule(self, prefix)
        if self.counting:
            read = {f"{prefix}{key.key}" for key in section.keys}
            for field, note in stray_switches(self.document, read):
                self._mentioned.add(field)
                self.note(note)
            for default in section.defaults:
                if default.field not in self._mentioned:
                    self.default(default)
        return gate

    def _named(self, prefix: str) -> bool:
        note = unnamed_arguments(self.document, prefix)
        if note:
            self.note(note)
        return note is None

    def keys(self, keys: tuple[Key, ...], prefix: str) -> None:
        """State what keys below a prefix say."""
        for key in keys:
            for entry in self.document.at(prefix + key.key):
                self.take(entry, key)

    def take(self, entry: Entry, key: Key) -> None:
        """State what an entry says of a field. Raises Unusable for a value that none can have."""
        value = self.converted(entry, key)
        if value is None:
            return
        origin = self.document.origin(entry)
        cached = hub_cache(value) if key.field == _BASE and isinstance(value, str) else None
        if cached:
            identity, revision = cached
            origin = f"{origin} (a path in the Hub's cache)"
            self.state(_BASE, identity, origin)
            self.state("revision", revision, origin)
        else:
            self.state(key.field, value, origin)

    def converted(self, entry: Entry, key: Key) -> Json:
        """Read an entry's value; None, and a note, where it is uncertain or must not be shown."""
        value = entry.value
        origin = self.document.origin(entry)
        if isinstance(value, Unresolved):
            self._mentioned.add(key.field)
            self.note(f"{origin}: {value.reason}")
            return None
        if entry.rest and key.convert is flag:
            value = True if not says_a_flag(value) else value
        elif entry.rest and key.several:
            self._mentioned.add(key.field)
            self.note(f"{origin}: {entry.rest.reason}")
            return None
        if entry.loose and not key.several and isinstance(value, list):
            value = value[0] if value else None
        if value is None or value == "":
            if value == "" or not self.trainer.null_is_default:
                self._mentioned.add(key.field)
            return None
        if entry.loose and key.convert is flag and not says_a_flag(value):
            value = True  # what follows a switch on a command line need not be its value
        if value == "???":
            self._mentioned.add(key.field)
            self.note(f"{origin}: left open, to be given when the run is launched")
            return None
        try:
            found = key.convert(value)
            if found is None:
                self._mentioned.add(key.field)
            return found
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
        """Add a statement of the document, but for what a continued adapter has of its own."""
        self._mentioned.add(field)
        if field in self._shortened:
            return
        if self._continued and field not in _OF_THE_RUN:
            self.note(
                f"{origin} is not used: the adapter that the run continues has its own {field}"
            )
            return
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
        named = f"{self.trainer.name} {self.trainer.version}".strip()
        origin = f"default of {named}: {default.text}"
        self._add(Statement(default.field, value, Source.DEFAULT, origin))

    def _add(self, statement: Statement) -> None:
        if statement not in self._sink:
            self._sink.append(statement)

    def mention(self, field: str) -> None:
        """Keep a default from standing for a field that the document decides otherwise."""
        self._mentioned.add(field)

    def mentioned(self, field: str) -> bool:
        """Tell whether the section says anything of a field."""
        return field in self._mentioned

    def stated(self, field: str) -> bool:
        """Tell whether the section states a field."""
        return field in self._stated

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
