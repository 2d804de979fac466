"""Local headers of a zip against its directory, and that every byte belongs to one thing.

Layout: PKWARE's APPNOTE 6.3.10, sections 4.3.7 and 4.3.9.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import Unusable
from ..finding import Finding, FindingKind
from .shown import shown
from .zip_end import ZipEnd
from .zip_entry import DESCRIPTOR, NARROW, VERSION_ZIP64, Entry, widened
from .zip_extra import read_extra
from .zip_source import ZipSource

_HEADER = struct.Struct("<4s5H3L2H")
_MARK = b"PK\3\4"
_READ_AT_ONCE = _HEADER.size + 256


@dataclass(frozen=True)
class Placed:
    """An entry, where its data begin, and what is unusual about how it lies there."""

    entry: Entry
    data_at: int
    dialects: tuple[str, ...]


@dataclass(frozen=True)
class ZipLayout:
    """All entries in the order of the directory, and what the bytes between them say."""

    placed: tuple[Placed, ...]
    findings: tuple[Finding, ...]


def read_layout(source: ZipSource, end: ZipEnd, entries: Sequence[Entry]) -> ZipLayout:
    """Walk through the file from its first byte to the directory.

    Raises Unusable where two entries share bytes, or a header is not where the directory says.
    """
    order = sorted(range(len(entries)), key=lambda index: entries[index].offset)
    placed: dict[int, Placed] = {}
    findings: list[Finding] = []
    at = end.shift
    for rank, index in enumerate(order):
        entry = entries[index]
        if entry.offset < at:
            raise _damaged(source, f"{_shown(entry)} shares bytes with another entry")
        if entry.offset < end.directory_offset:
            findings += _gap(source, at, entry.offset)
        following = (
            entries[order[rank + 1]].offset if rank + 1 < len(order) else end.directory_offset
        )
        placed[index], at = _walk(source, entry, following, findings)
        if at > end.directory_offset:
            raise _damaged(source, f"{_shown(entry)} reaches into the directory: cut off or forged")
    findings += _gap(source, at, end.directory_offset)
    if list(order) != list(range(len(entries))):
        text = "Its directory lists the entries in another order than they lie in."
        findings.append(Finding(FindingKind.DIALECT, None, text))
    return ZipLayout(tuple(placed[index] for index in range(len(entries))), tuple(findings))


def _walk(
    source: ZipSource, entry: Entry, following: int, findings: list[Finding]
) -> tuple[Placed, int]:
    """Check one local header and its descriptor; give where the entry ends."""
    room = source.size - entry.offset
    head = source.read_at(entry.offset, min(_READ_AT_ONCE, room)) if room > 0 else b""
    if len(head) < _HEADER.size or head[:4] != _MARK:
        raise _damaged(source, f"{_shown(entry)} is not where the directory says")
    _, needed, flags, method, time, date, crc, packed, size, name_size, extra_size = (
        _HEADER.unpack_from(head)
    )
    length = _HEADER.size + name_size + extra_size
    if length > len(head):
        head = source.read_at(entry.offset, length)
    name = head[_HEADER.size : _HEADER.size + name_size]
    extra = head[_HEADER.size + name_size : length]
    unused = None
    if NARROW in (packed, size) or b"\1\0" in extra:
        size, packed, _, _, unused = widened(source, extra, size, packed, 0, 0)
    later = bool(flags & DESCRIPTOR)  # what was not known yet is zero, and stands after the data
    # The version that a field for large files asks for is raised by some in one header only.
    wide = not (unused is None and entry.unused is None)
    raised = wide and needed != entry.needed and max(needed, entry.needed) == VERSION_ZIP64
    differing = [
        what
        for what, ours, theirs in (
            ("name", name, entry.raw_name),
            ("version", needed, needed if raised else entry.needed),
            ("flags", flags, entry.flags),
            ("method", method, entry.method),
            ("time", (date, time), (entry.date, entry.time)),
            ("checksum", crc, 0 if later and not crc else entry.crc),
            ("compressed size", packed, 0 if later and not packed else entry.packed),
            ("size", size, 0 if later and not size else entry.size),
        )
        if ours != theirs
    ]
    dialects = ["other version numbers"] if raised else list[str]()
    if extra:
        found = read_extra(extra, name)
        here = read_extra(entry.extra, entry.raw_name)
        if found.fault is not None or unused:
            _hidden(findings, entry, found.fault or "a field for large files with more in it")
        if found.unicode_name != here.unicode_name:
            differing.append("second name")
        if found.fields:
            dialects.append("extra fields about times and owners")
        if unused is not None and entry.size < NARROW and entry.packed < NARROW:
            dialects.append("a field for large files without being one")
    elif read_extra(entry.extra, entry.raw_name).unicode_name is not None:
        differing.append("second name")
    if differing:
        text = f"{_shown(entry)}: its header and the directory differ in {', '.join(differing)}."
        findings.append(Finding(FindingKind.HEADERS_DIFFER, _path(entry), text))
    data_at = entry.offset + length
    stop = data_at + entry.packed
    if entry.flags & DESCRIPTOR:
        dialects.append("sizes written after the data")
        stop += _descriptor(source, entry, stop, following, findings)
    return Placed(entry, data_at, tuple(dialects)), stop


def _descriptor(
    source: ZipSource, entry: Entry, at: int, following: int, findings: list[Finding]
) -> int:
    forms = [
        mark + struct.pack(form, entry.crc, entry.packed, entry.size)
        for mark in (b"PK\7\10", b"")
        for form in ("<LQQ", "<LLL")
        if form == "<LQQ" or max(entry.packed, entry.size) <= NARROW
    ]
    room = max(0, min(24, source.size - at))
    found = source.read_at(at, room)
    fitting = [len(form) for form in forms if found.startswith(form)]
    if not fitting:
        text = f"{_shown(entry)}: what is written after its data differs from the directory."
        findings.append(Finding(FindingKind.HEADERS_DIFFER, _path(entry), text))
        return 0
    return following - at if following - at in fitting else fitting[0]


def _gap(source: ZipSource, start: int, stop: int) -> list[Finding]:
    count = stop - start
    if count <= 0:
        return []
    entry = count >= 4 and source.read_at(start, 4) == _MARK
    what = "an entry that the directory does not list" if entry else "bytes that belong to nothing"
    text = f"{count:,} bytes at offset {start:,} are hidden: {what}."
    return [Finding(FindingKind.HIDDEN_BYTES, None, text)]


def _hidden(findings: list[Finding], entry: Entry, what: str) -> None:
    text = f"{_shown(entry)} has {what} in its local header."
    findings.append(Finding(FindingKind.HIDDEN_BYTES, _path(entry), text))


def _path(entry: Entry) -> str:
    return entry.raw_name.decode("utf-8", "surrogateescape").removesuffix("/")


def _shown(entry: Entry) -> str:
    return shown(entry.raw_name)


def _damaged(source: ZipSource, fault: str) -> Unusable:
    return Unusable(
        f"{source.label} is not usable: {fault}.", remedy="Get the file from its source again."
    )
