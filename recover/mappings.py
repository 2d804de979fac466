"""What a process maps and holds open, as values."""

from __future__ import annotations

import os
from dataclasses import dataclass

from . import linux
from .ranges import Range


@dataclass(frozen=True, slots=True)
class FileMapping:
    """One mapping of a file. `name` is the link text of map_files: bytes, escaped nowhere."""

    start: int
    stop: int
    offset: int
    flags: int
    device: int
    inode: int
    name: bytes

    @property
    def entry(self) -> str:
        """Name the entry in `/proc/PID/map_files`."""
        return f"{self.start:x}-{self.stop:x}"

    @property
    def file_range(self) -> Range:
        """Give the part of the file that the mapping shows, in whole pages."""
        return Range(self.offset, self.offset + self.stop - self.start)

    @property
    def permissions(self) -> str:
        """Give the flags as /proc/PID/maps shows them."""
        letters = ("r", "w", "x")
        shown = "".join(c if self.flags >> i & 1 else "-" for i, c in enumerate(letters))
        return shown + ("s" if self.flags & linux.SHARED else "p")


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A regular file that a process holds open as descriptor `number`."""

    number: int
    name: bytes
    device: int
    inode: int
    size: int


def parse_maps(text: bytes) -> list[linux.Vma]:
    """Parse the numbers of the file-backed lines of `/proc/PID/maps`; names are ignored."""
    found: list[linux.Vma] = []
    for line in text.split(b"\n"):
        fields = line.split(None, 5)
        if len(fields) < 5 or fields[4] == b"0":
            continue
        start, _, stop = fields[0].partition(b"-")
        major, _, minor = fields[3].partition(b":")
        flags = sum(
            bit
            for position, (letter, bit) in enumerate(
                (
                    (b"r", linux.READABLE),
                    (b"w", linux.WRITABLE),
                    (b"x", linux.EXECUTABLE),
                    (b"s", linux.SHARED),
                )
            )
            if fields[1][position : position + 1] == letter
        )
        found.append(
            linux.Vma(
                int(start, 16),
                int(stop, 16),
                flags,
                int(fields[2], 16),
                os.makedev(int(major, 16), int(minor, 16)),
                int(fields[4]),
            )
        )
    return found
