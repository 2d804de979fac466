"""Names that some file systems take for one: by case, by Unicode normal form, file and folder."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator

from ...records.names import printable
from ..finding import Finding, FindingKind


def twins_among(names: Iterable[str]) -> tuple[Finding, ...]:
    """Find members, and folders on the way to them, that macOS or Windows could not keep apart.

    Both fold case and, on APFS, normal forms; what is a file and a folder at once exists nowhere.
    Names that are equal are not looked at: that is for the container to say.
    """
    names = list(names)
    joined = "\n".join(names)
    if joined.isascii() and _differ_in_lower_case(names, joined):
        return ()
    members: dict[str, str] = {}
    folders: dict[str, str] = {}
    pairs: dict[tuple[str, str], None] = {}
    for name in names:
        _put(name, members, pairs)
        for folder in _folders_above(name):
            if folders.get(_key(folder)) == folder:
                break
            _put(folder, folders, pairs)
    for key, folder in folders.items():
        if key in members:
            pairs[folder, members[key]] = None
    return tuple(_finding(*pair) for pair in pairs)


def _differ_in_lower_case(names: list[str], joined: str) -> bool:
    """Tell what most lists are, ten times as fast."""
    lines = joined.lower().split("\n")
    files = set(lines)
    if len(files) != len(names) or len(lines) != len(names):  # a name may hold a newline
        return False
    folders: set[str] = set()
    above = {name.rpartition("/")[0] for name in names} - {""}
    while above:
        folders |= above
        above = {folder.rpartition("/")[0] for folder in above} - folders - {""}
    lowered = {folder.lower() for folder in folders}
    return len(lowered) == len(folders) and files.isdisjoint(lowered)


def _put(name: str, seen: dict[str, str], pairs: dict[tuple[str, str], None]) -> None:
    other = seen.setdefault(_key(name), name)
    if other != name:
        pairs[name, other] = None


def _folders_above(name: str) -> Iterator[str]:
    while "/" in name:
        name = name.rpartition("/")[0]
        if name:
            yield name


def _key(name: str) -> str:
    if name.isascii():
        return name.lower()
    folded = unicodedata.normalize("NFC", name).casefold()
    return unicodedata.normalize("NFC", folded)


def _finding(name: str, other: str) -> Finding:
    if name == other:
        text = f"{printable(name)} is a file and a folder at once."
    else:
        same = unicodedata.normalize("NFC", name) == unicodedata.normalize("NFC", other)
        by = "Unicode normal form" if same else "case"
        text = (
            f"{printable(name)} and {printable(other)} differ only in {by}: "
            "macOS and Windows take them for one."
        )
    return Finding(FindingKind.TWIN_NAMES, name, text)
