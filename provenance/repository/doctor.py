"""Look at a repository for whatever would change evidence bytes, and write what prevents it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import NotPermitted, Unusable
from ...records.documents import read_file, write_atomically
from ...records.names import printable
from .attributes import FILE as ATTRIBUTES
from .attributes import attribute_hazards
from .editor_config import editor_hazards
from .git import git, top_level
from .hazard import Hazard
from .places import Place, places
from .pre_commit import pre_commit_hazards

SCHEMA = "reefkit.archive-doctor/1"
_LIMIT = 16 << 20
_COMMENT = "# Evidence is checked byte for byte."


@dataclass(frozen=True)
class Examination:
    """A repository's root, the evidence in it, what may change it, and what was written."""

    root: Path
    places: tuple[Place, ...]
    hazards: tuple[Hazard, ...]
    written: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """Give the document of `reef-archive doctor --json`."""
        return {
            "schema": SCHEMA,
            "ok": not self.hazards,
            "root": os.fsdecode(self.root),
            "places": [{"folder": p.folder, "files": len(p.files)} for p in self.places],
            "hazards": [hazard.to_json() for hazard in self.hazards],
            "written": list(self.written),
        }


def examine(folder: Path) -> Examination:
    """Find the evidence that git tracks, or would, and what may change its bytes.

    Raises Unusable outside a repository and for configurations that cannot be read.
    """
    if not folder.is_dir():
        raise Unusable(
            f"{printable(os.fspath(folder))} is no folder.", remedy="Name one in a repository."
        )
    root = top_level(folder)
    if root is None:
        raise Unusable(
            f"{printable(os.fspath(folder))} lies in no git repository.",
            remedy="Name a folder of the repository that keeps the evidence.",
        )
    listed = git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard") or b""
    found = places(os.fsdecode(name) for name in listed.split(b"\0")[:-1])
    return Examination(root, found, tuple(_hazards(root, found)))


def _hazards(root: Path, found: Sequence[Place]) -> Iterator[Hazard]:
    for place in found:
        yield from attribute_hazards(root, place)
    yield from pre_commit_hazards(root, found)
    yield from editor_hazards(root, found)


def mend(examination: Examination) -> tuple[str, ...]:
    """Append to .gitattributes the lines that prevent what git would do; give those written.

    The old content stays as it is; the file is replaced atomically. Raises NotPermitted.
    """
    wanted = dict.fromkeys(
        hazard.line
        for hazard in examination.hazards
        if hazard.writable and hazard.line is not None and hazard.file == ATTRIBUTES
    )
    if not wanted:
        return ()
    try:
        folder = os.open(examination.root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            present = read_file(folder, ATTRIBUTES, _LIMIT) or b""
            if present and not present.endswith(b"\n"):
                present += b"\n"
            added = os.fsencode("\n".join([_COMMENT, *wanted]) + "\n")
            write_atomically(folder, ATTRIBUTES, present + added, 0o644)
        finally:
            os.close(folder)
    except (OSError, ValueError) as error:
        raise NotPermitted(
            f"{ATTRIBUTES} could not be written: {error}.",
            remedy="Add the lines by hand: run this again without --fix.",
        ) from None
    return tuple(wanted)
