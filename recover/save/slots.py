"""Where a recovered file goes below the output folder, and its names on the way."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

_NAME_MAX = 255


@dataclass(frozen=True)
class Slot:
    """A place in the output folder: at most two folders and a name, as bytes."""

    folders: tuple[bytes, ...]
    name: bytes

    @property
    def path(self) -> bytes:
        """Give the path relative to the output folder."""
        return b"/".join((*self.folders, self.name))

    @property
    def claims(self) -> frozenset[bytes]:
        """Give every path that is written for this file at some time."""
        names = (self.name, self.partial, self.map_name)
        return frozenset(b"/".join((*self.folders, name)) for name in names)

    @property
    def parents(self) -> frozenset[bytes]:
        """Give the path of every folder that the file lies in."""
        ends = range(1, len(self.folders) + 1)
        return frozenset(b"/".join(self.folders[:end]) for end in ends)

    @property
    def partial(self) -> bytes:
        """Name the file while it is incomplete."""
        return _side_name(self.name, b".partial")

    @property
    def map_name(self) -> bytes:
        """Name the rescue map."""
        return _side_name(self.name, b".rescue.map")

    def numbered(self, number: int) -> Slot:
        """Give the same place in a numbered sibling folder: the name must stay loadable."""
        if number == 1:
            return self
        suffix = f".{number}".encode()
        if not self.folders:
            return Slot((b"recovered" + suffix,), self.name)
        last = self.folders[-1][: _NAME_MAX - len(suffix)] + suffix
        return Slot((*self.folders[:-1], last), self.name)


def slot_for(path: bytes) -> Slot:
    """Give the place of a file: the last two folders of its path and its name."""
    parts = [part for part in path.split(b"/") if part not in (b"", b".", b"..")]
    if not parts:
        return Slot((), b"unnamed")
    return Slot(tuple(parts[:-1][-2:]), parts[-1])


def _side_name(name: bytes, suffix: bytes) -> bytes:
    if len(name) + len(suffix) <= _NAME_MAX:
        return name + suffix
    mark = b"~" + hashlib.sha256(name).hexdigest()[:16].encode()
    return name[: _NAME_MAX - len(mark) - len(suffix)] + mark + suffix
