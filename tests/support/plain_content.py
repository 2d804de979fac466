"""A content that is simple enough to be trusted: files of a folder, or bytes in memory."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, cast

from reefkit.provenance.content.members import Member
from reefkit.provenance.finding import Finding


class FilesOnDisk:
    """Every file below a folder."""

    findings: Sequence[Finding] = ()
    label = "folder"

    def __init__(self, root: Path) -> None:
        found = [Path(where) / name for where, _, names in os.walk(root) for name in names]
        named = {path.relative_to(root).as_posix(): path.stat().st_size for path in found}
        self.members = tuple(Member(name, size=named[name]) for name in sorted(named))
        self._root = os.fspath(root)

    def open(self, member: Member) -> AbstractContextManager[BinaryIO]:
        return cast("BinaryIO", open(f"{self._root}/{member.name}", "rb", buffering=0))

    def member(self, name: str) -> Member:
        return next(member for member in self.members if member.name == name)


class FilesInMemory:
    """Files that have no descriptor, as those of a zip."""

    findings: Sequence[Finding] = ()
    label = "memory"

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = files
        self.members = tuple(Member(name, size=len(data)) for name, data in sorted(files.items()))

    def open(self, member: Member) -> AbstractContextManager[BinaryIO]:
        return BytesIO(self._files[member.name])
