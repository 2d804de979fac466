"""The files that a lone checksum file names, in the folder that it lies in, and nothing else."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO, cast

from ...errors import NotPermitted, Unusable
from ...records.names import printable
from ..content.folder_access import folder_access, is_link
from ..content.members import Member, MemberKind
from ..content.name_bytes import name_bytes, path_argument
from ..finding import Finding, FindingKind

_MOST_NAMED = 5


class ListedContent:
    """Members by name: those that are not there are left out. No link is followed."""

    def __init__(self, folder: Path, names: Collection[str]) -> None:
        """Look at each name. Raises Unusable when the folder cannot be entered."""
        self.label = printable(os.fsencode(folder))
        self._folder = folder
        try:
            self._access = folder_access(folder)
        except OSError as error:
            raise Unusable(
                f"{self.label} cannot be listed: {error.strerror}.", remedy="Check the path."
            ) from None
        found = [member for name in names if (member := self._look(name)) is not None]
        self.members = tuple(sorted(found, key=lambda member: name_bytes(member.name)))
        self.findings = self._unlisted({name.partition("/")[0] for name in names})

    def open(self, member: Member) -> AbstractContextManager[BinaryIO]:
        """Open a file, unbuffered. Raises Unusable when it is none, NotPermitted."""
        name = printable(member.name)
        try:
            return cast("BinaryIO", open(self._access.open(member.name), "rb", buffering=0))
        except PermissionError as error:
            raise NotPermitted(
                f"{name} cannot be read: {error.strerror}.",
                remedy="Run this as a user who may read it.",
            ) from None
        except OSError as error:
            raise Unusable(
                f"{name} cannot be opened as a file of this folder: {error.strerror}.",
                remedy="Put the file itself there; links are not followed.",
            ) from None

    def _look(self, name: str) -> Member | None:
        try:
            seen = os.lstat(os.path.join(os.fsencode(self._folder), name_bytes(name)))
        except (OSError, ValueError):
            return None
        if is_link(seen):
            return Member(name, MemberKind.LINK)
        if stat.S_ISREG(seen.st_mode):
            return Member(name, MemberKind.FILE, seen.st_size)
        if stat.S_ISDIR(seen.st_mode):
            return None
        return Member(name, MemberKind.SPECIAL)

    def _unlisted(self, known: Collection[str]) -> tuple[Finding, ...]:
        try:
            with os.scandir(self._folder) as entries:
                others = sorted(
                    entry.name for entry in entries
                    if path_argument(entry.name) not in known and entry.name not in known
                )  # fmt: skip
        except OSError:
            return ()
        if not others:
            return ()
        named = ", ".join(printable(os.fsencode(name)) for name in others[:_MOST_NAMED])
        more = f" and {len(others) - _MOST_NAMED:,} more" if len(others) > _MOST_NAMED else ""
        return (
            Finding(
                FindingKind.UNLISTED,
                None,
                f"The folder also holds what the list does not name, and nobody looked at it: "
                f"{named}{more}. Verify the folder to have every file in it demanded.",
            ),
        )
