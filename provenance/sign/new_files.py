"""Several files that belong together: all of them appear, or none."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...records.new_file import new_file, refuse_existing


@dataclass(frozen=True)
class NewFile:
    """A file to be: its content, and the mode that the umask may narrow."""

    path: Path
    data: bytes
    mode: int = 0o644


def put_files(files: Sequence[NewFile], *, force: bool = False) -> None:
    """Write the files; they get their names in the order given, once all of them are on the disk.

    When one cannot be written, none is left that was not there before. A crash in between leaves
    the first few, each whole. Raises DestinationExists, Unusable.
    """
    for file in files:
        refuse_existing(file.path, force=force)
    former = {file.path for file in files if os.path.lexists(file.path)}
    try:
        with contextlib.ExitStack() as stack:
            for file in reversed(files):
                open_file = stack.enter_context(new_file(file.path, force=force, mode=file.mode))
                open_file.write(file.data)
    except BaseException:
        for path in _published(files, former):
            with contextlib.suppress(OSError):
                os.unlink(path)
        raise


def _published(files: Sequence[NewFile], former: set[Path]) -> Iterator[Path]:
    """Name the files that are new and ours: another's that took a name is told by its content."""
    for file in files:
        if file.path not in former and file.path.is_file():
            with contextlib.suppress(OSError):
                if file.path.read_bytes() == file.data:
                    yield file.path
