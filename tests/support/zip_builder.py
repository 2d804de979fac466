"""Zips put together byte by byte, so that every field can lie."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

REGULAR = 0o100644 << 16


@dataclass(frozen=True)
class Piece:
    """One entry; `local` and `central` override fields of the one header or the other."""

    name: bytes
    data: bytes = b"data\n"
    size: int | None = None
    crc: int | None = None
    method: int = 0
    flags: int = 0
    extra: bytes = b""
    comment: bytes = b""
    external: int = REGULAR
    descriptor: bytes = b""
    listed: bool = True
    local: Mapping[str, object] = field(default_factory=dict[str, object])
    central: Mapping[str, object] = field(default_factory=dict[str, object])

    def fields(self) -> dict[str, object]:
        return {
            "name": self.name,
            "made_by": 0x0314,
            "needed": 20,
            "flags": self.flags,
            "method": self.method,
            "time": 0,
            "date": 0x21,
            "crc": zlib.crc32(self.data) if self.crc is None else self.crc,
            "packed": len(self.data),
            "size": len(self.data) if self.size is None else self.size,
            "extra": self.extra,
            "comment": self.comment,
            "disk": 0,
            "internal": 0,
            "external": self.external,
        }


def local_header(piece: Piece) -> bytes:
    f = {**piece.fields(), **piece.local}
    name, extra = f["name"], f["extra"]
    assert isinstance(name, bytes) and isinstance(extra, bytes)
    values = [f[k] for k in ("needed", "flags", "method", "time", "date", "crc", "packed", "size")]
    head = struct.pack("<4s5H3L2H", b"PK\3\4", *values, len(name), len(extra))
    return head + name + extra


def directory_entry(piece: Piece, offset: int) -> bytes:
    f = {**piece.fields(), "offset": offset, **piece.central}
    name, extra, comment = f["name"], f["extra"], f["comment"]
    assert isinstance(name, bytes) and isinstance(extra, bytes) and isinstance(comment, bytes)
    keys = ("made_by", "needed", "flags", "method", "time", "date", "crc", "packed", "size")
    values = [f[k] for k in keys]
    lengths = (len(name), len(extra), len(comment))
    tail = [f[k] for k in ("disk", "internal", "external", "offset")]
    return struct.pack("<4s6H3L5H2L", b"PK\1\2", *values, *lengths, *tail) + name + extra + comment


def build(
    pieces: Sequence[Piece],
    *,
    prefix: bytes = b"",
    shifted: bool = False,
    gaps: Mapping[int, bytes] | None = None,
    after_directory: bytes = b"",
    end64: bool = False,
    comment: bytes = b"",
    suffix: bytes = b"",
    end: Mapping[str, int] | None = None,
    wide: Mapping[str, int] | None = None,
) -> bytes:
    """Put a zip together; with `shifted` the offsets count the prefix.

    `gaps` are bytes before the piece of that number; `end` and `wide` override fields of the end
    records.
    """
    out = bytearray(prefix)
    base = 0 if shifted else len(prefix)
    places: list[int] = []
    for number, piece in enumerate(pieces):
        out += (gaps or {}).get(number, b"")
        places.append(len(out) - base)
        out += local_header(piece) + piece.data + piece.descriptor
    out += (gaps or {}).get(len(pieces), b"")
    start = len(out)
    listed = [(p, at) for p, at in zip(pieces, places, strict=True) if p.listed]
    for piece, at in listed:
        out += directory_entry(piece, at)
    size = len(out) - start
    out += after_directory
    stated = {
        "disk": 0,
        "directory_disk": 0,
        "here": len(listed),
        "total": len(listed),
        "size": size,
        "offset": start - base,
    }
    if end64:
        f = {**stated, "length": 44, "at": len(out) - base, "disks": 1, **(wide or {})}
        wide_keys = ("disk", "directory_disk", "here", "total", "size", "offset")
        out += struct.pack("<4sQ2H2L4Q", b"PK\6\6", f["length"], 45, 45, *(f[k] for k in wide_keys))
        out += struct.pack("<4sLQL", b"PK\6\7", 0, f["at"], f["disks"])
    f = {**stated, "comment": len(comment), **(end or {})}
    keys = ("disk", "directory_disk", "here", "total", "size", "offset", "comment")
    out += struct.pack("<4s4H2LH", b"PK\5\6", *(f[k] for k in keys)) + comment + suffix
    return bytes(out)
