"""One file as content: for what speaks of files and is given one."""

from __future__ import annotations

import os
import stat
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO, cast

from ...errors import NotPermitted, Unusable
from ...records.names import printable
from ..finding import Finding
from .members import Member


class SingleFile:
    """A file, called by its own name; the last part of its path may not be a link."""

    def __init__(self, path: Path) -> None:
        """Look at it. Raises Unusable for what is no file, NotPermitted."""
        self.label = printable(os.fsencode(path))
        self._path = path
        try:
            found = os.lstat(path)
        except (OSError, ValueError) as error:
            raise self._unreadable(error) from None
        if not stat.S_ISREG(found.st_mode):
            what = "a link" if stat.S_ISLNK(found.st_mode) else "no regular file"
            raise Unusable(f"{self.label} is {what}.", remedy="Name the file itself, or a folder.")
        self.members = (Member(path.name, size=found.st_size),)
        self.findings: tuple[Finding, ...] = ()

    def open(self, member: Member) -> AbstractContextManager[BinaryIO]:
        """Open it, unbuffered. Raises Unusable, NotPermitted."""
        flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
        flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
        try:
            return cast("BinaryIO", open(os.open(self._path, flags), "rb", buffering=0))
        except OSError as error:
            raise self._unreadable(error) from None

    def _unreadable(self, error: OSError | ValueError) -> Unusable | NotPermitted:
        if isinstance(error, PermissionError):
            remedy = "Run this as a user who may read it."
            return NotPermitted(f"{self.label} cannot be read: {error.strerror}.", remedy=remedy)
        reason = error.strerror if isinstance(error, OSError) else error
        return Unusable(f"{self.label} cannot be read: {reason}.", remedy="Check the path.")
