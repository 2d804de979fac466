"""Values of a config.json that decide shapes, checked as they are read, and formulas over them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import cast

from ....errors import Unusable
from ....records.names import printable

LARGEST = 10**8
_REMEDY = (
    "Give the config.json that belongs to the base, "
    "or the base's safetensors headers: a folder or a Hub id."
)
_NOTHING: Mapping[str, object] = MappingProxyType({})
_ASK = object()


@dataclass(frozen=True)
class Size:
    """A dimension as a formula over keys of the config; sums, products and whole quotients."""

    of: Callable[[Settings], int]

    def __add__(self, other: Size) -> Size:
        return Size(lambda settings: self.of(settings) + other.of(settings))

    def __mul__(self, other: Size) -> Size:
        return Size(lambda settings: self.of(settings) * other.of(settings))

    def __rmul__(self, factor: int) -> Size:
        return Size(lambda settings: factor * self.of(settings))

    def __floordiv__(self, other: Size) -> Size:
        return Size(lambda settings: self.of(settings) // other.of(settings))


def key(name: str) -> Size:
    """Make the formula that is one key of the config."""
    return Size(lambda settings: settings.number(name))


def exactly(number: int) -> Size:
    """Make the formula that is a constant."""
    return Size(lambda _settings: number)


@dataclass(frozen=True)
class Keys:
    """What transformers' config class makes of keys that a config.json lacks.

    `defaults` holds its own default of each key, None where it computes one: then, and for a key
    that is null, `derived` has the formula. `aliases` maps a key to another name that it goes by.
    """

    defaults: Mapping[str, object]
    derived: Mapping[str, Size] = field(default_factory=dict[str, Size])
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])
    parts: Mapping[str, Keys] = field(default_factory=dict[str, "Keys"])


class Settings:
    """A config.json as its config class reads it; each value is checked where it is asked for."""

    def __init__(self, config: Mapping[str, object], keys: Keys, path: str = "") -> None:
        self._config = config
        self._keys = keys
        self._path = path

    def part(self, name: str) -> Settings:
        """Give the settings of a nested config, such as `text_config`; "" is this one itself."""
        if not name:
            return self
        nested = self._config.get(name)
        known = _NOTHING if nested is None else mapped(nested)
        if known is None:
            raise self.wrong(name, "an object")
        return Settings(known, self._keys.parts[name], f"{self._path}{name}.")

    def value(self, name: str) -> object:
        """Give a value unchecked: the config's, or the default; None where there is neither."""
        for known in (name, self._keys.aliases.get(name)):
            if known is not None and known in self._config:
                return self._config[known]
        return self._keys.defaults.get(name)

    def number(self, name: str, smallest: int = 1) -> int:
        """Give a whole number. Raises Unusable, which names the key."""
        value = self.value(name)
        if value is None and name in self._keys.derived:
            value = self._keys.derived[name].of(self)
        if type(value) is int and smallest <= value <= LARGEST:
            return value
        raise self.wrong(name, f"a whole number from {smallest} to {LARGEST}", value)

    def flag(self, name: str) -> bool:
        """Give a switch; null is off, as for transformers. Raises Unusable."""
        value = self.value(name)
        if value is None or isinstance(value, bool):
            return bool(value)
        raise self.wrong(name, "true or false")

    def numbers(self, name: str) -> tuple[int, ...]:
        """Give a list of whole numbers; null is an empty one. Raises Unusable."""
        value = self.value(name)
        items = () if value is None else listed(value)
        numbers = tuple(item for item in items or () if type(item) is int)
        if items is None or len(numbers) < len(items):
            raise self.wrong(name, "a list of whole numbers")
        return numbers

    def words(self, name: str, count: int, known: frozenset[str]) -> tuple[str, ...] | None:
        """Give a list of `count` of the `known` words, or None for null. Raises Unusable."""
        value = self.value(name)
        if value is None:
            return None
        words = tuple(w for w in listed(value) or () if isinstance(w, str) and w in known)
        if len(words) != count or len(listed(value) or ()) != count:
            raise self.wrong(name, f"a list of {count}, each {' or '.join(sorted(known))}")
        return words

    def wrong(self, name: str, wanted: str, value: object = _ASK) -> Unusable:
        """Make the error for a key whose value is not what is wanted."""
        found = self.value(name) if value is _ASK else value
        where = printable(f"{self._path}{name}")
        return Unusable(
            f"{where} in config.json is {appearance(found)}, not {wanted}.", remedy=_REMEDY
        )


def listed(value: object) -> Sequence[object] | None:
    """Give a list of a JSON document, or None if it is something else."""
    return cast("Sequence[object]", value) if isinstance(value, list | tuple) else None


def mapped(value: object) -> Mapping[str, object] | None:
    """Give an object of a JSON document, or None if it is something else."""
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else None


def appearance(value: object) -> str:
    """Describe a value of a JSON document in a few words, fit to print."""
    if value is None:
        return "missing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{printable(value[:40])}{"..." if len(value) > 40 else ""}"'
    if isinstance(value, float):
        return str(value)
    if isinstance(value, int):
        return str(value) if abs(value) < 10**18 else "a number of more than 18 digits"
    return "an object" if isinstance(value, Mapping) else "a list"
