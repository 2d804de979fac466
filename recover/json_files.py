"""JSON files that come from outside, read strictly and bounded."""

from __future__ import annotations

import json
import os
from pathlib import Path

from ..errors import ReefError, Unusable
from ..records.names import printable
from ..records.strict_json import Json, parse_object
from .readable import FileReadable

CONFIG_LIMIT = 16 << 20
INDEX_LIMIT = 64 << 20


def read_object(path: Path, limit: int) -> dict[str, Json]:
    """Read a file that holds one JSON object of at most `limit` bytes.

    Raises Unusable that names the file and the fault, NotPermitted.
    """
    with FileReadable(path) as file:
        if file.size > limit:
            raise Unusable(
                f"{file.label} has {file.size:,} bytes, more than the {limit:,} that are read.",
                remedy="Check that it is the file that was meant.",
            )
        return parse_object(file.read(0, limit + 1), printable(os.fsencode(path.name)))


def gives(path: Path, key: str) -> bool:
    """Tell whether Python's own JSON, which is less strict, finds a key in a file.

    A file that is too large to be tried counts as if it did: nothing is known of it.
    """
    try:
        with FileReadable(path) as file:
            if file.size > INDEX_LIMIT:
                return True
            document = json.loads(file.read(0, file.size))
    except (ReefError, ValueError, RecursionError):
        return False
    return isinstance(document, dict) and key in document
