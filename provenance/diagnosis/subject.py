"""The file that does not match, how its bytes are had, and how an explanation is proven."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from typing import BinaryIO

from ...records.strict_json import Json
from ..appearance import LOOK
from ..content.members import Content, Member
from ..content.shown import shown
from ..hashing import Hash, maker_of
from ..sums.model import SumsLine
from .known import Known

_AT_ONCE = 1 << 20
_SECONDS = 1.0


class Subject:
    """One member and the line that it does not match; each trial ends when `out_of_time`."""

    def __init__(self, content: Content, member: Member, line: SumsLine, known: Known) -> None:
        self.member = member
        self.line = line
        self.known = known
        self.name = shown(line.name)
        self._content = content
        self._end = 0.0
        self.begin()

    def open(self) -> AbstractContextManager[BinaryIO]:
        """Open it. Raises ReefError, OSError."""
        return self._content.open(self.member)

    @cached_property
    def head(self) -> bytes:
        """The first LOOK bytes."""
        return self.read(0, LOOK)

    @cached_property
    def entry(self) -> Mapping[str, Json] | None:
        """The manifest's entry, where it is about the file that is listed."""
        entry = self.known.entries.get(self.line.name)
        if entry is None or self.line.algorithm != "sha256":
            return entry
        return entry if entry.get("sha256") == self.line.digest else None

    @cached_property
    def listed_size(self) -> int | None:
        """The size in bytes that the manifest gives for the listed file."""
        size = self.entry.get("size") if self.entry is not None else None
        return size if isinstance(size, int) and not isinstance(size, bool) else None

    def read(self, offset: int, length: int) -> bytes:
        """Read a range; short only at the end of the file."""
        return b"".join(self.pieces(offset, length))

    def pieces(self, offset: int, length: int) -> Iterator[bytes]:
        """Read a range piece by piece."""
        with self.open() as file:
            yield from pieces_of(file, offset, length)

    def hash(self, *pieces: bytes | memoryview) -> Hash:
        """Begin a hash in the line's algorithm."""
        maker = maker_of(self.line.algorithm)
        if maker is None:
            raise ValueError(f"no such algorithm: {self.line.algorithm}")
        made = maker()
        for piece in pieces:
            made.update(piece)
        return made

    def is_listed(self, pieces: Iterable[bytes]) -> bool:
        """Tell whether these bytes are what is listed."""
        return self.hash(*pieces).hexdigest() == self.line.digest

    def begin(self) -> None:
        """Give the next trial its time."""
        self._end = time.monotonic() + _SECONDS

    @property
    def out_of_time(self) -> bool:
        """Tell whether trials have to end."""
        return time.monotonic() >= self._end


def pieces_of(file: BinaryIO, offset: int, length: int) -> Iterator[bytes]:
    """Read a range of an open file piece by piece; short only at the end of the file."""
    file.seek(offset)
    while length > 0 and (piece := file.read(min(length, _AT_ONCE))):
        length -= len(piece)
        yield piece
