"""Read strict JSON with the lines of its values; repeated keys are kept."""

from __future__ import annotations

import re
from dataclasses import replace
from json import JSONDecodeError, JSONDecoder

from .document import MAX_DEPTH, MAX_ENTRIES, Node, Pairs, broken, too_large

_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?", re.ASCII)
_WORDS: dict[str, bool | None] = {"true": True, "false": False, "null": None}
_STRINGS = JSONDecoder()
_MAX_DIGITS = 1_000


def parse_json(text: str, name: str) -> Node:
    """Parse one JSON value. Raises Unusable with the line of a fault, and past a bound."""
    parser = _Parser(text, name)
    node = parser.value(0)
    if parser.skip() != len(text):
        raise parser.fault("something follows the JSON value")
    return node


class _Parser:
    """A position in the text, with the number of its line."""

    def __init__(self, text: str, name: str) -> None:
        self._text = text
        self._name = name
        self._position = 0
        self._line = 1
        self._counted = 0
        self._values = 0

    def fault(self, what: str) -> Exception:
        return broken(self._name, self._here(), f"{what} (JSON)")

    def _here(self) -> int:
        self._line += self._text.count("\n", self._counted, self._position)
        self._counted = self._position
        return self._line

    def skip(self) -> int:
        found = _SPACE.match(self._text, self._position)
        if found:
            self._position = found.end()
        return self._position

    def _taken(self, char: str) -> bool:
        if self._text.startswith(char, self.skip()):
            self._position += len(char)
            return True
        return False

    def value(self, depth: int) -> Node:
        self._values += 1
        if depth > MAX_DEPTH or self._values > MAX_ENTRIES:
            raise too_large(self._name, f"more than {MAX_DEPTH} levels or {MAX_ENTRIES:,} values")
        start = self._text[self.skip() : self._position + 1]
        if start == "{" and self._taken("{"):
            return self._object(depth)
        if start == "[" and self._taken("["):
            return self._array(depth)
        line = self._here()
        if start == '"':
            return Node(line, line, self._string())
        if start.isdigit():
            return Node(line, line, self._number())
        for word, value in _WORDS.items():
            if self._taken(word):
                return Node(line, line, value)
        return Node(line, line, self._number())

    def _object(self, depth: int) -> Node:
        line = self._here()
        pairs: list[tuple[str, Node]] = []
        closed = self._taken("}")
        while not closed:
            if not self._text.startswith('"', self.skip()):
                raise self.fault("a key in quotes is missing")
            key, place = self._string(), self._here()
            if not self._taken(":"):
                raise self.fault("a colon is missing")
            pairs.append((key, replace(self.value(depth + 1), line=place)))
            closed = self._taken("}")
            if not closed and not self._taken(","):
                raise self.fault("a comma or a closing brace is missing")
        return Node(line, self._here(), Pairs(tuple(pairs)))

    def _array(self, depth: int) -> Node:
        line = self._here()
        items: list[Node] = []
        closed = self._taken("]")
        while not closed:
            items.append(self.value(depth + 1))
            closed = self._taken("]")
            if not closed and not self._taken(","):
                raise self.fault("a comma or a closing bracket is missing")
        return Node(line, self._here(), tuple(items))

    def _string(self) -> str:
        try:
            value, self._position = _STRINGS.raw_decode(self._text, self._position)
        except JSONDecodeError:
            raise self.fault("a string is not closed or holds a bad escape") from None
        return str(value)

    def _number(self) -> int | float:
        found = _NUMBER.match(self._text, self._position)
        if not found:
            raise self.fault("a value is missing")
        if found.end() - found.start() > _MAX_DIGITS:
            raise self.fault("a number is too long")
        self._position = found.end()
        return float(found[0]) if found[1] or found[2] else int(found[0])
