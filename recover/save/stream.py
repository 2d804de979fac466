"""Stream recovered files to a pipe, for a box whose disks are full or read-only.

One file goes out as it is, several as a tar archive. A stream cannot skip: ranges that could not
be read go out as zeros, and the verdict, which says so, decides the exit code.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tarfile

from ...errors import DoesNotHold
from ..ranges import Range
from ..sources import FileSource
from .outputs import Attributes
from .rescue_map import RescueMap
from .slots import slot_for

_F_SETPIPE_SZ = 1031  # include/uapi/linux/fcntl.h


class StreamOutput:
    """One file on its way out."""

    in_order = True
    earlier: RescueMap | None = None

    def __init__(self, stream: Stream, path: bytes) -> None:
        self.path = path
        self._stream = stream
        self._size = 0

    def begin(
        self, attributes: Attributes, *, sparse: tuple[Range, ...] | None, clone_of: int | None
    ) -> bool:
        """Send the tar header, where there is one."""
        self._size = attributes.size
        if self._stream.as_tar:
            self._stream.send(memoryview(_tar_header(self.path, attributes)))
        return False

    def write(self, offset: int, block: memoryview) -> None:
        """Send the next block."""
        self._stream.send(block)

    def read_back(self) -> FileSource | None:
        """Give nothing: what is sent is gone."""
        return None

    def checkpoint(self, rescue_map: RescueMap) -> None:
        """Do nothing: a stream cannot be taken up again."""

    def finish(self, *, complete: bool) -> None:
        """Fill the last tar record."""
        if self._stream.as_tar:
            self._stream.send(memoryview(bytes(-self._size % tarfile.BLOCKSIZE)))


class Stream:
    """Standard output, or any pipe, as the destination of a dump."""

    in_order = True

    def __init__(self, fd: int, *, as_tar: bool) -> None:
        self.as_tar = as_tar
        self._fd = fd
        os.set_blocking(fd, True)
        with contextlib.suppress(OSError):  # not a pipe, or more than this user may have
            fcntl.fcntl(fd, _F_SETPIPE_SZ, 1 << 20)
        self._names: set[bytes] = set()

    def open(self, path: bytes, facts: dict[str, str]) -> StreamOutput:
        """Begin the next file."""
        slot, number = slot_for(path), 1
        while slot.numbered(number).path in self._names:
            number += 1
        name = slot.numbered(number).path
        self._names.add(name)
        return StreamOutput(self, name)

    def send(self, data: memoryview) -> None:
        """Send it all. Raises DoesNotHold when nobody reads any more."""
        try:
            while len(data):
                data = data[os.write(self._fd, data) :]
        except BrokenPipeError:
            raise DoesNotHold("The reader closed the stream: not everything was sent.") from None

    def end(self, record: bytes) -> None:
        """Close a tar archive with `recovery.json` as its last member."""
        if self.as_tar:
            output = self.open(b"/recovery.json", {})
            output.begin(Attributes(len(record)), sparse=None, clone_of=None)
            output.write(0, memoryview(record))
            output.finish(complete=True)
            self.send(memoryview(bytes(2 * tarfile.BLOCKSIZE)))


def _tar_header(path: bytes, attributes: Attributes) -> bytes:
    info = tarfile.TarInfo(os.fsdecode(path))
    info.size = attributes.size
    info.mode = attributes.mode & 0o777
    info.mtime = (attributes.mtime_ns or 0) // 1_000_000_000
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
