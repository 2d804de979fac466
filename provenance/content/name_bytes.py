"""File names as bytes and as members call them, whatever the locale is."""

from __future__ import annotations

import os
import sys

# Windows gives UTF-16, of which half a pair has no bytes of its own.
_ERRORS = "surrogatepass" if sys.platform == "win32" else "surrogateescape"
_DECODES_ALIKE = sys.platform == "win32" or sys.getfilesystemencoding() == "utf-8"


def name_bytes(name: str) -> bytes:
    """Give the bytes of a member's name: what it is sorted by, and called on disk by POSIX."""
    return name.encode("utf-8", _ERRORS)


def member_name(found: str) -> str:
    """Give the member's name for one that os.scandir gave, which depends on the locale."""
    if _DECODES_ALIKE:
        return found
    return os.fsencode(found).decode("utf-8", "surrogateescape")


def path_argument(name: str) -> str | bytes:
    """Give what os.open wants for a member's name."""
    return name if _DECODES_ALIKE else name_bytes(name)
