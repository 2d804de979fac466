"""JSON documents and small files, written so that a crash leaves the old one or the new one."""

from __future__ import annotations

import contextlib
import os
import stat
import zlib
from collections.abc import Mapping


def to_text(document: Mapping[str, object]) -> str:
    """Give the form of every JSON file written here: sorted keys, no NaN, newline at the end."""
    import json

    return json.dumps(document, indent=2, sort_keys=True, allow_nan=False) + "\n"


def write_atomically(
    folder: int, name: str, data: bytes, mode: int = 0o600, *, durable: bool = True
) -> None:
    """Write `name` in the folder held open as `folder`: temporary file, fsync, rename, fsync.

    Without `durable` there is no fsync: a crash of the process leaves the old file or the new
    one, one of the machine may leave neither.

    The file replaces what was there; a link there is replaced, not followed. The temporary name
    follows from `name`, so that what a crash leaves behind goes with the next write: one writer
    at a time. Raises OSError.
    """
    temporary = f".{zlib.crc32(os.fsencode(name)):08x}.reefkit.tmp"
    _remove(folder, temporary)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(temporary, flags, mode, dir_fd=folder)
    try:
        with open(fd, "wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(fd)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        _remove(folder, temporary)
        raise
    if durable:
        os.fsync(folder)


def _remove(folder: int, name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def read_file(folder: int, name: str, limit: int) -> bytes | None:
    """Read a regular file of at most `limit` bytes; None when there is none. Follows no link.

    Raises OSError, and ValueError when it is larger.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(name, flags, dir_fd=folder)
    except FileNotFoundError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        with open(fd, "rb", closefd=False) as file:
            data = file.read(limit + 1)
    finally:
        os.close(fd)
    if len(data) > limit:
        raise ValueError(f"larger than {limit} bytes")
    return data
