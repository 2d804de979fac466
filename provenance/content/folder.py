"""A folder as it lies on disk: every file in it, at any depth, and nothing outside of it."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO, cast

from ...errors import NotPermitted, Unusable
from ...records.names import printable
from ..finding import Finding, FindingKind
from .folder_access import HAS_REPARSE_TAGS, folder_access, is_link
from .members import Member, MemberKind
from .name_bytes import member_name, name_bytes
from .shown import shown
from .twins import twins_among

_MOST_MEMBERS = 2_000_000
_DEEPEST = 256
_KINDS = {
    stat.S_IFREG: MemberKind.FILE,
    stat.S_IFDIR: MemberKind.EMPTY_FOLDER,
    stat.S_IFLNK: MemberKind.LINK,
}


class FolderContent:
    """The members of a folder, listed once; no link is followed and nothing is left out."""

    def __init__(self, path: Path, *, most: int = _MOST_MEMBERS, deepest: int = _DEEPEST) -> None:
        """List it. Raises Unusable when it is no folder, is too large or nests too deep."""
        self.label = printable(os.fspath(path))
        self._most = most
        self._deepest = deepest
        self._unreadable: list[Finding] = []
        try:
            self._access = folder_access(path)
            found = self._listed()
        except PermissionError as error:
            raise NotPermitted(
                f"{self.label} cannot be listed: {error.strerror}.",
                remedy="Run this as a user who may read it.",
            ) from None
        except OSError as error:
            raise Unusable(
                f"{self.label} cannot be listed: {error.strerror}.",
                remedy="Name a folder that exists.",
            ) from None
        found.sort(key=lambda member: name_bytes(member.name))
        self.members = tuple(found)
        twins = twins_among(member.name for member in self.members)
        self.findings = (*self._unreadable, *twins)

    def open(self, member: Member) -> AbstractContextManager[BinaryIO]:
        """Open a file, unbuffered. Raises Unusable when it is none (any more), NotPermitted."""
        return cast(
            "BinaryIO", open(self._descriptor(member, self._access.open), "rb", buffering=0)
        )

    def read_small(self, member: Member) -> bytes:
        """Read a file that was listed as small: all of it, or one byte more than was listed.

        20,000 file objects cost more than what is read with them. What is no file any more gives
        an error, or other bytes than were listed. Raises as `open`, and OSError.
        """
        fd = self._descriptor(member, self._access.open_any)
        try:
            data = os.read(fd, member.size + 1)
            while 0 < len(data) < member.size and (more := os.read(fd, member.size)):
                data += more
            return data
        finally:
            os.close(fd)

    def _descriptor(self, member: Member, opened: Callable[[str], int]) -> int:
        if member.kind is not MemberKind.FILE:
            raise Unusable(
                f"{shown(member.name)} is a {member.kind.value}: it is not read.",
                remedy="Put a copy of what is meant in its place.",
            )
        try:
            return opened(member.name)
        except PermissionError as error:
            raise NotPermitted(
                f"{shown(member.name)} cannot be read: {error.strerror}.",
                remedy="Run this as a user who may read it.",
            ) from None
        except OSError as error:
            why = "a link is in its way" if error.errno == errno.ELOOP else error.strerror
            raise Unusable(
                f"{shown(member.name)} cannot be opened as the file that was listed: {why}.",
                remedy="Run this again when nobody changes the folder.",
            ) from None

    def _listed(self) -> list[Member]:
        waiting = [""]
        found: list[Member] = []
        while waiting:
            folder = waiting.pop()
            if folder.count("/") >= self._deepest:
                raise Unusable(
                    f"{self.label} nests more than {self._deepest} folders deep.",
                    remedy="Look at what lies there: no evidence does.",
                )
            before = len(found) + len(waiting)
            try:
                self._list_one(folder, found, waiting)
            except OSError as error:
                if not folder:
                    raise
                text = f"{shown(folder)} cannot be listed: {error.strerror}."
                self._unreadable.append(Finding(FindingKind.UNREADABLE, folder, text))
            else:
                if folder and len(found) + len(waiting) == before:
                    found.append(Member(folder, MemberKind.EMPTY_FOLDER))
        return found

    def _list_one(self, folder: str, found: list[Member], folders: list[str]) -> None:
        start = folder + "/" if folder else ""
        kinds = _KINDS
        with self._access.scan(folder) as entries:
            for entry in entries:
                seen = entry.stat(follow_symlinks=False)
                kind = kinds.get(stat.S_IFMT(seen.st_mode), MemberKind.SPECIAL)
                if HAS_REPARSE_TAGS and is_link(seen):
                    kind = MemberKind.LINK
                name = start + member_name(entry.name)
                if kind is MemberKind.FILE:
                    found.append(Member(name, kind, seen.st_size))
                elif kind is MemberKind.EMPTY_FOLDER:
                    folders.append(name)  # it is not known yet whether it is empty
                else:
                    found.append(Member(name, kind))
                if len(found) + len(folders) > self._most:
                    raise Unusable(
                        f"{self.label} holds more than {self._most:,} files.",
                        remedy="Name the folder of the evidence itself.",
                    )
