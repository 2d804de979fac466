"""One line of a checksum list, in whichever dialect."""

from __future__ import annotations

import re
from typing import NamedTuple

from .algorithms import HEX_LENGTH, by_length, by_tag
from .dialects import Dialect

_UNTAGGED = re.compile(r"([0-9A-Fa-f]+)([ \t])([ *]?)(.*)", re.DOTALL)
_TAGGED = re.compile(r"([A-Za-z][A-Za-z0-9/_-]*)( ?)\((.*)\)[ \t]*=[ \t]*([0-9A-Fa-f]+)", re.DOTALL)
_ESCAPE = re.compile(r"\\(.?)", re.DOTALL)
_ESCAPED = {"\\": "\\", "n": "\n", "r": "\r"}


class BadLine(Exception):
    """A line is not understood; the text completes "line N …"."""


class Parsed(NamedTuple):
    """What a line says, and how; `name` still has to be judged."""

    name: str
    algorithm: str
    digest: str
    dialects: tuple[Dialect, ...]


def parse_line(line: str, label: str) -> Parsed:
    """Parse one line without its line ending. Raises BadLine."""
    dialects: list[Dialect] = []
    text = line.lstrip(" \t")
    if len(text) != len(line):
        dialects.append(Dialect.LEADING_SPACE)
    escaped = text.startswith("\\")
    text = text[escaped:]
    if found := _UNTAGGED.fullmatch(text):
        digits, separator, mark, name = found.groups()
        algorithm = by_length(len(digits), label)
        if algorithm is None:
            raise BadLine(f"has {len(digits):,} hexadecimal digits, as no known digest has")
        dialects.extend(_separation(separator, mark))
    elif found := _TAGGED.fullmatch(text):
        tag, space, name, digits = found.groups()
        algorithm = by_tag(tag)
        if algorithm is None:
            raise BadLine(f"gives a digest of a kind that is not known: {tag[:40]}")
        if len(digits) != HEX_LENGTH[algorithm]:
            raise BadLine(
                f"has {len(digits):,} hexadecimal digits; {tag[:40]} has {HEX_LENGTH[algorithm]}"
            )
        dialects.append(Dialect.TAGGED if space else Dialect.OPENSSL)
    elif text.startswith("-----BEGIN PGP SIGNED MESSAGE-----"):
        raise BadLine(
            "begins a clearsigned OpenPGP message, and what is around it would pass unsigned; "
            "get the list with a detached signature"
        )
    else:
        raise BadLine("is no line of a checksum list")
    if escaped:
        dialects.append(Dialect.ESCAPED)
        name = _ESCAPE.sub(_unescaped, name)
    elif "\r" in name:
        raise BadLine("holds a carriage return")
    if name.startswith("./"):
        dialects.append(Dialect.DOT_SLASH)
        name = name[2:]
    if not digits.islower() and not digits.isdigit():
        dialects.append(Dialect.UPPER_CASE)
    if algorithm != "sha256":
        dialects.append(Dialect.OTHER_ALGORITHM)
    return Parsed(name, algorithm, digits.lower(), tuple(dialects))


def _separation(separator: str, mark: str) -> list[Dialect]:
    if separator == "\t":
        return [Dialect.TAB]
    if not mark:
        return [Dialect.ONE_SPACE]
    return [Dialect.BINARY] if mark == "*" else []


def _unescaped(found: re.Match[str]) -> str:
    char = _ESCAPED.get(found[1])
    if char is None:
        raise BadLine("escapes a character that needs none")
    return char
