"""Where the bytes of a lost file can still be read: the inode itself, or a process's memory.

The ladder, best first. `map_files` and `fd` lead to the inode: the file's own bytes, at no cost to
the process. `memory` shows what the process sees, which differs from the file on every page that
it wrote to, and reading it makes the pages resident in the process.
"""

from __future__ import annotations

import contextlib
import errno
import os
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from ..errors import NotPermitted, ProcessGone, Unusable
from . import linux
from .mappings import FileMapping
from .process import Process
from .ranges import Range, merge, subtract
from .routes import Route

_AT_ONCE = 0x7FFFF000  # MAX_RW_COUNT: include/linux/fs.h


@dataclass(frozen=True)
class Holding:
    """How one process holds one file: by mappings, by descriptors, or both."""

    pid: int
    inode: int
    mappings: tuple[FileMapping, ...]
    descriptors: tuple[int, ...]


class Source(Protocol):
    """Bytes of one file, readable at any offset inside `extents`."""

    @property
    def route(self) -> Route:
        """The way that the bytes come."""
        ...

    @property
    def size(self) -> int | None:
        """The file's length in bytes; None where only the memory is seen."""
        ...

    @property
    def extents(self) -> tuple[Range, ...]:
        """What can be asked for; everything else is known to be out of reach."""
        ...

    def read_into(self, buffer: memoryview, offset: int) -> int:
        """Read from `offset`; may be short, 0 at the end. Raises OSError."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


class FileSource:
    """The inode, through a descriptor that this source owns."""

    def __init__(self, fd: int, route: Route) -> None:
        self.fd = fd
        self.route = route

    @property
    def size(self) -> int:
        """The file's length in bytes, as it is now."""
        return os.fstat(self.fd).st_size

    @property
    def extents(self) -> tuple[Range, ...]:
        """The whole file."""
        return merge([Range(0, self.size)])

    def read_into(self, buffer: memoryview, offset: int) -> int:
        """Read through the page cache."""
        return os.preadv(self.fd, [buffer], offset)

    def bypassing_page_cache(self) -> FileSource | None:
        """Open the same inode again so that reads go to the storage; None where it cannot.

        Buffers and offsets must then be multiples of the page size.
        """
        if not linux.bypasses_page_cache(self.fd) or linux.has_encoded_extents(self.fd):
            return None
        try:
            fd = os.open(f"/proc/self/fd/{self.fd}", os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
        except OSError:
            return None
        return FileSource(fd, self.route)

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self.fd)


class SecondLook:
    """The inode read once more: from the storage where it can be, else through the page cache."""

    def __init__(self, file: FileSource) -> None:
        self._file = file
        self._direct = file.bypassing_page_cache()
        self.route = file.route
        self.independent = self._direct is not None

    @property
    def size(self) -> int:
        """The file's length in bytes, as it is now."""
        return self._file.size

    @property
    def extents(self) -> tuple[Range, ...]:
        """The whole file."""
        return self._file.extents

    def read_into(self, buffer: memoryview, offset: int) -> int:
        """Read from the storage; once that fails, the page cache serves and independence ends."""
        if self._direct is not None:
            try:
                return self._direct.read_into(buffer, offset)
            except OSError:
                self.independent = False
        return self._file.read_into(buffer, offset)

    def close(self) -> None:
        """Close the second descriptor; the first belongs to its own source."""
        if self._direct is not None:
            self._direct.close()


class MemorySource:
    """What a process sees of a file in its memory, put together from its mappings."""

    route = Route.MEMORY

    def __init__(
        self, process: Process, mappings: Iterable[FileMapping], size: int | None = None
    ) -> None:
        """Open the memory of `process`; where mappings overlap, the first given is read.

        Raises NotPermitted where neither `/proc/PID/mem` nor process_vm_readv is allowed.
        """
        self.size = size
        self.process = process
        self.segments = tuple(_segments(mappings, size))
        self.extents = merge(segment for segment, _ in self.segments)
        self._starts = [segment.start for segment, _ in self.segments]
        self._fd: int | None = None
        try:
            self._fd = process.open_memory("mem")
        except NotPermitted:
            self._probe_vm_read()

    def _probe_vm_read(self) -> None:
        probe = memoryview(bytearray(1))
        for _, address in self.segments:
            try:
                linux.read_process_memory(self.process.memory_tid, address, probe)
                return
            except OSError as error:
                if error.errno != errno.EFAULT:
                    break
        raise NotPermitted(
            f"Not permitted to read the memory of process {self.process.pid}.",
            remedy=f"`reef-recover doctor --pid {self.process.pid}` says what blocks it.",
        )

    def read_into(self, buffer: memoryview, offset: int) -> int:
        """Read up to the end of the mapping that covers `offset`; 0 when none does."""
        index = bisect_right(self._starts, offset) - 1
        if index < 0 or offset >= self.segments[index][0].stop:
            return 0
        segment, address = self.segments[index]
        length = min(len(buffer), segment.stop - offset, _AT_ONCE)
        return self._read(buffer[:length], address + offset - segment.start)

    def _read(self, buffer: memoryview, address: int) -> int:
        if self._fd is None:
            return linux.read_process_memory(self.process.memory_tid, address, buffer)
        count = os.preadv(self._fd, [buffer], address)
        if count == 0:  # the address space is gone: fs/proc/base.c, mem_rw
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
        return count

    def close(self) -> None:
        """Close the memory file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _segments(mappings: Iterable[FileMapping], size: int | None) -> list[tuple[Range, int]]:
    """Give file ranges with the address of each, such that no two overlap, in file order."""
    windows = [(_cut(m.file_range, size), m.start) for m in mappings]
    in_order = sorted(windows)
    if all(a.stop <= b.start for (a, _), (b, _) in pairwise(in_order)):
        return [(window, address) for window, address in in_order if window.size]
    taken: tuple[Range, ...] = ()
    chosen: list[tuple[Range, int]] = []
    for window, address in windows:
        chosen += [(free, address + free.start - window.start) for free in subtract(window, taken)]
        taken = merge((*taken, window))
    return sorted(chosen)


def _cut(window: Range, size: int | None) -> Range:
    return window if size is None else Range(min(window.start, size), min(window.stop, size))


def open_file(process: Process, holding: Holding) -> FileSource:
    """Open the inode by the first way that is open. Raises NotPermitted, ProcessGone.

    One page of one mapping is enough for the whole file. NotPermitted also stands for a storage
    that fails (EIO, ESTALE): another route may still lead to the bytes. FileNotFoundError is
    raised when every mapping and descriptor has gone meanwhile, Unusable when this process may
    open no more files.
    """
    refusals: list[NotPermitted] = []
    for mapping in holding.mappings:
        try:
            return _checked(process.open_mapped(mapping), holding.inode, Route.MAP_FILES)
        except FileNotFoundError:
            continue
        except (NotPermitted, OSError) as error:
            refusals.append(_refusal(error, f"{process.pid}/map_files"))
            break
    for number in holding.descriptors:
        try:
            return _checked(process.open_descriptor(number), holding.inode, Route.FD)
        except FileNotFoundError:
            continue
        except (NotPermitted, OSError) as error:
            refusals.append(_refusal(error, f"{process.pid}/fd"))
    if refusals:
        raise refusals[0]
    raise FileNotFoundError(errno.ENOENT, "no longer held", process.pid)


def _refusal(error: NotPermitted | OSError, where: str) -> NotPermitted:
    if isinstance(error, NotPermitted):
        return error
    if error.errno in (errno.EMFILE, errno.ENFILE):
        raise Unusable(
            "More files are held than this process may open.",
            remedy="Raise the limit (`ulimit -Hn`), or choose fewer with --match or --no-children.",
        ) from None
    return NotPermitted(f"/proc/{where} leads to a file that fails: {error.strerror}.")


def _checked(fd: int, inode: int, route: Route) -> FileSource:
    """Refuse another file that took the place meanwhile."""
    if os.fstat(fd).st_ino != inode:
        os.close(fd)
        raise FileNotFoundError(errno.ENOENT, "another file is there now")
    return FileSource(fd, route)


def read_available(source: Source, offset: int, length: int) -> bytes:
    """Read `length` bytes, short only at the end of what can be read. Errors end it, too."""
    buffer = memoryview(bytearray(length))
    done = 0
    with contextlib.suppress(OSError, ProcessGone):
        while done < length and (count := source.read_into(buffer[done:], offset + done)) > 0:
            done += count
    return bytes(buffer[:done])
