"""Digests of a file and of each tensor in it, and anchors to find them by, from one read."""

from __future__ import annotations

import hashlib
import queue
import threading
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from ..errors import HeaderError
from ..records.manifest import ANCHOR_BYTES, Anchor, TensorEntry
from .formats.safetensors import Header, Tensor, header_length, looks_like, parse_header
from .formats.safetensors_json import JSON_START

# Reads into a buffer at an offset of the file; what it gives are bytes, 0 only at the end.
ReadInto = Callable[[memoryview, int], int]

_BLOCK = 1 << 20
_BUFFERS = 4
_TOO_SMALL_FOR_THREADS = 4 << 20
_PREFIX = 64
_FIRST = 1 << 16
_SEARCHED = 4096  # bytes in which an anchor is looked for, at three places of a tensor
_FEWEST_VALUES = 8  # different bytes in an anchor
_PERIOD = 16  # bytes; what repeats so is a constant of some dtype, or a short pattern


class _Digest(Protocol):
    def update(self, data: memoryview, /) -> None: ...

    def hexdigest(self) -> str: ...


@dataclass(frozen=True)
class Fingerprint:
    """What was read. `fault` says why this is no whole safetensors file, though it began as one.

    `header` is there where it could be read, and `tensors` are those that are whole, in offset
    order. `head` is the header as it stands there, or the beginning of a file without one.
    """

    size: int
    sha256: str
    header: Header | None = None
    tensors: tuple[TensorEntry, ...] = ()
    fault: str | None = None
    head: bytes = field(default=b"", repr=False)


def fingerprint(
    read_into: ReadInto,
    size: int,
    *,
    named_safetensors: bool,
    progress: Callable[[int], object] | None = None,
    block: int = _BLOCK,
    threads_from: int = _TOO_SMALL_FOR_THREADS,
) -> Fingerprint:
    """Read everything once, in order; memory does not grow with the file.

    A file that is not named so is taken for safetensors where its whole header can be read.
    `size` is what the file should have; the result has what was there. From `threads_from` bytes on
    a second thread helps. Raises what reading raises.
    """
    asked = min(size, _FIRST) + 1
    head = _read(read_into, 0, asked)
    ended = len(head) < asked
    header: Header | None = None
    fault: HeaderError | None = None
    if named_safetensors or looks_like(head[:_PREFIX], size):
        try:
            if not ended:
                head += _read(read_into, len(head), _header_stop(head, size) - len(head))
            header = parse_header(head)
        except HeaderError as error:
            fault = error
    whole = hashlib.sha256(head)
    if progress is not None:
        progress(len(head))
    tensors = None
    if header is not None:
        tensors = _Tensors(header)
        tensors.take(len(header.raw), memoryview(head)[len(header.raw) :])
    read = len(head)
    if not ended:
        read = _Pass(read_into, whole, tensors, progress).run(
            read, size, block=block, threads_from=threads_from
        )
    found = tensors.entries(read) if tensors else ()
    said = _fault(header, fault, read, named=named_safetensors)
    kept = head[: len(header.raw)] if header else head
    return Fingerprint(read, whole.hexdigest(), header, found, said, kept)


def _header_stop(head: bytes, size: int) -> int:
    """Give how much must be read for the header. Raises HeaderError."""
    return max(min(JSON_START + header_length(head), size), len(head))


def _fault(
    header: Header | None, fault: HeaderError | None, read: int, *, named: bool
) -> str | None:
    if header is None:
        return fault.message if fault is not None and named else None
    missing = header.file_size - read
    if missing > 0:
        return f"It is truncated: {missing:,} of {header.file_size:,} bytes are missing."
    if missing < 0:
        return f"It has {-missing:,} bytes more than its header declares."
    return None


def _read(read_into: ReadInto, offset: int, length: int) -> bytes:
    buffer = bytearray(max(length, 0))
    done = 0
    while done < length:
        count = read_into(memoryview(buffer)[done:], offset + done)
        if count <= 0:
            break
        done += count
    return bytes(buffer[:done])


class _Pass:
    """The read of all that follows the header; a second thread hashes the file as a whole."""

    def __init__(
        self,
        read_into: ReadInto,
        whole: _Digest,
        tensors: _Tensors | None,
        progress: Callable[[int], object] | None,
    ) -> None:
        self._read_into = read_into
        self._whole = whole
        self._tensors = tensors
        self._progress = progress
        self._free: queue.SimpleQueue[memoryview] = queue.SimpleQueue()
        self._full: queue.SimpleQueue[tuple[memoryview, int, list[_Piece]] | None]
        self._full = queue.SimpleQueue()

    def run(self, start: int, size: int, *, block: int, threads_from: int) -> int:
        """Read to the end of the file; give where that was."""
        threaded = self._tensors is not None and size - start >= threads_from
        room = min(block, max(size - start, 0) + 1)
        for _ in range(_BUFFERS if threaded else 1):
            self._free.put(memoryview(bytearray(room)))
        if not threaded:
            return self._read_all(start, self._sum)
        thread = threading.Thread(target=self._sum_all, daemon=True)
        thread.start()
        try:
            return self._read_all(start, self._hand_over)
        finally:
            self._full.put(None)
            thread.join()

    def _read_all(
        self, offset: int, hand_over: Callable[[memoryview, int, list[_Piece]], None]
    ) -> int:
        while True:
            buffer = self._free.get()
            count = self._read_into(buffer, offset)
            if count <= 0:
                return offset
            pieces = list(self._tensors.pieces(offset, buffer[:count])) if self._tensors else []
            hand_over(buffer, count, pieces)
            for piece in pieces:
                piece.tensor.take(piece)
            offset += count
            if self._progress is not None:
                self._progress(count)

    def _hand_over(self, buffer: memoryview, count: int, pieces: list[_Piece]) -> None:
        self._full.put((buffer, count, pieces))

    def _sum_all(self) -> None:
        while (work := self._full.get()) is not None:
            self._sum(*work)

    def _sum(self, buffer: memoryview, count: int, pieces: list[_Piece]) -> None:
        self._whole.update(buffer[:count])
        for piece in pieces:
            piece.sum()
        self._free.put(buffer)


class _Tensors:
    """The tensors of a file, whose bytes come in the order of the file."""

    def __init__(self, header: Header) -> None:
        self._start = header.data_start
        self._all = header.tensors
        self._filled = [_Open(tensor) for tensor in header.tensors if tensor.nbytes]
        self._next = 0

    def take(self, offset: int, data: memoryview) -> None:
        """Take bytes at an offset of the file, which must follow those before."""
        for piece in self.pieces(offset, data):
            piece.sum()
            piece.tensor.take(piece)

    def pieces(self, offset: int, data: memoryview) -> Iterator[_Piece]:
        """Cut bytes at an offset of the file where tensors end."""
        done = 0
        while done < len(data) and self._next < len(self._filled):
            tensor = self._filled[self._next]
            inside = offset + done - self._start - tensor.facts.begin
            part = data[done : done + tensor.facts.nbytes - inside]
            yield _Piece(tensor, inside, part)
            done += len(part)
            if inside + len(part) == tensor.facts.nbytes:
                self._next += 1

    def entries(self, read: int) -> tuple[TensorEntry, ...]:
        """Give the tensors that lie wholly in the first `read` bytes of the file."""
        opened = {tensor.facts.name: tensor for tensor in self._filled}
        return tuple(
            opened.get(facts.name, _Open(facts)).entry()
            for facts in self._all
            if self._start + facts.end <= read or not facts.nbytes
        )


class _Open:
    """One tensor while its bytes pass by."""

    __slots__ = ("_regions", "_sha256", "crc32", "facts")

    def __init__(self, facts: Tensor) -> None:
        self.facts = facts
        self.crc32 = 0
        self._sha256: _Digest | str | None = None
        self._regions: tuple[_Region, ...] = ()

    def take(self, piece: _Piece) -> None:
        """Hash bytes, and keep those in which an anchor may be."""
        if self._sha256 is None:
            self._sha256 = hashlib.sha256()
            self._regions = tuple(_regions(self.facts.nbytes))
        assert not isinstance(self._sha256, str)
        self._sha256.update(piece.data)
        stop = piece.offset + len(piece.data)
        for region in self._regions:
            region.take(piece.offset, piece.data)
        if stop == self.facts.nbytes:
            self._sha256 = self._sha256.hexdigest()

    def entry(self) -> TensorEntry:
        """Give what is known once all bytes have passed."""
        facts, digest = self.facts, self._sha256
        if not isinstance(digest, str):
            digest = hashlib.sha256().hexdigest()
        found = (region.anchor() for region in self._regions)
        return TensorEntry(
            facts.name,
            facts.dtype,
            facts.shape,
            facts.begin,
            facts.end,
            digest,
            f"{self.crc32:08x}",
            tuple(anchor for anchor in found if anchor is not None),
        )


@dataclass(frozen=True, slots=True)
class _Piece:
    tensor: _Open
    offset: int
    data: memoryview

    def sum(self) -> None:
        """Add the bytes to the checksum of their tensor."""
        self.tensor.crc32 = zlib.crc32(self.data, self.tensor.crc32)


@dataclass(slots=True)
class _Region:
    """Bytes of a tensor in which an anchor is looked for."""

    start: int
    stop: int
    data: bytes = b""

    def take(self, offset: int, data: memoryview) -> None:
        """Keep what lies inside."""
        if offset < self.stop and offset + len(data) > self.start:
            self.data += data[max(self.start - offset, 0) : self.stop - offset]

    def anchor(self) -> Anchor | None:
        """Give the first window that is no constant and no short pattern."""
        for start in range(0, len(self.data), ANCHOR_BYTES):
            window = self.data[start : start + ANCHOR_BYTES]
            if _is_distinctive(window):
                return Anchor(self.start + start, window)
        return None


def _regions(nbytes: int) -> Iterator[_Region]:
    """Give the beginning, the middle and the end, in whole windows that do not overlap."""
    windows = nbytes // ANCHOR_BYTES
    if windows <= 2:
        yield from (
            _Region(start * ANCHOR_BYTES, (start + 1) * ANCHOR_BYTES) for start in range(windows)
        )
        return
    width = min(_SEARCHED // ANCHOR_BYTES, max(windows // 3, 1))
    for start in sorted({0, (windows - width) // 2, windows - width} if windows else ()):
        yield _Region(start * ANCHOR_BYTES, (start + width) * ANCHOR_BYTES)


def _is_distinctive(window: bytes) -> bool:
    if len(set(window)) < _FEWEST_VALUES:
        return False
    return window[_PERIOD:] != window[:-_PERIOD]
