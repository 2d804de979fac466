"""Zips that two readers understand differently, hide something or do harm when unpacked."""

from __future__ import annotations

import functools
import io
import stat
import struct
import tarfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass

from zip_builder import REGULAR, Piece, build, directory_entry, local_header

from reefkit.provenance.finding import FindingKind as Kind

A, B = Piece(b"a.txt", b"alpha\n"), Piece(b"b.txt", b"beta\n")
UTF8 = 0x800
DESCRIPTOR = 0x8


@dataclass(frozen=True)
class Hostile:
    """A zip and what is said of it: the kind of finding, or None where it is refused.

    `says` is part of the sentence.
    """

    make: Callable[[], bytes]
    kind: Kind | None
    says: str = ""


def deflated(name: bytes, content: bytes, **changes: object) -> Piece:
    """Make a deflated entry."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = packer.compress(content) + packer.flush()
    fields: dict[str, object] = {"size": len(content), "crc": zlib.crc32(content), "method": 8}
    fields.update(changes)
    return Piece(name, packed, **fields)  # type: ignore[arg-type]


def extra(kind: int, data: bytes) -> bytes:
    """Make an extra field."""
    return struct.pack("<2H", kind, len(data)) + data


def unicode_path(raw: bytes, name: bytes) -> bytes:
    """Make the extra field with a second name."""
    return extra(0x7075, b"\1" + struct.pack("<L", zlib.crc32(raw)) + name)


def with_mode(kind: int, name: bytes = b"a.txt", data: bytes = b"/etc/passwd") -> bytes:
    return build([Piece(name, data, external=(kind | 0o644) << 16)])


def named(*names: bytes, flags: int = 0) -> Callable[[], bytes]:
    return lambda: build([Piece(name, b"%d\n" % i, flags=flags) for i, name in enumerate(names)])


def differing(field: str, value: object) -> Callable[[], bytes]:
    return lambda: build([Piece(b"a.txt", b"alpha\n", local={field: value}), B])


def tar() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as file:
        file.addfile(tarfile.TarInfo("a.txt"), io.BytesIO())
    return out.getvalue()


def overlapping() -> bytes:
    inner = local_header(B) + B.data
    outer = Piece(b"a.txt", inner)
    data = local_header(outer) + inner
    directory = directory_entry(outer, 0) + directory_entry(B, len(local_header(outer)))
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 2, 2, len(directory), len(data), 0)
    return data + directory + end


def two_directories() -> bytes:
    """Make a zip in the comment of another one: which is read depends on where one looks first."""
    inner = build([B])
    return build([A], comment=inner)


def zipfile_encrypted() -> bytes:
    return build([Piece(b"a.txt", b"0123456789ab" + b"x" * 9, flags=1)])


def wrong_end64() -> bytes:
    return build([A, B], end64=True, wide={"total": 1, "here": 1})


@functools.cache
def bomb() -> bytes:
    return build([deflated(b"bomb.bin", bytes(66 << 20))])


def cut_off_end() -> bytes:
    data = build([A, B])
    return data[:-7]


NFC, NFD = "é.txt".encode(), "e\u0301.txt".encode()
FLIPPED_LAST_BLOCK = deflated(b"a.txt", b"alpha\n" * 100)

HOSTILE: dict[str, Hostile] = {
    # two entries for one name
    "a name twice": Hostile(named(b"a.txt", b"a.txt"), Kind.DUPLICATE_MEMBER),
    "a folder twice": Hostile(
        lambda: build([Piece(b"d/", b""), Piece(b"d/", b"")]), Kind.DUPLICATE_MEMBER
    ),
    "case twins": Hostile(named(b"a.txt", b"A.TXT"), Kind.TWIN_NAMES, "only in case"),
    "case twins of folders": Hostile(named(b"d/a", b"D/b"), Kind.TWIN_NAMES),
    "normal form twins": Hostile(named(NFC, NFD, flags=UTF8), Kind.TWIN_NAMES, "normal form"),
    "file and folder": Hostile(named(b"a", b"a/b"), Kind.TWIN_NAMES, "at once"),
    "file and folder entry": Hostile(
        lambda: build([Piece(b"a"), Piece(b"a/", b"")]), Kind.TWIN_NAMES, "at once"
    ),
    # names that lead elsewhere
    "leads out": Hostile(named(b"../evil"), Kind.UNSAFE_NAME, "out of"),
    "leads out later": Hostile(named(b"a/../../evil"), Kind.UNSAFE_NAME),
    "absolute": Hostile(named(b"/etc/passwd"), Kind.UNSAFE_NAME, "absolute"),
    "a drive": Hostile(named(b"C:/evil"), Kind.UNSAFE_NAME, "drive"),
    "a drive, relative": Hostile(named(b"C:evil"), Kind.UNSAFE_NAME, "drive"),
    "a share": Hostile(named(b"//host/share/evil"), Kind.UNSAFE_NAME),
    "backslashes": Hostile(named(b"..\\evil"), Kind.UNSAFE_NAME, "backslash"),
    "NUL": Hostile(named(b"a.txt\0.exe"), Kind.UNSAFE_NAME, "NUL"),
    "no name": Hostile(named(b""), Kind.UNSAFE_NAME),
    "only a slash": Hostile(lambda: build([Piece(b"/", b"")]), Kind.UNSAFE_NAME),
    "an empty part": Hostile(named(b"a//b"), Kind.UNSAFE_NAME),
    "a dot": Hostile(named(b"./a"), Kind.UNSAFE_NAME),
    "a device": Hostile(named(b"logs/con.txt"), Kind.UNSAFE_NAME, "device"),
    "a device and a stream": Hostile(named(b"nul:x"), Kind.UNSAFE_NAME, "device"),
    "dot at the end": Hostile(named(b"a.txt."), Kind.UNSAFE_NAME, "dot"),
    "space at the end": Hostile(named(b"dir /a"), Kind.UNSAFE_NAME, "space"),
    "a newline": Hostile(named(b"a\nb"), Kind.UNSAFE_NAME, "control"),
    "right to left": Hostile(
        named("a\u202etxt.exe".encode(), flags=UTF8), Kind.UNSAFE_NAME, "format"
    ),
    "no UTF-8": Hostile(named(b"\xff\xfe", flags=UTF8), Kind.UNSAFE_NAME, "UTF-8"),
    # bytes that no checksum covers
    "prefix, offsets not counting it": Hostile(
        lambda: build([A, B], prefix=b"#!/bin/sh\n"), Kind.HIDDEN_BYTES, "before"
    ),
    "prefix, offsets counting it": Hostile(
        lambda: build([A, B], prefix=b"#!/bin/sh\n", shifted=True), Kind.HIDDEN_BYTES
    ),
    "trailing bytes": Hostile(
        lambda: build([A, B], suffix=b"more"), Kind.HIDDEN_BYTES, "follow the end"
    ),
    "comment": Hostile(lambda: build([A], comment=b"hello"), Kind.HIDDEN_BYTES, "comment"),
    "a zip in the comment": Hostile(two_directories, Kind.HIDDEN_BYTES),
    "comment of an entry": Hostile(
        lambda: build([Piece(b"a.txt", comment=b"psst")]), Kind.HIDDEN_BYTES, "comment"
    ),
    "gap between entries": Hostile(
        lambda: build([A, B], gaps={1: b"hidden"}), Kind.HIDDEN_BYTES, "belong to nothing"
    ),
    "gap before the directory": Hostile(
        lambda: build([A, B], gaps={2: b"hidden"}), Kind.HIDDEN_BYTES
    ),
    "gap after the directory": Hostile(
        lambda: build([A, B], after_directory=b"hidden"), Kind.HIDDEN_BYTES
    ),
    "entry that is not listed": Hostile(
        lambda: build([A, Piece(b"evil", listed=False), B]), Kind.HIDDEN_BYTES, "does not list"
    ),
    "unknown extra field": Hostile(
        lambda: build([Piece(b"a.txt", extra=extra(0xBEEF, b"payload"))]), Kind.HIDDEN_BYTES
    ),
    "unknown extra field, local only": Hostile(
        differing("extra", extra(0xBEEF, b"payload")), Kind.HIDDEN_BYTES
    ),
    "extra field that is cut off": Hostile(
        lambda: build([Piece(b"a.txt", extra=b"\x55\x54\xff\0x")]), Kind.HIDDEN_BYTES
    ),
    "times that are too long": Hostile(
        lambda: build([Piece(b"a.txt", extra=extra(0x5455, bytes(99)))]), Kind.HIDDEN_BYTES
    ),
    "zip64 field that stands for nothing": Hostile(
        lambda: build([Piece(b"a.txt", extra=extra(1, bytes(16)))]), Kind.HIDDEN_BYTES
    ),
    "folder with content": Hostile(
        lambda: build([Piece(b"d/", b"in a folder")]), Kind.HIDDEN_BYTES, "folder"
    ),
    "bytes after deflate data": Hostile(
        lambda: build(
            [
                Piece(
                    b"a.txt",
                    deflated(b"", b"x" * 100).data + b"hidden",
                    size=100,
                    crc=zlib.crc32(b"x" * 100),
                    method=8,
                )
            ]
        ),
        Kind.CHECKSUM,
        "hidden after",
    ),
    # the two headers contradict each other
    "other name": Hostile(differing("name", b"evil."), Kind.HEADERS_DIFFER, "name"),
    "other name, same length": Hostile(differing("name", b"z.txt"), Kind.HEADERS_DIFFER, "name"),
    "other checksum": Hostile(differing("crc", 1), Kind.HEADERS_DIFFER, "checksum"),
    "other size": Hostile(differing("size", 5), Kind.HEADERS_DIFFER, "size"),
    "other compressed size": Hostile(differing("packed", 5), Kind.HEADERS_DIFFER, "size"),
    "other method": Hostile(differing("method", 8), Kind.HEADERS_DIFFER, "method"),
    "other flags": Hostile(differing("flags", UTF8), Kind.HEADERS_DIFFER, "flags"),
    "other version": Hostile(differing("needed", 10), Kind.HEADERS_DIFFER, "version"),
    "other time": Hostile(differing("date", 0x22), Kind.HEADERS_DIFFER, "time"),
    "second name": Hostile(
        lambda: build([Piece(b"a.txt", extra=unicode_path(b"a.txt", b"evil.txt"))]),
        Kind.HEADERS_DIFFER,
        "second name",
    ),
    "second name, local only": Hostile(
        differing("extra", unicode_path(b"a.txt", b"evil.txt")), Kind.HEADERS_DIFFER
    ),
    "count too small": Hostile(
        lambda: build([A, B], end={"total": 1, "here": 1}), Kind.HEADERS_DIFFER, "counts"
    ),
    "count too large": Hostile(
        lambda: build([A, B], end={"total": 3, "here": 3}), Kind.HEADERS_DIFFER, "counts"
    ),
    "end records contradict": Hostile(wrong_end64, Kind.HEADERS_DIFFER),
    "descriptor with another checksum": Hostile(
        lambda: build(
            [
                Piece(
                    b"a.txt",
                    b"alpha\n",
                    flags=DESCRIPTOR,
                    local={"crc": 0, "packed": 0, "size": 0},
                    descriptor=struct.pack("<4s3L", b"PK\7\10", 1, 6, 6),
                )
            ]
        ),
        Kind.HEADERS_DIFFER,
        "after its data",
    ),
    "file with the attribute of folders": Hostile(
        lambda: build([Piece(b"a.txt", external=REGULAR | 0x10)]), Kind.HEADERS_DIFFER
    ),
    "folder with the mode of a file": Hostile(
        lambda: build([Piece(b"d/", b"", external=REGULAR)]), Kind.HEADERS_DIFFER
    ),
    # what would become something else than a file
    "symbolic link": Hostile(lambda: with_mode(stat.S_IFLNK), Kind.LINK),
    "fifo": Hostile(lambda: with_mode(stat.S_IFIFO), Kind.SPECIAL_FILE),
    "device": Hostile(lambda: with_mode(stat.S_IFBLK), Kind.SPECIAL_FILE),
    "mode of a folder": Hostile(lambda: with_mode(stat.S_IFDIR), Kind.SPECIAL_FILE),
    # data that do not hold
    "wrong checksum": Hostile(lambda: build([Piece(b"a.txt", crc=1)]), Kind.CHECKSUM),
    "empty file with a checksum": Hostile(
        lambda: build([Piece(b"a.txt", b"", crc=1)]), Kind.CHECKSUM
    ),
    "deflate without its last block": Hostile(
        lambda: build(
            [
                Piece(
                    b"a.txt",
                    bytes([FLIPPED_LAST_BLOCK.data[0] & ~1]) + FLIPPED_LAST_BLOCK.data[1:],
                    size=600,
                    crc=FLIPPED_LAST_BLOCK.crc,
                    method=8,
                )
            ]
        ),
        Kind.CHECKSUM,
        "no end",
    ),
    "deflate data that are none": Hostile(
        lambda: build([Piece(b"a.txt", b"\xff" * 20, size=600, method=8)]), Kind.CHECKSUM
    ),
    "inflates to more": Hostile(
        lambda: build([deflated(b"a.txt", b"x" * 1000, size=999)]), Kind.CHECKSUM, "more bytes"
    ),
    "inflates to fewer": Hostile(
        lambda: build([deflated(b"a.txt", b"x" * 1000, size=1001)]), Kind.CHECKSUM, "fewer bytes"
    ),
    "inflates to nothing, states nothing": Hostile(
        lambda: build([Piece(b"a.txt", b"\xff" * 20, size=0, crc=0, method=8)]), Kind.CHECKSUM
    ),
    "bomb": Hostile(bomb, Kind.TOO_LARGE, "inflate"),
    # refused as a whole
    "overlapping entries": Hostile(overlapping, None, "shares bytes"),
    "the same data for two entries": Hostile(
        lambda: build([A, Piece(b"b.txt", b"alpha\n", central={"offset": 0})]), None, "shares"
    ),
    "encrypted": Hostile(zipfile_encrypted, None, "encrypted"),
    "strongly encrypted": Hostile(lambda: build([Piece(b"a", flags=0x41)]), None, "encrypted"),
    "unknown method": Hostile(lambda: build([Piece(b"a", method=12)]), None, "method 12"),
    "unknown flags": Hostile(lambda: build([Piece(b"a", flags=0x20)]), None, "flags"),
    "several disks": Hostile(lambda: build([A], end={"disk": 1}), None, "several parts"),
    "several disks, by the entry": Hostile(
        lambda: build([Piece(b"a", central={"disk": 1})]), None, "several parts"
    ),
    "several disks, by counts": Hostile(lambda: build([A, B], end={"here": 1}), None, "parts"),
    "stored with two sizes": Hostile(lambda: build([Piece(b"a", size=9)]), None, "two sizes"),
    "offset beyond the file": Hostile(
        lambda: build([Piece(b"a", central={"offset": 1 << 30})]), None
    ),
    "offset within another entry": Hostile(
        lambda: build([A, Piece(b"b.txt", central={"offset": 40})]), None
    ),
    "size beyond the file": Hostile(
        lambda: build([Piece(b"a", central={"packed": 999, "size": 999})]), None, "reaches into"
    ),
    "directory beyond the file": Hostile(lambda: build([A], end={"size": 4000}), None, "reach"),
    "directory cut off": Hostile(lambda: build([A, B], end={"size": 60}), None),
    "end record cut off": Hostile(cut_off_end, None),
    "no end record": Hostile(lambda: build([A, B])[:80], None, "truncated"),
    "zip64 end record is missing": Hostile(
        lambda: build([A], end={"offset": 0xFFFFFFFF}), None, "missing"
    ),
    "zip64 end record elsewhere": Hostile(
        lambda: build([A], end64=True, wide={"at": 1 << 40}), None, "not where"
    ),
    "zip64 end record of another form": Hostile(
        lambda: build([A], end64=True, wide={"length": 60}), None, "form"
    ),
    "zip64 field too short": Hostile(
        lambda: build([Piece(b"a", central={"size": 0xFFFFFFFF, "extra": extra(1, b"1234")})]),
        None,
        "too short",
    ),
    "directory of many GiB": Hostile(lambda: build([A], end={"size": 0xFFFFFFF0}), None),
    "nothing": Hostile(lambda: b"", None, "empty"),
    "a tar": Hostile(tar, None, "tar"),
    "an HTML page": Hostile(lambda: b"\n<!DOCTYPE html><title>404", None, "HTML"),
    "JSON": Hostile(lambda: b'{"message": "Not Found"}', None, "JSON"),
    "a gzip": Hostile(lambda: b"\x1f\x8b\x08" + bytes(40), None, "gzip"),
    "an LFS pointer": Hostile(
        lambda: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", None, "LFS"
    ),
    "noise": Hostile(lambda: bytes(range(256)) * 300, None, "no end record"),
}
