"""The file of a zip: read at any place by any thread, through one descriptor."""

from __future__ import annotations

import os
import stat
import threading
import weakref
from pathlib import Path

from ...errors import NotPermitted, Unusable
from ...records.names import printable
from .read_flags import READ_FLAGS

_FLAGS = READ_FLAGS | getattr(os, "O_NONBLOCK", 0)


class ZipSource:
    """A regular file, held open until `close`; its size is the one that it had when opened."""

    def __init__(self, path: Path) -> None:
        """Open it. Raises Unusable, NotPermitted."""
        self.label = printable(os.fspath(path))
        try:
            self._fd = os.open(path, _FLAGS)
        except PermissionError as error:
            raise NotPermitted(
                f"{self.label} cannot be read: {error.strerror}.",
                remedy="Run this as a user who may read it.",
            ) from None
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise Unusable(
                f"{self.label} cannot be opened: {reason}.", remedy="Name a file that exists."
            ) from None
        self._finalizer = weakref.finalize(self, os.close, self._fd)
        seen = os.fstat(self._fd)
        if not stat.S_ISREG(seen.st_mode):
            self.close()
            raise Unusable(f"{self.label} is no regular file.", remedy="Name a zip file.")
        self.size = seen.st_size
        self._lock = threading.Lock()
        self._by_position = hasattr(os, "pread")

    def close(self) -> None:
        """Close it; members cannot be read any more."""
        self._finalizer()

    def read_at(self, offset: int, length: int) -> bytes:
        """Read exactly `length` bytes. Raises Unusable when the file ends before."""
        data = self._read(offset, length) if offset <= self.size else b""
        while len(data) < length:
            more = self._read(offset + len(data), length - len(data)) if data else b""
            if not more:
                raise Unusable(
                    f"{self.label} ends within what it should hold, or shrank meanwhile.",
                    remedy="Get the file from its source again.",
                )
            data += more
        return data

    def readinto_at(self, offset: int, buffer: memoryview) -> int:
        """Read some bytes into a buffer and give their count; 0 at the end of the file."""
        if hasattr(os, "preadv"):
            self._refuse_closed()
            return os.preadv(self._fd, [buffer], offset)
        data = self._read(offset, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _read(self, offset: int, length: int) -> bytes:
        self._refuse_closed()
        if self._by_position:
            return os.pread(self._fd, length, offset)
        with self._lock:
            os.lseek(self._fd, offset, os.SEEK_SET)
            return os.read(self._fd, length)

    def _refuse_closed(self) -> None:
        if not self._finalizer.alive:
            raise ValueError("the zip is closed")
