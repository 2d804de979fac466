"""Where a finding is shown: a path relative to where the command runs, as CI systems want it."""

from __future__ import annotations

import os
from urllib.parse import quote

from .result import Verification


def path_of(result: Verification, path: str | None) -> str:
    """Give the path of the file that a finding is about; the container where that is one file."""
    if result.base is None or path is None:
        return _relative(result.base if result.container is None else result.container)
    return _relative(os.path.join(result.base, path))


def uri_of(result: Verification, path: str | None) -> str:
    """Give the same as a URI reference, every byte outside of the unreserved escaped."""
    found = path_of(result, path).replace(os.sep, "/")
    try:
        raw = found.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # half a pair of UTF-16, as Windows allows in names
        raw = found.encode("utf-8", "surrogatepass")
    encoded = quote(raw, safe="/")
    return f"file://{encoded}" if found.startswith("/") else encoded


def _relative(path: str | None) -> str:
    absolute = os.path.abspath(path or ".")
    try:
        found = os.path.relpath(absolute)
    except ValueError:  # another drive
        return absolute
    return absolute if found.split(os.sep)[0] == os.pardir else found
