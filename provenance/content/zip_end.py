"""The end of a zip: where its directory lies, how large it is, and how many entries it has.

Layouts and names of fields: PKWARE's APPNOTE 6.3.10, sections 4.3.14 to 4.3.16.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

from ...errors import Unusable
from ..finding import Finding, FindingKind
from .zip_source import ZipSource

_END = struct.Struct("<4s4H2LH")
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR = struct.Struct("<4sLQL")
_END_MARK, _END64_MARK, _LOCATOR_MARK = b"PK\5\6", b"PK\6\6", b"PK\6\7"
_LONGEST_COMMENT = 0xFFFF
_COMMIT = re.compile(rb"[0-9a-f]{40}(?:[0-9a-f]{24})?")
LARGEST_DIRECTORY = 256 << 20
MOST_ENTRIES = 1_000_000
_OUR_VERSIONS = (3 << 8 | 45, 45)


@dataclass(frozen=True)
class ZipEnd:
    """What the end records say; `shift` is how many bytes stand before where the zip begins.

    `start` is where the first end record begins, the directory therefore has to end.
    """

    start: int
    directory_offset: int
    directory_size: int
    entries: int
    shift: int
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class _Stated:
    entries: int
    size: int
    offset: int


def read_end(source: ZipSource) -> ZipEnd:
    """Read the end records. Raises Unusable when there is none, or nothing can be made of it."""
    tail_start = max(0, source.size - _END.size - _LONGEST_COMMENT)
    tail = source.read_at(tail_start, source.size - tail_start)
    place = _find(tail)
    if place < 0:
        raise _unusable(source, "is cut off or no zip: there is no end record")
    fields = _END.unpack_from(tail, place)
    _, disk, directory_disk, on_disk, total, size, offset, comment = fields
    at = tail_start + place
    findings = _after(source.size - at - _END.size, comment, tail[place + _END.size :])
    stated = _Stated(total, size, offset)
    narrow = stated
    locator_at = at - _LOCATOR.size
    start = at
    if locator_at >= 0 and source.read_at(locator_at, 4) == _LOCATOR_MARK:
        start, stated, shift64, versions = _read_end64(source, locator_at)
        if not _agree(narrow, stated):
            text = "The two end records, of which one is for large zips, contradict each other."
            findings.append(Finding(FindingKind.HEADERS_DIFFER, None, text))
        elif not _needed(stated):
            text = "It has an end record for large zips without being one."
            findings.append(Finding(FindingKind.DIALECT, None, text))
        if versions != _OUR_VERSIONS:
            text = "Its end record for large zips has other version numbers."
            findings.append(Finding(FindingKind.DIALECT, None, text))
    else:
        shift64 = None
        if total == 0xFFFF or 0xFFFFFFFF in (size, offset):
            # All ones are also a valid count, which only then is what is found.
            if size == 0xFFFFFFFF or offset == 0xFFFFFFFF:
                raise _unusable(source, "is damaged: the end record for large zips is missing")
    if disk not in (0, 0xFFFF) or directory_disk not in (0, 0xFFFF) or on_disk != total:
        raise _unusable(source, "is one part of a zip in several parts")
    if 0xFFFF in (disk, directory_disk) and start == at:
        raise _unusable(source, "is one part of a zip in several parts")
    return _placed(source, start, stated, shift64, findings)


def _find(tail: bytes) -> int:
    """Find the last record whose comment ends where the file ends, else the last one at all."""
    first = len(tail) - _END.size
    place = tail.rfind(_END_MARK, 0, first + 4) if first >= 0 else -1
    last = place
    while place >= 0:
        if place + _END.size + _END.unpack_from(tail, place)[7] == len(tail):
            return place
        place = tail.rfind(_END_MARK, 0, place + 3)
    return last


def _after(count: int, comment: int, data: bytes) -> list[Finding]:
    findings: list[Finding] = []
    if comment > count:
        text = f"The comment at its end has {comment:,} bytes, of which {count:,} are there."
        findings.append(Finding(FindingKind.HIDDEN_BYTES, None, text))
    elif _COMMIT.fullmatch(data[:comment]):
        text = (
            f"It ends with a comment as `git archive` writes it: commit {data[:comment].decode()}."
        )
        findings.append(Finding(FindingKind.DIALECT, None, text))
    elif comment:
        text = f"It ends with a comment of {comment:,} bytes, which no checksum covers."
        findings.append(Finding(FindingKind.HIDDEN_BYTES, None, text))
    if count > comment:
        text = f"{count - comment:,} bytes follow the end of the zip."
        findings.append(Finding(FindingKind.HIDDEN_BYTES, None, text))
    return findings


def _read_end64(source: ZipSource, locator_at: int) -> tuple[int, _Stated, int, tuple[int, int]]:
    _, disk, stated_at, disks = _LOCATOR.unpack(source.read_at(locator_at, _LOCATOR.size))
    start = locator_at - _END64.size
    if disk != 0 or disks != 1:
        raise _unusable(source, "is one part of a zip in several parts")
    if start < 0 or source.read_at(start, 4) != _END64_MARK or stated_at > start:
        raise _unusable(source, "is damaged: its end record for large zips is not where it says")
    _, length, made_by, needed, disk, directory_disk, on_disk, total, size, offset = _END64.unpack(
        source.read_at(start, _END64.size)
    )
    if length != _END64.size - 12:
        raise _unusable(source, "has an end record for large zips of a form that nobody writes")
    if disk or directory_disk or on_disk != total:
        raise _unusable(source, "is one part of a zip in several parts")
    return start, _Stated(total, size, offset), start - stated_at, (made_by, needed)


def _agree(narrow: _Stated, wide: _Stated) -> bool:
    return (
        narrow.entries in (wide.entries, 0xFFFF)
        and narrow.size in (wide.size, 0xFFFFFFFF)
        and narrow.offset in (wide.offset, 0xFFFFFFFF)
    )


def _needed(stated: _Stated) -> bool:
    return stated.entries >= 0xFFFF or stated.size >= 0xFFFFFFFF or stated.offset >= 0xFFFFFFFF


def _placed(
    source: ZipSource, start: int, stated: _Stated, shift64: int | None, findings: list[Finding]
) -> ZipEnd:
    room = start - stated.offset - stated.size
    if room < 0:
        raise _unusable(source, "is damaged: its directory would reach into its end record")
    if stated.size > LARGEST_DIRECTORY:
        raise _unusable(source, f"has a directory of more than {LARGEST_DIRECTORY >> 20} MiB")
    if stated.entries > MOST_ENTRIES:
        raise _unusable(source, f"lists more than {MOST_ENTRIES:,} entries")
    shift = 0
    if room and _is_entry(source, stated.offset + room, stated):
        shift = room
        text = f"{room:,} bytes stand before the zip: it begins like another kind of file."
        findings.append(Finding(FindingKind.HIDDEN_BYTES, None, text))
    elif room:
        text = f"{room:,} bytes lie hidden between the directory and the end record."
        findings.append(Finding(FindingKind.HIDDEN_BYTES, None, text))
    if shift64 is not None and shift64 != shift:
        text = "The end record for large zips is not where its locator says."
        findings.append(Finding(FindingKind.HEADERS_DIFFER, None, text))
    return ZipEnd(start, stated.offset + shift, stated.size, stated.entries, shift, tuple(findings))


def _is_entry(source: ZipSource, offset: int, stated: _Stated) -> bool:
    if stated.size < 4:
        return True
    at_offset = source.read_at(stated.offset, 4) == b"PK\1\2"
    return not at_offset and source.read_at(offset, 4) == b"PK\1\2"


def _unusable(source: ZipSource, fault: str) -> Unusable:
    return Unusable(f"{source.label} {fault}.", remedy="Get the file from its source again.")
