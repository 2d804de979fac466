"""Bytes that can be read at an offset, whether of a file or of a process's memory."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import Protocol

from ..errors import NotPermitted, ReefError, Unusable
from ..records.names import printable
from .ranges import Range


class Readable(Protocol):
    """Bytes that can be read at an offset."""

    @property
    def size(self) -> int:
        """The number of bytes."""
        ...

    @property
    def label(self) -> str:
        """What to call it in messages; safe to print."""
        ...

    @property
    def doubt(self) -> str | None:
        """Say why these may not be all of the file's bytes; None when they surely are."""
        ...

    def read(self, offset: int, length: int) -> bytes:
        """Read bytes; fewer than asked for only at the end."""
        ...


class FileReadable:
    """A regular file, open for reading until the context ends; its size is that at opening."""

    def __init__(self, path: Path) -> None:
        """Open the file. Raises NotPermitted, or Unusable for what is not a regular file."""
        self.label = printable(os.fsencode(path))
        try:
            # Without O_NONBLOCK, opening a named pipe would wait for a writer.
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise unreadable(self.label, error) from error
        status = os.fstat(self._fd)
        if not stat.S_ISREG(status.st_mode):
            os.close(self._fd)
            raise Unusable(f"{self.label} is not a regular file.", remedy="Name a regular file.")
        self.size = status.st_size
        self.doubt: str | None = None
        if path.name.endswith(".partial"):
            self.doubt = f"{self.label} is an incomplete recovery; what is missing reads as zeros."
        if not self.size and os.pread(self._fd, 1, 0):
            os.close(self._fd)
            raise Unusable(f"{self.label} has no length (a file of /proc or /sys).")

    def read(self, offset: int, length: int) -> bytes:
        """Read bytes; fewer than asked for only at the end. Raises NotPermitted or Unusable."""
        try:
            return os.pread(self._fd, length, offset)
        except OSError as error:
            raise unreadable(self.label, error) from error

    def stamp(self) -> tuple[int, int, int]:
        """Give what changes whenever the file does: its size, and the times of mtime and ctime."""
        status = os.fstat(self._fd)
        return status.st_size, status.st_mtime_ns, status.st_ctime_ns

    def holes(self) -> tuple[Range, ...]:
        """Give the ranges that the filesystem stores nothing for, and which read as zeros.

        Empty where it cannot tell (lseek(2): SEEK_HOLE, SEEK_DATA).
        """
        found: list[Range] = []
        position = 0
        with contextlib.suppress(OSError):
            while position < self.size:
                hole = os.lseek(self._fd, position, os.SEEK_HOLE)
                if hole >= self.size:
                    break
                try:
                    position = min(os.lseek(self._fd, hole, os.SEEK_DATA), self.size)
                except OSError as error:
                    if error.errno != errno.ENXIO:
                        raise
                    position = self.size
                found.append(Range(hole, position))
        return tuple(found)

    def __enter__(self) -> FileReadable:
        """Give the file itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        os.close(self._fd)


def read_exactly(source: Readable, offset: int, length: int) -> bytes:
    """Read bytes that lie inside the source's size. Raises Unusable if they no longer do."""
    data = source.read(offset, length)
    if len(data) != length:
        raise Unusable(
            f"{source.label} became shorter while it was read.",
            remedy="Repeat this once nothing writes to it.",
        )
    return data


def unreadable(label: str, error: OSError) -> ReefError:
    """Turn the kernel's refusal into an error that says what to do."""
    message = f"{label} cannot be read: {error.strerror}."
    if isinstance(error, PermissionError):
        return NotPermitted(message, remedy="Run this as a user who may read it.")
    return Unusable(message, remedy="Check the path and the disk that it is on.")
