"""A manifest's bytes, and TOML made to what JSON can say."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from ...errors import NotPermitted, Unusable
from ...records.names import printable
from ...records.strict_json import Json

LIMIT = 16 << 20
_DEEPEST = 32
_REMEDY = "Correct the manifest; docs/gate.md describes it."


def read_bytes(path: Path, limit: int = LIMIT) -> bytes:
    """Read a regular file of at most `limit` bytes. Raises Unusable, NotPermitted."""
    label = printable(os.fsencode(path))
    try:
        # Without O_NONBLOCK, opening a named pipe would wait for a writer.
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with open(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise Unusable(f"{label} is not a regular file.", remedy="Name a regular file.")
            data = file.read(limit + 1)
    except PermissionError as error:
        raise NotPermitted(
            f"{label} cannot be read: {error.strerror}.",
            remedy="Run this as a user who may read it.",
        ) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "its name is not one"
        raise Unusable(f"{label} cannot be read: {reason}.", remedy="Check the path.") from None
    if len(data) > limit:
        raise Unusable(
            f"{label} has more than the {limit:,} bytes that are read.",
            remedy="Check that it is the file that was meant.",
        )
    return data


def parse_toml(raw: bytes, label: str) -> dict[str, Json]:
    """Parse TOML; dates, infinities and NaN, which JSON has not, are refused. Raises Unusable."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        text = raw.decode("utf-8")
        document: dict[str, Any] = tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise Unusable(f"{label} is not UTF-8 at offset {error.start:,}.", remedy=_REMEDY) from None
    except (ValueError, RecursionError) as error:
        reason = printable(str(error).split("\n")[0][:200]) or "too deep"
        raise Unusable(f"{label} is not valid TOML: {reason}.", remedy=_REMEDY) from None
    return {name: _as_json(value, label, 1) for name, value in document.items()}


def _as_json(value: Any, label: str, depth: int) -> Json:
    if depth > _DEEPEST:
        raise Unusable(f"{label} nests more than {_DEEPEST} deep.", remedy=_REMEDY)
    if isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        return {name: _as_json(each, label, depth + 1) for name, each in table.items()}
    if isinstance(value, list):
        items = cast("Sequence[Any]", value)
        return [_as_json(each, label, depth + 1) for each in items]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        raise Unusable(f"{label} holds a number that is not finite.", remedy=_REMEDY)
    if isinstance(value, (bool, int, float, str)):
        return value
    raise Unusable(f"{label} holds a date or time, which nothing here takes.", remedy=_REMEDY)
