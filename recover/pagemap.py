"""Which pages of a mapped file the process has replaced by copies of its own.

A private mapping shows the file's pages until the process writes to one; then the kernel gives it
a copy (copy on write). The page map tells such a page from the file's own: PAGEMAP_SCAN since
Linux 6.7, bit 61 of `/proc/PID/pagemap` before (Documentation/admin-guide/mm/pagemap.rst; CRIU
decides by the same bit, criu/mem.c). A page that is neither present nor swapped is still the
file's. Needs no capability beyond reading the process's maps.
"""

from __future__ import annotations

import errno
import os
from array import array
from collections.abc import Iterable, Iterator

from .linux import PAGE, scan_copied_pages
from .process import Process
from .ranges import Range, intersect, merge

_PRESENT, _SWAPPED, _FILE = 1 << 63, 1 << 62, 1 << 61
_ENTRIES_AT_ONCE = 1 << 16


def copied_ranges(process: Process, views: Iterable[tuple[Range, int]]) -> tuple[Range, ...]:
    """Give the ranges of file offsets that the process sees as copies of its own.

    `views` are ranges of the file, each with the address at which the process sees it. Raises
    NotPermitted, ProcessGone, and OSError ENOENT on kernels built without page maps.
    """
    fd = process.open_memory("pagemap")
    try:
        return merge(piece for view, address in views for piece in _copied_in(fd, view, address))
    finally:
        os.close(fd)


def _copied_in(fd: int, view: Range, address: int) -> tuple[Range, ...]:
    stop = address + -(-view.size // PAGE) * PAGE
    shift = view.start - address
    copied = (Range(a + shift, b + shift) for a, b in _copied_addresses(fd, address, stop))
    return intersect(copied, view)


def _copied_addresses(fd: int, start: int, stop: int) -> Iterator[tuple[int, int]]:
    try:
        yield from scan_copied_pages(fd, start, stop)
    except OSError as error:
        if error.errno not in (errno.ENOTTY, errno.EINVAL, errno.EPERM):
            raise
        yield from read_copied_pages(fd, start, stop)


def read_copied_pages(fd: int, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Find the copied pages entry by entry, as kernels before 6.7 need it."""
    for base in range(start, stop, _ENTRIES_AT_ONCE * PAGE):
        count = min(_ENTRIES_AT_ONCE, (stop - base) // PAGE)
        entries = array("Q", os.pread(fd, count * 8, base // PAGE * 8))
        for index, entry in enumerate(entries):
            if entry & (_PRESENT | _SWAPPED) and not entry & _FILE:
                yield base + index * PAGE, base + (index + 1) * PAGE
