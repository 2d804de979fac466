"""Walk the JSON of a safetensors header, and build nothing but its tensors and its metadata.

Python's parser would take gigabytes for 100 MB of brackets, merge duplicate names, and pass what
serde_json refuses: NaN, infinite numbers, half surrogate pairs, deep nesting. Here it only reads
scalars, and a regular expression takes whole entries in the form that the library writes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from sys import intern
from types import MappingProxyType
from typing import NoReturn

from .safetensors_errors import BadEntry, BadMetadata, DuplicateName, HeaderNotJson, shown

Entry = tuple[str, str, tuple[int, ...], int, int]

JSON_START = 8
USIZE = 2**64
_METADATA = "__metadata__"
_FIELDS = ("dtype", "shape", "data_offsets")
_DEEPEST = 127
_MOST_VALUES = 1_000_000
_SPACES = re.compile(r"[ \t\n\r]*")
_NUMBER = r"(?:0|[1-9][0-9]{0,18})"
_AS_WRITTEN = re.compile(
    rf'"(?!{_METADATA}")([^"\\\x00-\x1f]*)": ?\{{"dtype": ?"([A-Z0-9_]+)", ?'
    rf'"shape": ?\[((?:{_NUMBER}(?:, ?{_NUMBER}){{0,15}})?)\], ?'
    rf'"data_offsets": ?\[({_NUMBER}), ?({_NUMBER})\]\}}'
)


def parse(text: str) -> tuple[list[Entry], Mapping[str, str] | None]:
    """Give (name, dtype, shape, begin, end) of each tensor as it stands, and the metadata.

    Raises HeaderNotJson, DuplicateName, BadMetadata and BadEntry. Whether dtypes, sizes and offsets
    make sense is left to the caller.
    """
    return _Walk(text).header()


class _Walk:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.values_left = _MOST_VALUES

    def header(self) -> tuple[list[Entry], Mapping[str, str] | None]:
        names: set[str] = set()
        entries: list[Entry] = []
        metadata: Mapping[str, str] | None = None
        if self.peek() != "{":
            self.fail("it is not an object")
        for _ in self.elements("}"):
            self.values_left = _MOST_VALUES
            start = self.at
            written = _AS_WRITTEN.match(self.text, start)
            if written:
                self.at = written.end()
                name, dtype, sizes, begin, end = written.groups()
                shape = tuple(map(int, sizes.split(","))) if sizes else ()
                entry = (name, intern(dtype), shape, int(begin), int(end))
            else:
                name, entry = self.key(), None
            if name in names:
                raise DuplicateName(name, self.offset(start))
            names.add(name)
            if name == _METADATA:
                metadata = self.metadata()
            else:
                entries.append(entry or self.entry(name))
        if self.peek():
            self.refuse_rest()
        return entries, metadata

    def entry(self, name: str) -> Entry:
        # serde also takes an array of the three fields, and a dtype in the form {"F32":null}.
        opening = self.peek()
        if opening not in ("{", "["):
            raise BadEntry(name, None, "is not an object")
        in_order = iter(_FIELDS)
        seen: set[str] = set()
        dtype = ""
        shape: tuple[int, ...] = ()
        offsets: tuple[int, ...] = ()
        for _ in self.elements("}" if opening == "{" else "]"):
            field = self.key() if opening == "{" else next(in_order, None)
            if field is None:
                raise BadEntry(name, None, "is an array of more than 3 values")
            if field in seen:
                raise BadEntry(name, field, "is there twice")
            if field == "dtype":
                dtype = self.dtype(name)
            elif field == "shape":
                shape = self.integers(name, field)
            elif field == "data_offsets":
                offsets = self.integers(name, field)
            else:
                self.value(depth=3)
                continue
            seen.add(field)
        for field in _FIELDS:
            if field not in seen:
                raise BadEntry(name, field, "is missing")
        if len(offsets) != 2:
            raise BadEntry(name, "data_offsets", f"has length {len(offsets):,}, not 2")
        return name, dtype, shape, offsets[0], offsets[1]

    def dtype(self, name: str) -> str:
        value: object
        if self.peek() == "{":
            pairs = [(self.key(), self.value(depth=4)) for _ in self.elements("}")]
            value = pairs[0][0] if [null for _, null in pairs] == [None] else None
        else:
            value = self.value(depth=3)
        if not isinstance(value, str):
            raise BadEntry(name, "dtype", "is not a string")
        return intern(value)

    def integers(self, name: str, field: str) -> tuple[int, ...]:
        if self.peek() != "[":
            raise BadEntry(name, field, "is not a list")
        numbers: list[int] = []
        for _ in self.elements("]"):
            start = self.at
            value = self.value(depth=4)
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < USIZE:
                wrong = shown(self.text[start : self.at])
                raise BadEntry(name, field, f"holds {wrong}, not an integer from 0 to 2**64 - 1")
            numbers.append(value)
        return tuple(numbers)

    def metadata(self) -> Mapping[str, str] | None:
        first = self.peek()
        start = self.at
        if first != "{":
            if self.value(depth=2) is not None:
                raise BadMetadata(self.offset(start), "is neither an object nor null")
            return None
        entries: dict[str, str] = {}
        for _ in self.elements("}"):
            key = self.key()
            self.peek()
            start = self.at
            value = self.value(depth=3)
            if not isinstance(value, str):
                raise BadMetadata(self.offset(start), "is not a string", key)
            entries[key] = value
        return MappingProxyType(entries)

    def value(self, *, depth: int) -> object:
        """Pass over a value; give a scalar as it is, and an empty tuple for anything else."""
        first = self.peek()
        if first not in ("{", "["):
            return self.scalar()
        if depth > _DEEPEST:
            self.fail(f"it nests more than {_DEEPEST} deep")
        for _ in self.elements("}" if first == "{" else "]"):
            if first == "{":
                self.key()
            self.value(depth=depth + 1)
        return ()

    def elements(self, close: str) -> Iterator[None]:
        """Stand before each element in turn; the opening bracket is next, the caller reads on."""
        self.at += 1
        following = self.peek()
        while following != close:
            self.values_left -= 1
            if self.values_left < 0:
                self.fail(f"a single entry holds more than {_MOST_VALUES:,} values")
            yield
            following = self.peek()
            if following == ",":
                self.at += 1
                self.peek()
            elif following != close:
                self.fail(f"`,` or `{close}` is missing")
        self.at += 1

    def key(self) -> str:
        name = self.scalar() if self.peek() == '"' else None
        if not isinstance(name, str):
            self.fail("a name in quotes is missing")
        if self.peek() != ":":
            self.fail("`:` is missing")
        self.at += 1
        return name

    def scalar(self) -> object:
        start = self.at
        try:
            value, self.at = _SCALARS.raw_decode(self.text, start)
        except json.JSONDecodeError as error:
            self.at = error.pos
            self.fail(error.msg[0].lower() + error.msg[1:].removesuffix(" at"))
        except ValueError as error:
            self.fail(str(error))
        if isinstance(value, str) and not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                self.at = start
                self.fail("a string holds half a surrogate pair")
        return value

    def peek(self) -> str:
        """Pass over white space and give the next character, or nothing at the end."""
        spaces = _SPACES.match(self.text, self.at)
        if spaces:
            self.at = spaces.end()
        return self.text[self.at : self.at + 1]

    def offset(self, position: int) -> int:
        if self.text.isascii():
            return JSON_START + position
        return JSON_START + len(self.text[:position].encode())

    def fail(self, reason: str) -> NoReturn:
        raise HeaderNotJson(self.offset(self.at), reason)

    def refuse_rest(self) -> NoReturn:
        rest = self.text[self.at :]
        if rest.strip("\0"):
            self.fail("more characters follow the object")
        raise HeaderNotJson(
            self.offset(self.at),
            f"{len(rest):,} NUL bytes pad it",
            remedy="Replace the NUL bytes with spaces; no data moves.",
        )


def _integer(text: str) -> int | float:
    # serde_json reads -0 as a float, and longer numbers too, as far as a float reaches.
    if text == "-0":
        return -0.0
    return int(text) if len(text) <= 20 else _float(text)


def _float(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError("a number is out of range")
    return value


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON value")


_SCALARS = json.JSONDecoder(parse_int=_integer, parse_float=_float, parse_constant=_no_constant)
