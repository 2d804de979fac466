"""Open what lies below a folder, so that no link leads outside, not even one swapped in."""

from __future__ import annotations

import os
import stat
import threading
import weakref
from collections import OrderedDict
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

from .name_bytes import path_argument
from .read_flags import READ_FLAGS

_HELD_OPEN = 64
_NAME_SURROGATE = 0x2000_0000  # the bit of a reparse tag that says: stands for another place
HAS_REPARSE_TAGS = hasattr(os.stat_result, "st_reparse_tag")
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_NO_WAIT = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
_READ_FILE = READ_FLAGS | _NO_LINK | _NO_WAIT
_FOLDER = getattr(os, "O_DIRECTORY", 0)


class FolderAccess(Protocol):
    """Reach folders and files by names relative to the root; the empty name is the root."""

    def scan(self, folder: str) -> AbstractContextManager[Iterator[os.DirEntry[str]]]:
        """List a folder; ask entries within the context. Raises OSError."""
        ...

    def open(self, name: str) -> int:
        """Open a regular file and give the descriptor. Raises OSError, also for all else."""
        ...

    def open_any(self, name: str) -> int:
        """Open what is there, but no link, without waiting for anybody. Raises OSError."""
        ...


def folder_access(root: Path) -> FolderAccess:
    """Choose what this system can do. Raises OSError when the root is no folder."""
    by_handle = os.open in os.supports_dir_fd and os.scandir in os.supports_fd and _NO_LINK
    return _ByHandle(root) if by_handle else _ByPath(root)


class _ByHandle:
    """Part by part from a folder that is held open: POSIX."""

    def __init__(self, root: Path) -> None:
        self._open: OrderedDict[str, int] = OrderedDict()
        self._lock = threading.Lock()
        self._root = os.open(root, READ_FLAGS | _FOLDER)
        weakref.finalize(self, _close_all, self._root, self._open)

    @contextmanager
    def scan(self, folder: str) -> Generator[Iterator[os.DirEntry[str]]]:
        handle = self._handle(folder)
        try:
            with os.scandir(handle) as entries:
                yield entries
        finally:
            os.close(handle)

    def open(self, name: str) -> int:
        return _regular(self.open_any(name))

    def open_any(self, name: str) -> int:
        parent, _, last = name.rpartition("/")
        with self._lock:
            return os.open(path_argument(last), _READ_FILE, dir_fd=self._held(parent))

    def _handle(self, folder: str) -> int:
        """Give a handle of the caller's own, so that no other thread closes it."""
        with self._lock:
            return os.dup(self._held(folder))

    def _held(self, folder: str) -> int:
        held = self._open.get(folder) if folder else self._root
        if held is not None:
            return held
        known, missing = folder, list[str]()
        while known and known not in self._open:
            known, _, last = known.rpartition("/")
            missing.append(last)
        handle = self._open[known] if known else self._root
        for part in reversed(missing):
            handle = os.open(path_argument(part), READ_FLAGS | _FOLDER | _NO_LINK, dir_fd=handle)
            known = f"{known}/{part}" if known else part
            self._open[known] = handle
        while len(self._open) > _HELD_OPEN and len(self._open) > len(missing):
            os.close(self._open.popitem(last=False)[1])
        return handle


class _ByPath:
    """By whole paths, each part looked at first: where nothing better is offered (Windows)."""

    def __init__(self, root: Path) -> None:
        if not stat.S_ISDIR(os.stat(root).st_mode):
            raise NotADirectoryError(20, "it is no folder", os.fspath(root))
        self._root = os.path.abspath(root)

    def scan(self, folder: str) -> AbstractContextManager[Iterator[os.DirEntry[str]]]:
        return os.scandir(self._checked(folder))

    def open_any(self, name: str) -> int:
        return self.open(name)

    def open(self, name: str) -> int:
        parent, _, last = name.rpartition("/")
        path = os.path.join(self._checked(parent), last)
        before = os.lstat(path)
        if not stat.S_ISREG(before.st_mode) or is_link(before):
            raise OSError(40, "it is no regular file any more", path)
        fd = os.open(path, _READ_FILE)
        if not os.path.samestat(before, os.fstat(fd)):
            os.close(fd)
            raise OSError(40, "it was replaced while it was opened", path)
        return _regular(fd)

    def _checked(self, folder: str) -> str:
        path = self._root
        for part in folder.split("/") if folder else ():
            path = os.path.join(path, part)
            seen = os.lstat(path)
            if is_link(seen) or not stat.S_ISDIR(seen.st_mode):
                raise NotADirectoryError(20, "it is no folder any more", path)
        return path


def is_link(seen: os.stat_result) -> bool:
    """Say whether it stands for another place: a symbolic link, or a junction of Windows."""
    return stat.S_ISLNK(seen.st_mode) or bool(getattr(seen, "st_reparse_tag", 0) & _NAME_SURROGATE)


def _regular(fd: int) -> int:
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise OSError(40, "it is no regular file any more")


def _close_all(root: int, opened: OrderedDict[str, int]) -> None:
    for handle in (root, *opened.values()):
        os.close(handle)
