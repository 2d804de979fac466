"""Named files beneath one place: a folder on disk, or a part of what is judged."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol

from ...errors import Unusable
from ...records.names import printable
from ...recover.readable import FileReadable, Readable, unreadable
from ..content.members import Content, Member, MemberKind

_BLOCK = 1 << 20
_MOST_FILES = 100_000


class Files(Protocol):
    """Files by their names, `/` between the parts."""

    def names(self) -> Sequence[str]:
        """Give the names of the regular files."""
        ...

    def faults(self) -> Sequence[str]:
        """Say, fit to print, what is there that is neither file nor folder."""
        ...

    def open(self, name: str) -> AbstractContextManager[Readable]:
        """Open a file. Raises Unusable, NotPermitted."""
        ...

    def sha256(self, name: str) -> tuple[str, int]:
        """Hash a file and count its bytes. Raises Unusable, NotPermitted."""
        ...


class FolderFiles:
    """What lies in a folder; links are no files."""

    def __init__(self, folder: Path) -> None:
        """List the folder. Raises Unusable, NotPermitted."""
        self._folder = folder
        self._names: list[str] = []
        self._faults: list[str] = []
        self._digests: dict[str, tuple[str, int]] = {}
        waiting = [""]
        while waiting:
            parent = waiting.pop()
            try:
                with os.scandir(folder / parent) as entries:
                    for entry in entries:
                        name = f"{parent}/{entry.name}" if parent else entry.name
                        if entry.is_dir(follow_symlinks=False):
                            waiting.append(name)
                        elif not entry.is_file(follow_symlinks=False):
                            self._faults.append(f"{printable(name)} is a link or a special file")
                        elif _is_text(name):
                            self._names.append(name)
                        else:
                            self._faults.append(f"{printable(name)} has a name that is no UTF-8")
            except OSError as error:
                raise unreadable(printable(os.fsencode(folder / parent)), error) from None
            if len(self._names) + len(waiting) > _MOST_FILES:
                raise Unusable(
                    f"{printable(os.fsencode(folder))} has more than {_MOST_FILES:,} files.",
                    remedy="Let a cell write fewer and larger artifacts.",
                )
        self._names.sort()

    def names(self) -> Sequence[str]:
        """Give the names of the regular files."""
        return self._names

    def faults(self) -> Sequence[str]:
        """Say what is there that is neither file nor folder."""
        return self._faults

    def open(self, name: str) -> AbstractContextManager[Readable]:
        """Open a file."""
        return open_file(self._folder / name)

    def sha256(self, name: str) -> tuple[str, int]:
        """Hash a file and count its bytes; once for each."""
        if name not in self._digests:
            with self.open(name) as source:
                self._digests[name] = digest(source)
        return self._digests[name]


class OneFile:
    """A single file on disk, which is called as its last part."""

    def __init__(self, path: Path) -> None:
        """Take a path to a file."""
        self._path = path
        self._digest: tuple[str, int] | None = None

    def names(self) -> Sequence[str]:
        """Give its name."""
        return [self._path.name]

    def faults(self) -> Sequence[str]:
        """Find none."""
        return []

    def open(self, name: str) -> AbstractContextManager[Readable]:
        """Open it."""
        return open_file(self._path)

    def sha256(self, name: str) -> tuple[str, int]:
        """Hash it; once."""
        if self._digest is None:
            with self.open(name) as source:
                self._digest = digest(source)
        return self._digest


class ContentFiles:
    """The members below a prefix of what is judged, without the prefix."""

    def __init__(self, content: Content, prefix: str) -> None:
        """Take the members whose names begin with `prefix`, which ends in `/` or is empty."""
        self._content = content
        inside = [member for member in content.members if member.name.startswith(prefix)]
        self._members: Mapping[str, Member] = {
            member.name[len(prefix) :]: member
            for member in inside
            if member.kind is MemberKind.FILE and _is_text(member.name)
        }
        self._faults = [
            f"{printable(member.name)} is a {member.kind.value}"
            if member.kind is not MemberKind.FILE
            else f"{printable(member.name)} has a name that is no UTF-8"
            for member in inside
            if member.kind is not MemberKind.EMPTY_FOLDER
            and not (member.kind is MemberKind.FILE and _is_text(member.name))
        ]
        self._digests: dict[str, tuple[str, int]] = {}

    def names(self) -> Sequence[str]:
        """Give the names of the regular files."""
        return list(self._members)

    def faults(self) -> Sequence[str]:
        """Say what is there that is neither file nor folder."""
        return self._faults

    @contextmanager
    def open(self, name: str) -> Generator[Readable]:
        """Open a file."""
        member = self._members[name]
        try:
            with self._content.open(member) as stream:
                yield _Stream(stream, member.size, printable(member.name))
        except OSError as error:
            raise unreadable(printable(member.name), error) from None

    def sha256(self, name: str) -> tuple[str, int]:
        """Hash a file and count its bytes; once for each."""
        if name not in self._digests:
            with self.open(name) as source:
                self._digests[name] = digest(source)
        return self._digests[name]


class _Stream:
    """A stream that can seek, read at offsets."""

    doubt: str | None = None

    def __init__(self, stream: BinaryIO, size: int, label: str) -> None:
        self._stream = stream
        self.size = size
        self.label = label

    def read(self, offset: int, length: int) -> bytes:
        self._stream.seek(offset)
        return self._stream.read(length)


def _is_text(name: str) -> bool:
    """Tell whether a name can stand in a report, which is UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def open_file(path: Path) -> AbstractContextManager[Readable]:
    """Open a file on disk for reading at offsets. Raises Unusable, NotPermitted."""
    return FileReadable(path)


def digest(source: Readable) -> tuple[str, int]:
    """Give SHA-256 and size of all bytes that are there. Raises what the source raises."""
    found = hashlib.sha256()
    position = 0
    while data := source.read(position, _BLOCK):
        found.update(data)
        position += len(data)
    return found.hexdigest(), position


def read_small(files: Files, name: str, limit: int) -> bytes:
    """Read a file of at most `limit` bytes. Raises Unusable, NotPermitted."""
    with files.open(name) as source:
        if source.size > limit:
            raise Unusable(
                f"{source.label} has {source.size:,} bytes, more than the {limit:,} that are read.",
                remedy="Check that it is the file that was meant.",
            )
        return source.read(0, limit + 1)


def is_folder(path: Path) -> bool:
    """Tell whether a path is a folder; False where it cannot be looked at."""
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False
