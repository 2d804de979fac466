"""A file that appears under its name only once it is whole: by temporary name, fsync and rename."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import zlib
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import BinaryIO

from ..errors import DestinationExists, Unusable
from .names import printable

# What only writing fails with: the block of `new_file` may read other files, too.
_WRITING = {errno.ENOSPC, errno.EFBIG, errno.EROFS, getattr(errno, "EDQUOT", errno.ENOSPC)}


@contextlib.contextmanager
def new_file(path: Path, *, force: bool = False, mode: int = 0o644) -> Generator[BinaryIO]:
    """Open a file for writing and reading; it replaces nothing unless `force` is given.

    When the block raises, nothing is left. The temporary name follows from the file's, so that
    what a crash leaves behind goes with the next attempt: one writer at a time. The umask may
    narrow `mode`. Works on every system. Raises DestinationExists, and Unusable where nothing can
    be written.
    """
    refuse_existing(path, force=force)
    try:
        with unpublished(path, mode=mode) as file:
            yield file
        publish(path, force=force)
    except BaseException:
        discard(path)
        raise


@contextlib.contextmanager
def unpublished(path: Path, *, mode: int = 0o644) -> Generator[BinaryIO]:
    """Open a file's temporary, in place of what a crash left there; in the end it is on the disk.

    Whoever calls this publishes or discards it. Raises Unusable where nothing can be written.
    """
    temporary = temporary_of(path)
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        fd = os.open(temporary, flags, mode)
    except OSError as error:
        raise _unwritable(path, error) from None
    try:
        with open(fd, "w+b") as file:
            yield file
            _to_disk(path, file)
    except OSError as error:
        if error.errno in _WRITING:
            raise _unwritable(path, error) from None
        raise


def discard(path: Path) -> None:
    """Remove a file's temporary, if it can be."""
    with contextlib.suppress(OSError):
        os.unlink(temporary_of(path))


def temporary_of(path: Path) -> Path:
    """Give the name that the file has until it is whole, and that a crash may leave behind."""
    return path.with_name(f".{zlib.crc32(os.fsencode(path.name)):08x}.reefkit.tmp")


def refuse_existing(path: Path, *, force: bool) -> None:
    """Refuse a destination that is taken, before any work is done for it.

    Raises DestinationExists, and Unusable for what no file can replace.
    """
    label = printable(os.fsencode(path))
    if not path.name:
        raise Unusable(f"{label or 'An empty path'} names no file.", remedy="Name one with --out.")
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    except (OSError, ValueError) as error:
        raise Unusable(f"{label}: {error}.", remedy="Choose another --out.") from None
    if not stat.S_ISREG(found.st_mode):
        raise Unusable(f"{label} is there and is no file.", remedy="Choose another --out.")
    if not force:
        raise DestinationExists(
            f"{label} exists already.", remedy="Choose another --out, or overwrite with --force."
        )


def refuse_inputs(path: Path, inputs: Iterable[Path]) -> None:
    """Refuse an output that is, or lies inside, one of the inputs; links are resolved.

    Raises Unusable.
    """
    try:
        real = Path(os.path.realpath(path))
        for each in inputs:
            if any(_is_same(place, each) for place in (real, *real.parents)):
                what = printable(os.fsencode(each))
                raise Unusable(
                    f"{printable(os.fsencode(path))} "
                    + ("is" if _is_same(real, each) else f"lies in {what}, which is")
                    + " to be read.",
                    remedy="Choose another --out: what is read is never written to.",
                )
    except (OSError, ValueError) as error:
        raise Unusable(
            f"{printable(os.fsencode(path))}: {error}.", remedy="Choose another --out."
        ) from None


def _is_same(one: Path, other: Path) -> bool:
    """Compare places, by what is there where something is: file systems may ignore case."""
    try:
        return os.path.samefile(one, other)
    except OSError:
        return one == Path(os.path.realpath(other))


def _to_disk(path: Path, file: BinaryIO) -> None:
    try:
        file.flush()
        os.fsync(file.fileno())
    except OSError as error:
        raise _unwritable(path, error) from None


def publish(path: Path, *, force: bool) -> None:
    """Give a file's temporary the file's name. Raises DestinationExists, Unusable."""
    temporary = temporary_of(path)
    try:
        if force or not _linked(temporary, path):
            refuse_existing(path, force=force)
            os.replace(temporary, path)
        if hasattr(os, "O_DIRECTORY"):
            folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
    except OSError as error:
        raise _unwritable(path, error) from None


def _linked(temporary: Path, path: Path) -> bool:
    """Give the file its name, which no other may have taken; False where there are no links."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        refuse_existing(path, force=False)
        raise
    except (OSError, NotImplementedError):
        return False
    os.unlink(temporary)
    return True


def _unwritable(path: Path, error: OSError) -> Unusable:
    return Unusable(
        f"Cannot write {printable(os.fsencode(path))}: {os.strerror(error.errno or 0).lower()}.",
        remedy="Choose an --out in a folder that can be written, on a disk with room for it.",
    )
