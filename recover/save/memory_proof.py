"""What can be proven of bytes that were read from a process's memory.

Memory has no end of file: a mapping ends on a page boundary, and what lies behind the file's last
byte in that page reads as zeros. So the length comes from the file's own path where it still
exists, else from the safetensors header, and is believed only when nothing speaks against it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable
from dataclasses import dataclass

from ...errors import NotPermitted, ProcessGone
from .. import linux
from ..formats.safetensors import Header
from ..linux import PAGE
from ..mappings import FileMapping
from ..pagemap import copied_ranges
from ..process import Process
from ..ranges import Range, merge, total, within
from ..sources import Holding, MemorySource, Source, read_available

_SUSPICIOUS_ZEROS = 1
_COMPARED_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class MemoryView:
    """A file as one process maps it."""

    process: Process
    holding: Holding

    def mappings(self) -> tuple[FileMapping, ...]:
        """Give the mappings of the file as they are now. Raises NotPermitted, ProcessGone."""
        files = {(m.device, m.inode) for m in self.holding.mappings}
        return tuple(m for m in self.process.mappings() if (m.device, m.inode) in files)

    def mapped_stop(self) -> int:
        """Give the offset in the file behind the last page that was mapped."""
        return max(m.file_range.stop for m in self.holding.mappings)

    @contextlib.contextmanager
    def open(self, size: int | None) -> Generator[MemorySource, None, None]:
        """Open the memory for reading, the mapping with the fewest copied pages first.

        Raises NotPermitted, ProcessGone.
        """
        cleanest_first = sorted(
            self.holding.mappings,
            key=lambda m: total(self._copied([(m.file_range, m.start)]) or ()),
        )
        source = MemorySource(self.process, cleanest_first, size)
        try:
            yield source
        finally:
            source.close()

    def copied(self, source: MemorySource) -> tuple[Range, ...] | None:
        """Give the copied ranges of what `source` reads; None where the page map cannot tell.

        In a shared mapping there are none: every page is the file's.
        """
        shared = [m for m in self.holding.mappings if m.flags & linux.SHARED]
        return self._copied(
            (piece, address)
            for piece, address in source.segments
            if not any(m.start <= address < m.stop for m in shared)
        )

    def _copied(self, views: Iterable[tuple[Range, int]]) -> tuple[Range, ...] | None:
        with contextlib.suppress(OSError, NotPermitted, ProcessGone):
            return copied_ranges(self.process, views)
        return None


@dataclass(frozen=True)
class Length:
    """How many bytes to take from memory, and whether that is surely the file's length."""

    size: int
    known: bool
    reason: str


def length_in_memory(
    source: Source, mapped_stop: int, header: Header | None, path_size: int | None
) -> Length:
    """Find the file's length. `mapped_stop` is the offset behind the last mapped page."""
    if path_size is not None:
        return Length(path_size, True, "The length is the file's own.")
    if header is None:
        return Length(mapped_stop, False, "No header tells the length: whole pages were taken.")
    declared = header.file_size
    beyond = read_available(source, declared, max(0, min(PAGE, mapped_stop - declared)))
    if mapped_stop - declared >= PAGE or beyond.strip(b"\0"):
        return Length(
            mapped_stop,
            False,
            "Bytes follow the end that the header declares; how many is not known: whole pages "
            "were taken.",
        )
    page = Range(max(0, declared - 1) // PAGE * PAGE, declared)
    tail = read_available(source, page.start, page.size)
    zeros = len(tail) - len(tail.rstrip(b"\0"))
    if zeros >= _SUSPICIOUS_ZEROS:
        return Length(
            declared,
            False,
            f"The last {zeros} bytes are zero: a file cut short within its last page looks the "
            "same in memory. A digest known beforehand (--expect-sha256) would settle it.",
        )
    return Length(declared, True, "The length is the one that the header declares.")


def differing_tensors(
    header: Header, a: Source, b: Source, pages: Iterable[Range]
) -> tuple[str, ...]:
    """Name the tensors of which the two sources hold other bytes, looking at `pages` only."""
    ranges = merge(pages)
    suspects = set(header.touched(ranges))
    return tuple(
        tensor.name
        for tensor in header.tensors
        if tensor.name in suspects
        and any(differs(a, b, piece) for piece in within(ranges, header.span(tensor)))
    )


def differs(a: Source, b: Source, piece: Range) -> bool:
    """Tell whether two sources hold other bytes in a range."""
    for start in range(piece.start, piece.stop, _COMPARED_AT_ONCE):
        length = min(_COMPARED_AT_ONCE, piece.stop - start)
        if read_available(a, start, length) != read_available(b, start, length):
            return True
    return False
