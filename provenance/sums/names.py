"""Which names a checksum list may hold, and which of them every checksum tool understands.

A name is relative to the folder that is verified. What would lead out of it, or to a device, is a
fault on every system, because a list made on one is read on the others.
"""

from __future__ import annotations

import re
import unicodedata

# The names that need no escape anywhere; also the fast path of the reader, where `\n` follows.
PORTABLE_NAME = (
    r"(?!-(?:\n|\Z)|[ ]|[A-Za-z]:)"
    r"(?:(?!\.\.?(?:[/\n]|\Z))[^/\\\x00-\x1f\x7f-\x9f\ud800-\udfff]+(?:/(?!\n|\Z)|(?=\n|\Z)))+"
    r"(?<! )"
)
_PORTABLE = re.compile(PORTABLE_NAME)
_DRIVE = re.compile(r"[A-Za-z]:")
LONGEST = 4096  # bytes: PATH_MAX of Linux
DEEPEST = 256
SURELY_FITS = 512  # characters: too few for too many bytes, or for too many folders with names
_SEPARATORS = re.compile(r"[/\\]")


def is_portable(name: str) -> bool:
    """Tell whether every checksum tool understands a name; then nothing is wrong with it."""
    return size_fault(name) is None and _PORTABLE.fullmatch(name) is not None


def size_fault(name: str) -> str | None:
    """Say of a name that is too long or too deep for any evidence, as the end of "it is …".

    To be asked before anything is built from a name: all folders on the way to a file take the
    square of what its name takes.
    """
    if len(name) <= SURELY_FITS:
        return None
    if len(name) > LONGEST or len(name.encode("utf-8", "surrogatepass")) > LONGEST:
        return f"longer than {LONGEST:,} bytes"
    return f"more than {DEEPEST:,} folders deep" if name.count("/") > DEEPEST else None


def fault_in(name: str) -> str | None:
    """Say why a name is refused in any list, as the end of "it is …", or None for a fit one."""
    if is_portable(name):
        return None
    if not name:
        return "empty"
    fault = size_fault(name)
    if fault is not None:
        return fault
    if "\0" in name:
        return "a name with a NUL character"
    if name == "-":
        return "`-`, which tools read as standard input"
    if name == "/dev" or name.startswith("/dev/"):
        return "a device"
    if name.startswith("/"):
        return "an absolute path"
    if name.startswith("\\\\"):
        return "a path of a network share or a device of Windows"
    if name.startswith("\\"):
        return "an absolute path of Windows"
    if _DRIVE.match(name):
        return "a path on a drive of Windows"
    if ".." in _SEPARATORS.split(name):
        return "a path that leads out of the folder"
    parts = name.split("/")
    if "" in parts:
        return "a path with an empty part"
    return "a path with a `.` in it" if "." in parts else None


def portability_fault(name: str) -> str | None:
    """Say why some checksum tool would misread a name, as the end of "it …"; None for a safe one.

    Coreutils escapes these, other tools do not understand the escapes, and spaces at an end are
    lost on the way. What `fault_in` refuses is no portable name, either.
    """
    if is_portable(name):
        return None
    fault = fault_in(name)
    if fault is not None:
        return f"is {fault}"
    if "\\" in name:
        return "holds a backslash"
    if any(unicodedata.category(char) == "Cc" for char in name):
        return "holds a control character"
    if name.startswith(" ") or name.endswith(" "):
        return "begins or ends with a space"
    return "is not UTF-8"
