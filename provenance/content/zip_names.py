"""The name of a zip's entry: how its bytes are to be read, and why it may be dangerous."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...records.names import printable
from ..finding import Finding, FindingKind
from ..sums.names import fault_in
from .shown import shown
from .zip_entry import UNIX, UTF8, Entry
from .zip_extra import Extra

# Legal elsewhere, and the zip program of Windows writes another character in their place.
_NOT_ON_WINDOWS = str.maketrans("", "", '<>:"|?*')
_DEVICE = re.compile(
    r"(?:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[1-9¹²³])[ ]*(?:[.:].*)?", re.I
)


@dataclass(frozen=True)
class ZipName:
    """A name without the slash that marks folders, and the finding that it makes, if any.

    `dialect` says in which unusual way it is written, or is None.
    """

    text: str
    finding: Finding | None
    dialect: str | None = None


def name_of(entry: Entry, extra: Extra) -> ZipName:
    """Read the name. Bytes that are no UTF-8 though they should be become surrogate escapes."""
    raw = entry.raw_name
    dialect = None
    if raw.isascii():
        text = raw.decode("ascii")
    elif entry.flags & UTF8:
        text = raw.decode("utf-8", "surrogateescape")
    elif extra.unicode_name == raw or (entry.system == UNIX and _is_utf8(raw)):
        text, dialect = raw.decode("utf-8", "surrogateescape"), "a name whose encoding is unmarked"
    else:
        text, dialect = raw.decode("cp437"), "a name in the character set of the first PC"
    if extra.unicode_name is not None and extra.unicode_name != text.encode(
        "utf-8", "surrogateescape"
    ):
        other = shown(extra.unicode_name)
        finding = Finding(
            FindingKind.HEADERS_DIFFER,
            text.removesuffix("/"),
            f"{shown(text)} has a second name, {other}: readers differ in which they take.",
        )
        return ZipName(text.removesuffix("/"), finding)
    plain = text.removesuffix("/")
    fault = name_fault(plain)
    if fault is not None:
        finding = Finding(FindingKind.UNSAFE_NAME, plain, f"The name {shown(text)} {fault}.")
        return ZipName(plain, finding)
    if plain.translate(_NOT_ON_WINDOWS) != plain:
        dialect = "a name with a character that Windows does not allow"
    return ZipName(plain, None, dialect)


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def name_fault(name: str) -> str | None:
    """Say why a name would do harm or become another one, as the end of "it …", or None."""
    if "\\" in name:
        return "holds a backslash"
    fault = fault_in(name)
    if fault is not None:
        return f"is {fault}"
    try:
        name.encode()
    except UnicodeEncodeError:
        return "is not UTF-8, though it says so"
    if not name.isprintable() and printable(name) != name:
        return "holds control or format characters"
    return _fault_on_windows(name)


def _fault_on_windows(name: str) -> str | None:
    for part in name.split("/"):
        if part.endswith((" ", ".")):
            return "has a part that ends with a space or a dot, which Windows drops"
        if _DEVICE.fullmatch(part):
            return "means a device on Windows"
    return None
