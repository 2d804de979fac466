"""Where a link of custody goes, how files are called in it, and that it never stops a stage."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from ...errors import ReefError
from ...records.custody import Artifact, Link, append
from ...records.custody_lines import FILE
from ..readable import FileReadable, Readable

_LEVELS = 3  # a dump keeps its chain in the output folder, at most two levels above a file
_BLOCK = 1 << 20


def chain_folder(folder: Path) -> Path:
    """Give the nearest folder that has a chain, at most two levels up; or the folder itself."""
    folder = Path(os.path.realpath(folder))
    for each in (folder, *folder.parents)[:_LEVELS]:
        if os.path.lexists(each / FILE):
            return each
    return folder


def recorded(folder: Path | int, make: Callable[[], Link]) -> str | None:
    """Append a link; give a sentence that says why there is none, where that fails.

    The stage has done its work: nothing about custody may undo or hide that.
    """
    try:
        append(folder, make())
    except (ReefError, OSError) as error:
        reason = error.message if isinstance(error, ReefError) else f"{error.strerror}."
        remedy = error.remedy if isinstance(error, ReefError) else None
        return f"Not recorded in {FILE}: {reason}" + (f" {remedy}" if remedy else "")
    return None


def described(readable: Readable, path: Path | None, folder: Path) -> Artifact:
    """Hash what is open. `path` is None for a process's; raises what reading raises.

    What lies outside of the folder gets a name that no file in it can have.
    """
    digest = hashlib.sha256()
    offset = 0
    while block := readable.read(offset, min(_BLOCK, readable.size - offset)):
        digest.update(block)
        offset += len(block)
    name = None if path is None else name_in(path, folder)
    shown = name or f"../{readable.label if path is None else path.name}"
    return Artifact(shown, digest.hexdigest(), offset, elsewhere=name is None)


def files(paths: Iterable[Path], folder: Path) -> tuple[Artifact, ...]:
    """Hash files that are read besides; what is no file is left out."""
    found: list[Artifact] = []
    for path in paths:
        if path.is_file():
            with FileReadable(path) as file:
                found.append(described(file, path, folder))
    return tuple(found)


def name_in(path: Path, folder: Path) -> str | None:
    """Give the name relative to the chain's folder with `/`; None for what lies elsewhere."""
    real = os.path.join(os.path.realpath(path.parent), path.name)
    root = os.path.realpath(folder)
    if not real.startswith(root.rstrip(os.sep) + os.sep):
        return None
    return os.path.relpath(real, root).replace(os.sep, "/")
