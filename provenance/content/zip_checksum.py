"""The CRC-32 of a stream while it is read; of large ones in a thread of its own.

A checksum costs two thirds of what SHA-256 costs. The thread reads the bytes again, from the page
cache, so that nobody has to leave a buffer alone for it.
"""

from __future__ import annotations

import os
import zlib
from concurrent.futures import Future, ThreadPoolExecutor

from .zip_source import ZipSource

LARGE = 8 << 20
_PIECE = 1 << 20


class Checksum:
    """Follows what is read from the start; `until` is how far that is."""

    def __init__(self) -> None:
        self.until = 0
        self._value = 0

    def feed(self, data: memoryview) -> None:
        """Take the bytes that follow."""
        self._value = zlib.crc32(data, self._value)
        self.until += len(data)

    def value(self) -> int:
        """Give the checksum of all that was fed."""
        return self._value

    def close(self) -> None:
        """Give up."""


class ThreadedChecksum(Checksum):
    """Does so a little behind, by reading the same place of the file."""

    def __init__(self, source: ZipSource, start: int) -> None:
        super().__init__()
        self._source = source
        self._start = start
        self._pool = ThreadPoolExecutor(1, "zip-checksum")
        self._last: Future[None] | None = None
        self._buffer = memoryview(bytearray(_PIECE))

    def feed(self, data: memoryview) -> None:
        """Take note of the bytes that follow."""
        self._last = self._pool.submit(self._follow, self._start + self.until, len(data))
        self.until += len(data)

    def value(self) -> int:
        """Wait for the thread. Raises Unusable when the file shrank meanwhile."""
        if self._last is not None:
            self._last.result()
        return self._value

    def close(self) -> None:
        """Stop the thread."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _follow(self, at: int, count: int) -> None:
        stop = at + count
        while at < stop:
            piece = self._buffer[: min(_PIECE, stop - at)]
            done = self._source.readinto_at(at, piece)
            if not done:
                return  # whoever reads the file is told that it shrank
            self._value = zlib.crc32(piece[:done], self._value)
            at += done


def checksum_for(source: ZipSource, start: int, size: int) -> Checksum:
    """Choose what is faster for stored bytes that begin at `start` of the file."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    return ThreadedChecksum(source, start) if size >= LARGE and cores > 1 else Checksum()
