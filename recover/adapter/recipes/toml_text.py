"""Read TOML with the lines of its keys, as well as they can be told."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import cast

from .document import MAX_DEPTH, Node, Pairs, broken, joined, too_large

_TABLE = re.compile(r"\s*\[{1,2}\s*([^\[\]]+?)\s*\]{1,2}\s*(?:#.*)?$")
_KEY = re.compile(r"\s*([\w.\"' -]+?)\s*=")
MAX_TOML = 1 << 20
# The parser's effort grows with the square of a dotted key's length.
_DEEP_KEY = re.compile(
    rf"""(?<![\w-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){{{MAX_DEPTH}}}""", re.ASCII
)
_LONG_LINE = 1_000
_FAULT_LINE = re.compile(r"at line (\d+)")


def parse_toml(text: str, name: str) -> Node:
    """Parse a TOML document. Raises Unusable with the line of a fault, and past a bound."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    if len(text) > MAX_TOML:
        raise too_large(name, f"more than {MAX_TOML:,} characters of TOML")
    if _DEEP_KEY.search(text):
        raise too_large(name, f"more than {MAX_DEPTH} levels of nesting")
    try:
        loaded: Mapping[str, object] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _FAULT_LINE.search(str(error))
        raise broken(name, int(found[1]) if found else 1, "this is not TOML") from None
    except (RecursionError, ValueError):
        raise broken(name, 1, "this is not TOML") from None
    return _node(loaded, "", _lines(text), name, 0)


def _lines(text: str) -> Mapping[str, int]:
    """Find the line of each key; text inside strings may mislead it, about the line only."""
    found: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > _LONG_LINE:
            continue
        header = _TABLE.match(line)
        if header:
            table = _plain(header[1])
            found.setdefault(table, number)
            continue
        key = _KEY.match(line)
        if key:
            found.setdefault(f"{table}.{_plain(key[1])}" if table else _plain(key[1]), number)
    return found


def _plain(key: str) -> str:
    return ".".join(part.strip().strip("\"'") for part in key.split("."))


def _node(value: object, path: str | None, lines: Mapping[str, int], name: str, depth: int) -> Node:
    if depth > MAX_DEPTH:
        raise too_large(name, f"more than {MAX_DEPTH} levels of nesting")
    line = lines.get(path or "", 1)
    if isinstance(value, dict):
        members = cast("dict[str, object]", value)
        pairs: list[tuple[str, Node]] = []
        for key, member in members.items():
            below = joined(path, key)
            pairs.append((key, _node(member, below, lines, name, depth + 1)))
        return Node(line, line, Pairs(tuple(pairs)))
    if isinstance(value, list):
        items = cast("list[object]", value)
        return Node(line, line, tuple(_node(i, path, lines, name, depth + 1) for i in items))
    if isinstance(value, (bool, int, float, str)):
        return Node(line, line, value)
    return Node(line, line, str(value))  # dates and times
