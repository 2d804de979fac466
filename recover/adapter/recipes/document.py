"""What a recipe says, whatever its format: dotted keys with values and line numbers.

Nothing is executed or fetched. Bounds hold for every format: size, depth, entries, key lengths.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import TypeAlias

from ....errors import Unusable
from ....records.names import printable
from ....records.strict_json import Json
from .identity import looks_like_secret, names_a_secret

MAX_BYTES = 4 << 20
MAX_DEPTH = 64
MAX_ENTRIES = 200_000
# What verl brings with it and completes from its own defaults: nothing else is built on.
OWN_CONFIGURATIONS = frozenset({"ppo_trainer", "ppo_megatron_trainer", "sft_trainer", "_self_"})
_MAX_PATH = 1_000
_MAX_TEXT = 1 << 16
_MAX_REFERENCES = 1_000
_MAX_REPEATS = 200
_MAX_CHAIN = 16
_REFERENCE = re.compile(r"\$\{([^${}]*)\}")
_NAME = re.compile(r"[A-Za-z_][\w.:-]{0,99}")


class Kind(Enum):
    """The formats of recipes."""

    YAML = "YAML"
    JSON = "JSON"
    TOML = "TOML"
    PYTHON = "Python"
    SHELL = "a command line"
    CARD = "a model card"
    TENSORS = "safetensors metadata"


@dataclass(frozen=True)
class Unresolved:
    """A value that the document does not decide; `reason` is fit to print and holds no value."""

    reason: str


Value: TypeAlias = "Json | Unresolved"


@dataclass(frozen=True)
class Entry:
    """One key with its value; `key` has `_` for `-`, `shown` is as written and fit to print.

    `loose` is a command line's: words that follow a flag need not all be its value; `rest` says why
    some of them are not known.
    """

    key: str
    shown: str
    value: Value
    line: int
    last: int = 0
    loose: bool = False
    rest: Unresolved | None = None


@dataclass(frozen=True)
class Node:
    """A value as parsed; a mapping keeps its pairs in order, repeated keys too."""

    line: int
    last: int
    value: bool | int | float | str | tuple[Node, ...] | Pairs | None


@dataclass(frozen=True)
class Pairs:
    """The pairs of a mapping."""

    pairs: tuple[tuple[str, Node], ...]


@dataclass(frozen=True)
class Document:
    """A recipe's entries in the order of the text.

    `words` are a command's program or a script's imports. `gaps` say, fit to print, what is not
    read that could set more: then nobody knows what was left at its default. `line` is where a
    command stands, `called` whether its function is called.
    """

    name: str
    kind: Kind
    entries: tuple[Entry, ...]
    words: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()
    line: int = 1
    called: bool = True
    lines: tuple[str, ...] = field(default=(), repr=False)

    @property
    def complete(self) -> bool:
        """Tell whether all is read that could set a value."""
        return not self.gaps

    @cached_property
    def _by_key(self) -> Mapping[str, tuple[Entry, ...]]:
        found: dict[str, list[Entry]] = {}
        for entry in self.entries:
            found.setdefault(entry.key, []).append(entry)
        return {key: tuple(entries) for key, entries in found.items()}

    @cached_property
    def _sections(self) -> frozenset[str]:
        return frozenset(
            key[:position]
            for key in self._by_key
            for position, char in enumerate(key)
            if char in ".["
        )

    def at(self, key: str) -> tuple[Entry, ...]:
        """Give the entries of a key, with references to other keys put in."""
        found = self._by_key.get(key, ())
        if len(found) > _MAX_REPEATS:
            raise too_large(self.name, f"one key more than {_MAX_REPEATS:,} times")
        return tuple(self._resolved(entry) for entry in found)

    def has(self, key: str) -> bool:
        """Tell whether there is such a key, or any below it; of a script, such a call."""
        return key in self._by_key or (self.kind is not Kind.PYTHON and key in self._sections)

    def instances(self, section: str) -> tuple[str, ...]:
        """Name a section and its repetitions: a script may call one function several times."""
        found = [section] if self.has(section) else []
        while self.has(f"{section}#{len(found) + 1}"):
            found.append(f"{section}#{len(found) + 1}")
            if len(found) > _MAX_REPEATS:
                raise too_large(self.name, f"one call more than {_MAX_REPEATS:,} times")
        return tuple(found)

    def below(self, prefix: str) -> Iterator[Entry]:
        """Give all entries whose key begins so, as written."""
        return (entry for entry in self.entries if entry.key.startswith(prefix))

    def origin(self, entry: Entry) -> str:
        """Say where an entry stands: `serve.yaml:12: training.options.megatron-lora-rank`."""
        return f"{self.name}:{entry.line}: {entry.shown}"

    def _resolved(self, entry: Entry) -> Entry:
        if self.kind is not Kind.YAML:
            return entry
        return replace(entry, value=Interpolation(self).value(entry.value))

    def raw(self, key: str) -> tuple[Entry, ...]:
        """Give the entries of a key as written."""
        return self._by_key.get(key, ())


class Interpolation:
    """Puts values in place of `${a.b}`, within bounds of length, number and depth.

    A name that is no key of the document is one of the environment's, which is not asked. A key
    that names a secret is never put in.
    """

    def __init__(self, document: Document) -> None:
        self._document = document
        self._left = _MAX_REFERENCES

    def value(self, value: Value, depth: int = 0) -> Value:
        """Resolve all references within a value, or say why it cannot be done."""
        if isinstance(value, str):
            return self._text(value, depth) if "${" in value else value
        if isinstance(value, list):
            items = [self.value(item, depth) for item in value]
            lost = next((item for item in items if isinstance(item, Unresolved)), None)
            return lost or [item for item in items if not isinstance(item, Unresolved)]
        return value

    def known(self, text: str) -> str:
        """Put in what is known and leave the rest of a command as it is."""

        def put(found: re.Match[str]) -> str:
            value = self._lookup(found[1], 0)
            return found[0] if isinstance(value, (Unresolved, list, dict)) else _scalar(value)

        done = _REFERENCE.sub(put, text)
        return done if len(done) <= MAX_BYTES else text

    def _text(self, text: str, depth: int) -> Value:
        whole = _REFERENCE.fullmatch(text)
        if whole:
            return self._lookup(whole[1], depth)
        parts: list[str] = []
        position = 0
        for found in _REFERENCE.finditer(text):
            value = self._lookup(found[1], depth)
            if isinstance(value, Unresolved):
                return value
            if isinstance(value, (list, dict)):
                return Unresolved("it puts a list or a mapping into text")
            parts += [text[position : found.start()], _scalar(value)]
            position = found.end()
        done = "".join([*parts, text[position:]])
        if len(done) > _MAX_TEXT:
            return Unresolved("it becomes too long")
        return Unresolved("it holds an expression that is not understood") if "${" in done else done

    def _lookup(self, name: str, depth: int) -> Value:
        self._left -= 1
        plain = _NAME.fullmatch(name) and not looks_like_secret(name)
        shown = f"${{{name}}}" if plain else "an expression"
        if self._left < 0 or depth >= _MAX_CHAIN:
            return Unresolved(f"{shown} leads in a circle or too far")
        if names_a_secret(name):
            return Unresolved(f"{shown} names a secret")
        found = self._document.raw(normalised(name))
        values = [self.value(entry.value, depth + 1) for entry in found]
        if not values:
            return Unresolved(f"{shown} is not set in this document")
        if any(value != values[0] for value in values):
            return Unresolved(f"{shown} is set several times")
        return values[0]


def _scalar(value: bool | int | float | str | None) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def normalised(key: str) -> str:
    """Spell a key as tables do: `_` for `-`."""
    return key.replace("-", "_")


def flatten(root: Node, name: str) -> tuple[Entry, ...]:
    """Give every key of a mapping at any depth as an entry, mappings and lists as a whole too.

    What aliases repeat counts each time. Raises Unusable past the bounds.
    """
    entries: list[Entry] = []
    visits = 0

    def visit(node: Node, path: str | None, depth: int) -> Json:
        nonlocal visits
        visits += 1
        if visits > MAX_ENTRIES:
            raise too_large(name, f"more than {MAX_ENTRIES:,} values")
        if depth > MAX_DEPTH:
            raise too_large(name, f"more than {MAX_DEPTH} levels of nesting")
        value = node.value
        if isinstance(value, Pairs):
            members: dict[str, Json] = {}
            for key, child in value.pairs:
                below = joined(path, key)
                position = len(entries)
                members[key] = visit(child, below, depth + 1)
                if below is not None:
                    entries.insert(position, _entry(below, members[key], child))
            return members
        if isinstance(value, tuple):
            places = (None if path is None else f"{path}[{n}]" for n in range(len(value)))
            return [visit(*each, depth + 1) for each in zip(value, places, strict=True)]
        return value

    visit(root, "", 0)
    return tuple(entries)


def joined(path: str | None, key: str) -> str | None:
    """Give the dotted path of a key; None where it is longer than any that a recipe has."""
    if path is None or len(path) + len(key) > _MAX_PATH:
        return None
    return f"{path}.{key}" if path else key


def _entry(path: str, value: Json, node: Node) -> Entry:
    return Entry(normalised(path), printable(path), value, node.line, node.last)


def builds_on(name: str, what: str = "") -> str:
    """Say that a document names another that it builds on."""
    file = f" ({what})" if what else ""
    return (
        f"{name} names a configuration that it builds on{file}: no defaults are used; give that "
        "one as a recipe too"
    )


def too_large(name: str, why: str) -> Unusable:
    """Refuse a document that no trainer would have read."""
    return Unusable(
        f"{name} has {why}, which no recipe has.",
        remedy="State the adapter's values with `--set KEY=VALUE` instead.",
    )


def broken(name: str, line: int, what: str) -> Unusable:
    """Refuse a document that breaks its format's rules."""
    return Unusable(
        f"{name}:{line}: {what}.",
        remedy="Mend the recipe, or state its values with `--set KEY=VALUE`.",
    )
