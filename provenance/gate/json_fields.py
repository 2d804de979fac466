"""Fields of a JSON object from outside, each fetched with the type that it must have."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ...errors import Unusable
from ...records.names import printable
from ...records.strict_json import Json

_SHA256 = re.compile(r"[0-9a-f]{64}")
_LONGEST = 1 << 16
_LARGEST = 1 << 62


class Fields:
    """An object's fields. Every getter raises Unusable, which names the object and the field."""

    def __init__(self, document: Mapping[str, Json], label: str, remedy: str) -> None:
        """Take an object; `label` begins every message, so it must be fit to print."""
        self._document = document
        self._asked: set[str] = set()
        self.label = label
        self.remedy = remedy

    def fault(self, text: str) -> Unusable:
        """Make an error about this object."""
        return Unusable(f"{self.label} {text}.", remedy=self.remedy)

    def get(self, name: str) -> Json:
        """Give a field as it is; None where it is absent or null."""
        self._asked.add(name)
        return self._document.get(name)

    def required(self, name: str) -> Json:
        """Give a field that must be there."""
        if name not in self._document:
            raise self.fault(f"has no `{name}`")
        return self.get(name)

    def text(self, name: str) -> str:
        """Give a string that must be there."""
        return self._as_text(name, self.required(name))

    def optional_text(self, name: str) -> str | None:
        """Give a string, or None."""
        value = self.get(name)
        return None if value is None else self._as_text(name, value)

    def _as_text(self, name: str, value: Json) -> str:
        if not isinstance(value, str) or len(value) > _LONGEST:
            raise self.fault(f"has a `{name}` that is not a string of at most {_LONGEST:,} letters")
        return value

    def sha256(self, name: str) -> str:
        """Give a SHA-256 in lowercase hex that must be there."""
        return self._as_sha256(name, self.required(name))

    def optional_sha256(self, name: str) -> str | None:
        """Give a SHA-256 in lowercase hex, or None."""
        value = self.get(name)
        return None if value is None else self._as_sha256(name, value)

    def _as_sha256(self, name: str, value: Json) -> str:
        if not isinstance(value, str) or not _SHA256.fullmatch(value):
            raise self.fault(f"has a `{name}` that is not 64 lowercase hex digits")
        return value

    def count(self, name: str, *, least: int = 0) -> int:
        """Give an integer that must be there."""
        return self._as_count(name, self.required(name), least)

    def optional_count(self, name: str, *, least: int = 0) -> int | None:
        """Give an integer, or None."""
        value = self.get(name)
        return None if value is None else self._as_count(name, value, least)

    def _as_count(self, name: str, value: Json, least: int) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value < _LARGEST:
            raise self.fault(f"has a `{name}` that is not an integer of at least {least}")
        return value

    def flag(self, name: str, *, default: bool | None = None) -> bool:
        """Give a boolean; it must be there unless there is a default."""
        value = self.required(name) if default is None else self.optional_flag(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, bool):
            raise self.fault(f"has a `{name}` that is not true or false")
        return value

    def optional_flag(self, name: str) -> bool | None:
        """Give a boolean, or None."""
        value = self.get(name)
        if value is not None and not isinstance(value, bool):
            raise self.fault(f"has a `{name}` that is not true or false")
        return value

    def mapping(self, name: str) -> dict[str, Json]:
        """Give an object that must be there."""
        value = self.required(name)
        if not isinstance(value, dict):
            raise self.fault(f"has a `{name}` that is not an object")
        return value

    def optional_mapping(self, name: str) -> dict[str, Json] | None:
        """Give an object, or None."""
        return None if self.get(name) is None else self.mapping(name)

    def objects(self, name: str) -> list[Fields]:
        """Give a list of objects that must be there."""
        value = self.required(name)
        if not isinstance(value, list):
            raise self.fault(f"has a `{name}` that is not a list")
        return [self._item(name, index, each) for index, each in enumerate(value)]

    def _item(self, name: str, index: int, value: Json) -> Fields:
        if not isinstance(value, dict):
            raise self.fault(f"has a `{name}` whose item {index} is not an object")
        return Fields(value, f"`{name}[{index}]` of {self.label}", self.remedy)

    def inner(self, name: str) -> Fields:
        """Give the fields of an object that must be there."""
        return Fields(self.mapping(name), f"`{name}` of {self.label}", self.remedy)

    def optional_inner(self, name: str) -> Fields | None:
        """Give the fields of an object, or None."""
        return None if self.get(name) is None else self.inner(name)

    def texts(self, name: str) -> tuple[str, ...]:
        """Give a list of strings that must be there."""
        value = self.required(name)
        if not isinstance(value, list):
            raise self.fault(f"has a `{name}` that is not a list")
        return tuple(self._as_text(name, each) for each in value)

    def schema(self, wanted: str) -> None:
        """Demand a schema."""
        found = self.get("schema")
        if found != wanted:
            shown = f"`{printable(found[:80])}`" if isinstance(found, str) else "none"
            raise self.fault(f"has not the schema `{wanted}` but {shown}")

    def nothing_else(self) -> None:
        """Refuse fields that nobody asked for."""
        for name in self._document:
            if name not in self._asked:
                raise self.fault(f"has a key `{printable(name[:80])}` that is not known")
