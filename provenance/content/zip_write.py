"""Write a zip whose bytes depend on nothing but names and content.

Stored, sorted by the bytes of the names, 1980-01-01, mode 0644, made by Unix; no extra field but
that for large files where it is needed, no comment, no descriptor after the data. zipfile is not
used: which of its releases writes which headers beyond 2 GiB has changed more than once.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import BinaryIO, Protocol, cast

from ...errors import DoesNotHold, Unusable
from ..sums.names import portability_fault
from .name_bytes import name_bytes
from .shown import shown
from .zip_dialect import ATTRIBUTES, DATE_1980
from .zip_entry import NARROW, UNIX, UTF8, VERSION, VERSION_ZIP64
from .zip_names import name_fault

_PIECE = 1 << 20
_LOCAL_CRC_AT = 14


@dataclass(frozen=True)
class ZipMember:
    """One file to write; `crc32` spares reading it twice where `out` cannot go back."""

    name: str
    size: int
    open: Callable[[], BinaryIO]
    crc32: int | None = None


@dataclass(frozen=True)
class _Written:
    name: bytes
    size: int
    crc: int
    offset: int


def write_zip(out: BinaryIO, members: Iterable[ZipMember]) -> None:
    """Write all members, which come sorted by the bytes of their names, and the directory.

    Raises Unusable for names that are no name everywhere, twice there or not sorted, and
    DoesNotHold when a file has another size or checksum than was said.
    """
    written: list[_Written] = []
    at = 0
    for member in members:
        name = _checked(member, written[-1].name if written else None)
        one, at = _write_member(out, member, name, at)
        written.append(one)
    _write_directory(out, written, at)


def _checked(member: ZipMember, before: bytes | None) -> bytes:
    fault = portability_fault(member.name) or name_fault(member.name)
    if fault is not None:
        raise Unusable(f"The name {shown(member.name)} {fault}.", remedy="Rename the file first.")
    name = name_bytes(member.name)
    if before is not None and name <= before:
        why = "is there twice" if name == before else "comes out of order"
        raise Unusable(f"{shown(member.name)} {why}.", remedy="Sort by the bytes of names.")
    return name


def _write_member(
    out: BinaryIO, member: ZipMember, name: bytes, offset: int
) -> tuple[_Written, int]:
    patch = member.crc32 is None and out.seekable()
    crc = member.crc32
    if crc is None and not patch:
        crc = _copy(member, None)
    header = _local_header(name, member.size, crc or 0, offset)
    start = out.tell() if patch else 0
    out.write(header)
    found = _copy(member, out)
    if patch:
        stop = out.tell()
        out.seek(start + _LOCAL_CRC_AT)
        out.write(struct.pack("<L", found))
        out.seek(stop)
    elif found != crc:
        raise DoesNotHold(
            f"{shown(member.name)} changed while it was packed.",
            remedy="Pack it when nothing writes to it.",
        )
    return _Written(name, member.size, found, offset), offset + len(header) + member.size


def _copy(member: ZipMember, out: BinaryIO | None) -> int:
    """Copy the file and give its checksum."""
    buffer = bytearray(min(_PIECE, member.size + 1))
    view = memoryview(buffer)
    crc = size = 0
    with member.open() as file:
        while count := cast("_ReadInto", file).readinto(buffer):
            size += count
            if size > member.size:
                break
            crc = zlib.crc32(view[:count], crc)
            if out is not None:
                _write_all(out, view[:count])
    if size != member.size:
        raise DoesNotHold(
            f"{shown(member.name)} changed its size while it was packed.",
            remedy="Pack it when nothing writes to it.",
        )
    return crc


class _ReadInto(Protocol):
    def readinto(self, buffer: bytearray, /) -> int: ...


def _write_all(out: BinaryIO, data: memoryview) -> None:
    while data:
        data = data[out.write(data) :]


def _local_header(name: bytes, size: int, crc: int, offset: int) -> bytes:
    large = size >= NARROW
    extra = struct.pack("<2H2Q", 1, 16, size, size) if large else b""
    stated = NARROW if large else size
    return (
        struct.pack(
            "<4s5H3L2H",
            b"PK\3\4",
            _version(size, offset),
            _flags(name),
            0,
            0,
            DATE_1980,
            crc,
            stated,
            stated,
            len(name),
            len(extra),
        )
        + name
        + extra
    )


def _version(size: int, offset: int) -> int:
    """Give the version that is needed to read an entry, the same in both its headers."""
    return VERSION_ZIP64 if max(size, offset) >= NARROW else VERSION


def _flags(name: bytes) -> int:
    return 0 if name.isascii() else UTF8


def _write_directory(out: BinaryIO, written: list[_Written], start: int) -> None:
    at = start
    for one in written:
        record = _directory_entry(one)
        out.write(record)
        at += len(record)
    size = at - start
    count = len(written)
    if count >= 0xFFFF or size >= NARROW or start >= NARROW:
        made_by = UNIX << 8 | VERSION_ZIP64
        out.write(
            struct.pack(
                "<4sQ2H2L4Q",
                b"PK\6\6",
                44,
                made_by,
                VERSION_ZIP64,
                0,
                0,
                count,
                count,
                size,
                start,
            )
        )
        out.write(struct.pack("<4sLQL", b"PK\6\7", 0, at, 1))
    narrow = min(count, 0xFFFF)
    out.write(
        struct.pack(
            "<4s4H2LH",
            b"PK\5\6",
            0,
            0,
            narrow,
            narrow,
            min(size, NARROW),
            min(start, NARROW),
            0,
        )
    )


def _directory_entry(one: _Written) -> bytes:
    wide = b""
    if one.size >= NARROW:
        wide += struct.pack("<2Q", one.size, one.size)
    if one.offset >= NARROW:
        wide += struct.pack("<Q", one.offset)
    extra = struct.pack("<2H", 1, len(wide)) + wide if wide else b""
    version = _version(one.size, one.offset)
    size = min(one.size, NARROW)
    return (
        struct.pack(
            "<4s6H3L5H2L",
            b"PK\1\2",
            UNIX << 8 | version,
            version,
            _flags(one.name),
            0,
            0,
            DATE_1980,
            one.crc,
            size,
            size,
            len(one.name),
            len(extra),
            0,
            0,
            0,
            ATTRIBUTES,
            min(one.offset, NARROW),
        )
        + one.name
        + extra
    )
