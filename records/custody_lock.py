"""One writer of a chain of custody at a time, on every system."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Generator
from pathlib import Path

from ..errors import Unusable
from .names import printable

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

PATIENCE = 10.0  # seconds; a link takes milliseconds
_PAUSE = 0.01
_CREATE = 0o600


@contextlib.contextmanager
def locked(path: Path) -> Generator[int]:
    """Keep other writers of the file out; give the mode that the file has, or shall have.

    Makes an empty file where there is none. Raises Unusable.
    """
    end = time.monotonic() + PATIENCE
    while True:
        with contextlib.ExitStack() as stack:
            mode = _taken(path, stack)
            if mode is not None:
                yield mode
                return
        if time.monotonic() > end:
            raise Unusable(
                f"Another command keeps writing to {printable(path.name)}.",
                remedy="Wait for it, and run this again.",
            )
        time.sleep(_PAUSE)


def _taken(path: Path, stack: contextlib.ExitStack) -> int | None:
    """Take the lock, or give None where another one has it, or has just replaced the file."""
    try:
        if fcntl is None:
            return _taken_by_name(path, stack)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(path, flags, _CREATE)
        stack.callback(os.close, fd)
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise Unusable(f"{printable(path.name)} is no file.", remedy="Move it away.")
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(found, os.lstat(path)):
                return stat.S_IMODE(found.st_mode)
        return None
    except BlockingIOError:
        return None
    except OSError as error:
        raise Unusable(
            f"Cannot write {printable(path.name)}: {os.strerror(error.errno or 0).lower()}.",
            remedy="Make the folder writable, or work on a copy of it.",
        ) from None


def _taken_by_name(path: Path, stack: contextlib.ExitStack) -> int | None:
    lock = path.with_name(path.name + ".lock")
    try:
        os.close(os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _CREATE))
    except FileExistsError:
        return None
    stack.callback(os.unlink, lock)
    return _CREATE
