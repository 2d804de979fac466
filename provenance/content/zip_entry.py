"""One entry of a zip's directory, and what its fields mean.

Layout: PKWARE's APPNOTE 6.3.10, sections 4.3.12 and 4.4.
"""

from __future__ import annotations

import stat
import struct
from typing import NamedTuple

from ...errors import Unusable
from ..sums.names import DEEPEST, LONGEST
from .zip_end import MOST_ENTRIES, ZipEnd
from .zip_source import ZipSource

STORED, DEFLATED = 0, 8
ENCRYPTED, DEFLATE_LEVEL, DESCRIPTOR, STRONG, UTF8, MASKED = 0x1, 0x6, 0x8, 0x40, 0x800, 0x2000
_KNOWN_FLAGS = DEFLATE_LEVEL | DESCRIPTOR | UTF8
_HEADER = struct.Struct("<4s6H3L5H2L")
_MARK = b"PK\1\2"
UNIX = 3
VERSION = 20
VERSION_ZIP64 = 45
NARROW = 0xFFFFFFFF


class Entry(NamedTuple):
    """Fields of the directory, sizes and offset widened where a zip64 field stands in for them.

    `offset` is where the local header lies in the file. `unused` is how many bytes of the zip64
    field stand in for nothing, None where there is no such field.
    """

    raw_name: bytes
    made_by: int
    needed: int
    flags: int
    method: int
    time: int
    date: int
    crc: int
    packed: int
    size: int
    extra: bytes
    comment: bytes
    internal: int
    external: int
    offset: int
    unused: int | None

    @property
    def system(self) -> int:
        """Give the system whose meaning the external attributes have."""
        return self.made_by >> 8

    @property
    def file_type(self) -> int:
        """Give the S_IF* bits of its mode; 0 where none are stated.

        Whatever the system: unzip makes links for most of them, other programs for all.
        """
        return stat.S_IFMT(self.external >> 16)

    @property
    def special_bits(self) -> bool:
        """Say whether its mode has the set-user-ID, set-group-ID or sticky bit."""
        return bool(self.external >> 16 & (stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX))

    @property
    def is_folder(self) -> bool:
        """Say whether its name says that it is a folder."""
        return self.raw_name.endswith(b"/")


def read_directory(source: ZipSource, end: ZipEnd) -> tuple[Entry, ...]:
    """Read all entries. Raises Unusable for what cannot be read or would not be read alike."""
    data = source.read_at(end.directory_offset, end.directory_size)
    entries: list[Entry] = []
    at = 0
    while at < len(data):
        entry, at = _entry(source, data, at, end.shift)
        _refuse_unreadable(source, entry)
        entries.append(entry)
        if len(entries) > MOST_ENTRIES:
            raise _damaged(source, f"it lists more than {MOST_ENTRIES:,} entries")
    return tuple(entries)


def _entry(source: ZipSource, data: bytes, at: int, shift: int) -> tuple[Entry, int]:
    if len(data) - at < _HEADER.size or data[at : at + 4] != _MARK:
        raise _damaged(source, "its directory holds something that is no entry")
    (
        *_,
        made_by,
        needed,
        flags,
        method,
        time,
        date,
        crc,
        packed,
        size,
        name_size,
        extra_size,
        comment_size,
        disk,
        internal,
        external,
        offset,
    ) = _HEADER.unpack_from(data, at)
    name_at = at + _HEADER.size
    extra_at = name_at + name_size
    comment_at = extra_at + extra_size
    end = comment_at + comment_size
    if end > len(data):
        raise _damaged(source, "an entry reaches beyond its directory")
    extra = data[extra_at:comment_at]
    unused = None
    if NARROW in (packed, size, offset) or disk == 0xFFFF or b"\1\0" in extra:
        size, packed, offset, disk, unused = widened(source, extra, size, packed, offset, disk)
    if disk:
        raise _damaged(source, "it is one part of a zip in several parts")
    entry = Entry(
        data[name_at:extra_at],
        made_by,
        needed,
        flags,
        method,
        time,
        date,
        crc,
        packed,
        size,
        extra,
        data[comment_at:end],
        internal,
        external,
        offset + shift,
        unused,
    )
    return entry, end


def widened(
    source: ZipSource, extra: bytes, size: int, packed: int, offset: int, disk: int
) -> tuple[int, int, int, int, int | None]:
    """Put in the values of a zip64 field (APPNOTE 4.5.3) for those that are all ones."""
    field = zip64_field(extra)
    if field is None:
        return size, packed, offset, disk, None
    at = 0
    values: list[int] = []
    for value, narrow, form in (
        (size, NARROW, "<Q"),
        (packed, NARROW, "<Q"),
        (offset, NARROW, "<Q"),
        (disk, 0xFFFF, "<L"),
    ):
        if value == narrow:
            width = struct.calcsize(form)
            if len(field) < at + width:
                raise _damaged(source, "a field for large files is too short")
            value = struct.unpack_from(form, field, at)[0]
            at += width
        values.append(value)
    return values[0], values[1], values[2], values[3], len(field) - at


def zip64_field(extra: bytes) -> bytes | None:
    """Find the zip64 field among the extra fields; None where there is none."""
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        if kind == 1:
            return extra[at + 4 : at + 4 + length]
        at += 4 + length
    return None


def _refuse_unreadable(source: ZipSource, entry: Entry) -> None:
    if len(entry.raw_name) > LONGEST:
        raise _damaged(source, f"the name of an entry is longer than {LONGEST:,} bytes")
    if entry.raw_name.count(b"/") - entry.is_folder > DEEPEST:
        raise _damaged(source, f"an entry lies more than {DEEPEST:,} folders deep")
    if entry.flags & (ENCRYPTED | STRONG | MASKED):
        raise _damaged(source, "it is encrypted", "Decrypt it first.")
    if entry.flags & ~_KNOWN_FLAGS:
        raise _damaged(source, f"an entry has flags {entry.flags:#06x}, which nobody defines")
    if entry.method not in (STORED, DEFLATED):
        raise _damaged(
            source,
            f"an entry is compressed by method {entry.method}",
            "Make it anew, stored or deflated.",
        )
    if entry.method == STORED and entry.packed != entry.size:
        raise _damaged(source, "a stored entry states two sizes")


def _damaged(source: ZipSource, fault: str, remedy: str | None = None) -> Unusable:
    return Unusable(
        f"{source.label} is not usable: {fault}.",
        remedy=remedy or "Get the file from its source again.",
    )
