"""Find what a cell's artifacts must equal."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from ...errors import ReefError
from ...records.names import printable
from ...recover.readable import Readable
from .files import Files, FolderFiles, OneFile, is_folder
from .manifest import Cell
from .patterns import filled


@dataclass(frozen=True)
class Reference:
    """What one cell's artifacts must equal on one rank.

    With `only` it has one file for the only artifact, whatever that is called. `pins` are digests
    that the manifest states; `recorded` those that the report recorded, by which a difference
    shows where the files themselves (`files`) are not here, and nothing passes.
    """

    files: Files | None = None
    only: bool = False
    pins: Mapping[str, str] = field(default_factory=lambda: dict[str, str]())
    recorded: Mapping[str, str] = field(default_factory=lambda: dict[str, str]())
    fault: str | None = None

    @property
    def is_here(self) -> bool:
        """Tell whether something other than the report says what it is."""
        return self.files is not None or bool(self.pins)

    def names(self) -> Sequence[str]:
        """Name the artifacts that there is a reference for."""
        if self.files is not None:
            return list(self.files.names())
        return list(self.pins or self.recorded)

    def named(self, artifact: str) -> str:
        """Give the reference's own name for an artifact."""
        return self.files.names()[0] if self.only and self.files is not None else artifact

    def sha256(self, artifact: str) -> str:
        """Give the reference's SHA-256. Raises Unusable, NotPermitted, KeyError."""
        if self.files is not None:
            return self.files.sha256(self.named(artifact))[0]
        return (self.pins or self.recorded)[artifact]

    def open(self, artifact: str) -> AbstractContextManager[Readable] | None:
        """Open the reference; None where its bytes are not here."""
        return None if self.files is None else self.files.open(self.named(artifact))


def find_reference(
    cell: Cell,
    values: Mapping[str, str],
    folder: Path | None,
    files_of: Callable[[str], Files],
    recorded: Mapping[str, str],
) -> Reference | None:
    """Find what a cell is to equal; None where it is to equal nothing.

    `folder` is where the manifest lies, None when that is not known; `files_of` gives the
    artifacts of another cell on the same rank. What cannot be read becomes the `fault`.
    """
    wanted = cell.reference
    if wanted.is_none:
        return None
    if wanted.cell is not None:
        return Reference(files=files_of(wanted.cell))
    if wanted.path is None:
        return Reference(pins=wanted.sha256)
    path = filled(wanted.path, values)
    label = printable(os.fsencode(path))
    if folder is not None:
        there = folder / path
        try:
            if is_folder(there):
                return Reference(files=FolderFiles(there), pins=wanted.sha256)
            if there.exists():
                return Reference(files=OneFile(there), only=True, pins=wanted.sha256)
        except ReefError as error:
            return Reference(fault=f"the reference cannot be used: {error.message}")
        except (OSError, ValueError):
            return Reference(fault=f"the reference {label} cannot be looked at")
    if wanted.sha256 or recorded:
        return Reference(pins=wanted.sha256, recorded=recorded)
    return Reference(fault=f"the reference {label} is not here")
