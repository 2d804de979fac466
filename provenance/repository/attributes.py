"""Which attributes and settings of git change bytes on the way in or out: gitattributes(5)."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from .git import git
from .hazard import Hazard
from .places import Place

FILE = ".gitattributes"
LINE_ATTRIBUTES = "-text -ident -filter -working-tree-encoding -export-subst -export-ignore"
_ASKED = (
    "text",
    "eol",
    "ident",
    "filter",
    "working-tree-encoding",
    "export-subst",
    "export-ignore",
)
_HARMLESS = {"unspecified", "unset"}
_EFFECTS = {
    "ident": "`ident` replaces $Id$ in them",
    "working-tree-encoding": "`working-tree-encoding` re-encodes them",
    "export-subst": "`export-subst` edits them in `git archive`",
    "export-ignore": "`export-ignore` leaves them out of `git archive`",
}


def attribute_hazards(root: Path, place: Place) -> Iterator[Hazard]:
    """Say what git may change of a place's files, by the attributes that each of them has."""
    values = _attributes(root, place.files)
    fits = f"{place.pattern} {LINE_ATTRIBUTES}"
    converted = [name for name, found in values.items() if found.get("text") != "unset"]
    if converted:
        yield Hazard(
            place.folder,
            FILE,
            len(converted),
            "git may convert their line endings: `text` is not unset, so a clone with "
            "core.autocrlf has other bytes",
            fits,
        )
    for attribute, effect in _EFFECTS.items():
        hit = [name for name, found in values.items() if found[attribute] not in _HARMLESS]
        if hit:
            yield Hazard(place.folder, FILE, len(hit), effect, fits)
    filtered: dict[str, list[str]] = defaultdict(list)
    for name, found in values.items():
        if found["filter"] not in _HARMLESS:
            filtered[found["filter"]].append(name)
    for name, hit in filtered.items():
        if name == "lfs":
            continue  # gives back the very bytes; `verify` knows a pointer when it meets one
        yield Hazard(place.folder, FILE, len(hit), f"the filter `{name}` rewrites them", fits)


def _attributes(root: Path, files: Sequence[str]) -> dict[str, dict[str, str]]:
    asked = b"".join(os.fsencode(name) + b"\0" for name in files)
    answer = git(root, "check-attr", "--stdin", "-z", *_ASKED, stdin=asked) or b""
    values: dict[str, dict[str, str]] = defaultdict(dict)
    fields = answer.split(b"\0")[:-1]
    for name, attribute, value in zip(fields[::3], fields[1::3], fields[2::3], strict=True):
        values[os.fsdecode(name)][attribute.decode()] = value.decode("utf-8", "replace")
    return values
