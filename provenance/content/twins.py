"""Names that some file systems take for one: by case, by Unicode normal form, file and folder."""

from __future__ import annotations

import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

from ..finding import Finding, FindingKind
from .shown import code_points, shown


def twins_among(names: Iterable[str]) -> tuple[Finding, ...]:
    """Find members, and folders on the way to them, that macOS or Windows could not keep apart.

    Both fold case and, on APFS, normal forms; what is a file and a folder at once exists nowhere.
    Names that are equal are not looked at: that is for the container to say. What follows for
    folders within twins is not said again. Time and memory grow as the length of all names.
    """
    names = list(names)
    keys = _keys(names)
    pairs = dict.fromkeys(_members(names, keys))
    above = {name.rpartition("/")[0] for name in names} - {""}
    if above:
        spelled = list(above)
        folders = sorted(zip(_ending_in_slash(_keys(spelled)), spelled, strict=True))
        pairs.update(dict.fromkeys(_folders(folders)))
        pairs.update(dict.fromkeys(_folders_that_are_files(names, keys, folders)))
    return tuple(_finding(*pair) for pair in pairs)


def _keys(names: Sequence[str]) -> list[str]:
    joined = "\n".join(names)
    if joined.isascii():
        keys = joined.lower().split("\n")
        if len(keys) == len(names):  # a name may hold a newline
            return keys
    return [_key(name) for name in names]


def _key(name: str) -> str:
    if name.isascii():
        return name.lower()
    folded = unicodedata.normalize("NFC", name).casefold()
    return unicodedata.normalize("NFC", folded)


def _ending_in_slash(keys: list[str]) -> list[str]:
    return [key + "/" for key in keys]


def _members(names: list[str], keys: list[str]) -> Iterator[tuple[str, str]]:
    if len(set(keys)) == len(keys):
        return
    seen: dict[str, str] = {}
    for key, name in zip(keys, names, strict=True):
        other = seen.setdefault(key, name)
        if other != name:
            yield name, other


def _folders(folders: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Compare neighbours: folders whose keys begin alike lie side by side in the sorted list."""
    before: list[tuple[str, str]] = []
    for key, folder in folders:
        parts = list(zip(key.split("/"), folder.split("/"), strict=False))
        for depth, (mine, other) in enumerate(zip(parts, before, strict=False), 1):
            if mine[0] != other[0]:
                break
            if mine[1] != other[1]:
                pair = (_joined(parts[:depth]), _joined(before[:depth]))
                yield max(pair), min(pair)
                break
        before = parts


def _joined(parts: Iterable[tuple[str, str]]) -> str:
    return "/".join(part for _, part in parts)


def _folders_that_are_files(
    names: list[str], keys: list[str], folders: list[tuple[str, str]]
) -> Iterator[tuple[str, str]]:
    parts = {part for key, _ in folders for part in key.split("/")}
    for key, name in zip(keys, names, strict=True):
        if key.rpartition("/")[2] in parts:
            at = bisect_left(folders, (key + "/",))
            if at < len(folders) and folders[at][0].startswith(key + "/"):
                yield "/".join(folders[at][1].split("/")[: key.count("/") + 1]), name


def _finding(name: str, other: str) -> Finding:
    if name == other:
        return Finding(
            FindingKind.TWIN_NAMES, name, f"{shown(name)} is a file and a folder at once."
        )
    same = unicodedata.normalize("NFC", name) == unicodedata.normalize("NFC", other)
    by = "Unicode normal form" if same else "case"
    points = code_points(name, other)
    text = (
        f"{shown(name)} and {shown(other)} differ only in {by}{f' ({points})' if points else ''}: "
        "macOS and Windows take them for one."
    )
    return Finding(FindingKind.TWIN_NAMES, name, text)
