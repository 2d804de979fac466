"""The bytes of one zip entry as a stream: stored ones straight from the file, deflated inflated.

Nothing is held in memory but a buffer. A stream that was read from its first to its last byte
without a jump is held against the entry's checksum at its end, or when it is closed.
"""

from __future__ import annotations

import io
import os
import zlib
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from ...errors import Unusable
from .zip_checksum import Checksum, checksum_for
from .zip_source import ZipSource

_PIECE = 1 << 18
_WINDOW = -15  # raw deflate, window of 32 KiB


class ZipFault(Unusable):
    """The data of an entry cannot be had, or are others than the zip says."""


class EntryStream(io.RawIOBase):
    """Reading and seeking; the checksum is followed as long as nothing is left out or repeated.

    `complain` is told what is wrong with the data. They are given all the same where that is
    possible: whoever hashes them wants to say what was changed.
    """

    def __init__(
        self,
        size: int,
        crc: int,
        complain: Callable[[str], object] | None,
        checksum: Checksum | None = None,
    ) -> None:
        super().__init__()
        self._size = size
        self._checksum = Checksum() if checksum is None else checksum
        self._crc = crc
        self._complain = complain
        self._at = 0

    def readable(self) -> bool:
        """Say yes."""
        return True

    def seekable(self) -> bool:
        """Say yes."""
        return True

    def tell(self) -> int:
        """Give the place."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Go to a place."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError("negative seek position")
        self._at = base + offset
        return self._at

    def readinto(self, buffer: Any, /) -> int:
        """Read into a buffer as much as fits and is there. Raises ZipFault."""
        view = memoryview(buffer).cast("B")
        wanted = min(len(view), max(0, self._size - self._at))
        if not wanted:
            if len(view):
                self._at_end()
            return 0
        view = view[:wanted]
        self._fill(self._at, view)
        if self._at == self._checksum.until and self._complain is not None:
            self._checksum.feed(view)
        self._at += wanted
        return wanted

    def close(self) -> None:
        """Close it, and judge it when all was read; the zip itself stays open."""
        if self.closed:
            return
        try:
            self._judge()
        finally:
            self._checksum.close()
            super().close()

    def _judge(self) -> None:
        if self._complain is None or self._checksum.until != self._size:
            return
        if self._checksum.value() != self._crc:
            self._complain("its data are not those that the zip's checksum was made of")
        self._complain = None

    def _at_end(self) -> None:
        self._judge()

    @abstractmethod
    def _fill(self, at: int, view: memoryview) -> None:
        """Fill the view with the data from there on."""


class StoredStream(EntryStream):
    """Data that lie in the file as they are."""

    def __init__(
        self,
        source: ZipSource,
        data_at: int,
        size: int,
        crc: int,
        complain: Callable[[str], object] | None,
    ) -> None:
        checksum = checksum_for(source, data_at, size) if complain is not None else None
        super().__init__(size, crc, complain, checksum)
        self._source = source
        self._data_at = data_at

    def _fill(self, at: int, view: memoryview) -> None:
        done = 0
        while done < len(view):
            count = self._source.readinto_at(self._data_at + at + done, view[done:])
            if not count:
                raise ZipFault("The zip shrank while it was read.", remedy="Run this again.")
            done += count


class DeflatedStream(EntryStream):
    """Data that are inflated on the way; going back starts anew."""

    def __init__(
        self,
        source: ZipSource,
        data_at: int,
        packed: int,
        size: int,
        crc: int,
        complain: Callable[[str], object] | None,
    ) -> None:
        super().__init__(size, crc, complain)
        self._source = source
        self._data_at = data_at
        self._packed = packed
        self._restart()

    def _restart(self) -> None:
        self._inflater = zlib.decompressobj(_WINDOW)
        self._taken = 0  # of the packed bytes
        self._given = 0  # of the inflated ones

    def _fill(self, at: int, view: memoryview) -> None:
        if at < self._given:
            self._restart()
        while self._given < at:
            self._inflate(min(_PIECE, at - self._given))
        done = 0
        while done < len(view):
            piece = self._inflate(min(_PIECE, len(view) - done))
            view[done : done + len(piece)] = piece
            done += len(piece)
        if self._given == self._size:
            self._check_end()

    def _at_end(self) -> None:
        if not self._size and not self._inflater.eof:
            self._check_end()
        super()._at_end()

    def _inflate(self, most: int) -> bytes:
        """Give some inflated bytes, at least one. Raises ZipFault when none come any more."""
        while True:
            feed = self._inflater.unconsumed_tail or self._take()
            try:
                piece = self._inflater.decompress(feed, most)
            except zlib.error:
                raise self._broken("it is no valid deflate data") from None
            if piece:
                self._given += len(piece)
                return piece
            if self._inflater.eof or not (feed or self._taken < self._packed):
                raise self._broken("it inflates to fewer bytes than it states")

    def _take(self) -> bytes:
        count = min(_PIECE, self._packed - self._taken)
        data = self._source.read_at(self._data_at + self._taken, count) if count else b""
        self._taken += count
        return data

    def _check_end(self) -> None:
        """Make sure that the packed data end here, and nothing comes after them."""
        while not self._inflater.eof:
            feed = self._inflater.unconsumed_tail or self._take()
            try:
                more = self._inflater.decompress(feed, 1)
            except zlib.error:
                raise self._broken("it is no valid deflate data") from None
            if more:
                raise self._broken("it inflates to more bytes than it states")
            if not feed and not self._inflater.eof:
                raise self._broken("its deflate data have no end")
        if self._inflater.unused_data or self._taken < self._packed:
            raise self._broken("bytes are hidden after its deflate data")

    def _broken(self, fault: str) -> ZipFault:
        if self._complain is not None:
            self._complain(fault)
        return ZipFault(
            f"It is damaged or changed: {fault}.", remedy="Get the file from its source again."
        )
