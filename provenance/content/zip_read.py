"""A zip, read strictly: everything that two readers could understand differently is a finding.

The rules go beyond those of uv and PyPI for wheels (astral-sh/uv#15136): every byte of the file
belongs to exactly one thing, and what our own writer would not write is at least noted.
"""

from __future__ import annotations

import stat
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, cast

from ...errors import Unusable
from ..finding import Finding, FindingKind
from .members import Member, MemberKind
from .name_bytes import name_bytes
from .shown import shown
from .twins import twins_among
from .zip_dialect import Dialects
from .zip_end import read_end
from .zip_entry import DEFLATED, STORED, Entry, read_directory
from .zip_extra import read_extra
from .zip_kind import refuse_other_kinds
from .zip_local import Placed, read_layout
from .zip_names import name_of
from .zip_source import ZipSource
from .zip_streams import DeflatedStream, StoredStream

# Deflate reaches 1,032:1 with zeros; what is above is not worth reading for evidence.
LARGEST_RATIO = 1000
_SMALL = 64 << 20
# Attributes of DOS and Windows. Unpackers skip a volume label, and some make links of the last.
_VOLUME_LABEL, _DEVICE, _REPARSE_POINT = 0x8, 0x40, 0x400
_LARGEST_INFLATED = 1 << 40


@dataclass(frozen=True)
class _Seen:
    member: Member
    placed: Placed


class ZipContent:
    """The members of a zip; nothing is ever extracted. Close it, or use it in a `with`."""

    def __init__(self, path: Path) -> None:
        """Read its structure. Raises Unusable when it is no zip or cannot be read for sure."""
        self._source = ZipSource(path)
        try:
            refuse_other_kinds(self._source)
            end = read_end(self._source)
            entries = read_directory(self._source, end)
            layout = read_layout(self._source, end, entries)
        except BaseException:
            self._source.close()
            raise
        self.label = self._source.label
        self._findings = [*end.findings, *layout.findings]
        if end.entries != len(entries):
            text = f"The end record counts {end.entries:,} entries, and there are {len(entries):,}."
            self._add(FindingKind.HEADERS_DIFFER, None, text)
        self._placed: dict[str, Placed] = {}
        self._faulty: set[str] = set()
        self.members = tuple(self._read_members(layout.placed))

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What is wrong with the zip; a CHECKSUM comes to it when the entry was read."""
        return tuple(self._findings)

    def open(self, member: Member) -> AbstractContextManager[BinaryIO]:
        """Open a file. Raises Unusable when it is none, or would inflate beyond measure.

        Once it was read from its start to its end, a checksum that does not hold is in `findings`.
        The stream raises ZipFault only for data that cannot be had.
        """
        name = shown(member.name)
        placed = self._placed.get(member.name)
        if placed is None or member.kind is not MemberKind.FILE:
            raise Unusable(
                f"{name} is a {member.kind.value} or not in the zip: it is not read.",
                remedy="Make the zip anew with a copy of the file in its place.",
            )
        entry = placed.entry

        def complain(fault: str) -> None:
            if member.name in self._faulty:
                return
            self._faulty.add(member.name)
            self._add(FindingKind.CHECKSUM, member.name, f"{name} is damaged or changed: {fault}.")

        teller = None if member.name in self._faulty else complain
        if entry.method == STORED:
            stored = StoredStream(self._source, placed.data_at, entry.size, entry.crc, teller)
            return cast("AbstractContextManager[BinaryIO]", stored)
        if _is_bomb(entry):
            raise Unusable(
                f"{name} would inflate to more than {LARGEST_RATIO:,} times its size.",
                remedy="Do not unpack it.",
            )
        inflating = DeflatedStream(
            self._source, placed.data_at, entry.packed, entry.size, entry.crc, teller
        )
        return cast("AbstractContextManager[BinaryIO]", inflating)

    def close(self) -> None:
        """Close the file; members cannot be read any more."""
        self._source.close()

    def __enter__(self) -> ZipContent:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _read_members(self, placed: Iterable[Placed]) -> list[Member]:
        dialects = Dialects()
        files: dict[str, Member] = {}
        folders: dict[str, None] = {}
        inflated = 0
        for each in placed:
            entry = each.entry
            extra = read_extra(entry.extra, entry.raw_name)
            name = name_of(entry, extra)
            if name.finding is not None:
                self._findings.append(name.finding)
            if extra.fault is not None or entry.unused:
                what = extra.fault or "a field for large files with more in it"
                self._add(FindingKind.HIDDEN_BYTES, name.text, f"{shown(name.text)} has {what}.")
            if entry.comment:
                text = f"{shown(name.text)} has a comment, which no checksum covers."
                self._add(FindingKind.HIDDEN_BYTES, name.text, text)
            dialects.look_at(each, name.text, extra, name.dialect)
            if name.text in files or name.text in folders:
                same = (name.text in folders) == entry.is_folder
                if same:
                    text = f"{shown(name.text)} is in the zip more than once."
                    self._add(FindingKind.DUPLICATE_MEMBER, name.text, text)
                else:
                    text = f"{shown(name.text)} is a file and a folder at once."
                    self._add(FindingKind.TWIN_NAMES, name.text, text)
                continue
            if entry.is_folder:
                folders[name.text] = None
                self._look_at_folder(entry, name.text)
                continue
            member = Member(name.text, self._kind(entry, name.text), entry.size)
            files[name.text] = member
            self._placed[name.text] = each
            if entry.method == DEFLATED:
                inflated += entry.size
                if _is_bomb(entry):
                    text = (
                        f"{shown(name.text)} would inflate from {entry.packed:,} to "
                        f"{entry.size:,} bytes."
                    )
                    self._add(FindingKind.TOO_LARGE, name.text, text)
        if inflated > _LARGEST_INFLATED:
            text = f"It would inflate to {inflated:,} bytes in all."
            self._add(FindingKind.TOO_LARGE, None, text)
        self._findings += dialects.findings()
        members = [*files.values()]
        members += [Member(name, MemberKind.EMPTY_FOLDER) for name in _empty(files, folders)]
        self._findings += twins_among(member.name for member in members)
        return sorted(members, key=lambda member: name_bytes(member.name))

    def _kind(self, entry: Entry, name: str) -> MemberKind:
        kind = entry.file_type
        if entry.external & _REPARSE_POINT:
            kind = stat.S_IFLNK
        elif entry.external & (_VOLUME_LABEL | _DEVICE) and kind in (0, stat.S_IFREG):
            kind = stat.S_IFCHR
        if kind in (0, stat.S_IFREG):
            if entry.external & 0x10:
                text = f"{shown(name)} is a file by its name and a folder by its attributes."
                self._add(FindingKind.HEADERS_DIFFER, name, text)
            return MemberKind.FILE
        if kind == stat.S_IFLNK:
            text = f"{shown(name)} would become a link when it is unpacked."
            self._add(FindingKind.LINK, name, text)
            return MemberKind.LINK
        text = f"{shown(name)} would become no regular file when it is unpacked."
        self._add(FindingKind.SPECIAL_FILE, name, text)
        return MemberKind.SPECIAL

    def _look_at_folder(self, entry: Entry, name: str) -> None:
        if entry.size or entry.packed or entry.crc:
            text = f"{shown(name)} is a folder with {entry.packed:,} bytes in it."
            self._add(FindingKind.HIDDEN_BYTES, name, text)
        if entry.file_type not in (0, stat.S_IFDIR):
            text = f"{shown(name)} is a folder by its name and something else by its mode."
            self._add(FindingKind.HEADERS_DIFFER, name, text)

    def _add(self, kind: FindingKind, path: str | None, text: str) -> None:
        self._findings.append(Finding(kind, path, text))


def _is_bomb(entry: Entry) -> bool:
    return (
        entry.method == DEFLATED
        and entry.size > _SMALL
        and entry.size > LARGEST_RATIO * max(1, entry.packed)
    )


def _empty(files: Iterable[str], folders: Iterable[str]) -> Iterator[str]:
    """Find the folders that nothing lies in; a sorted list has what lies in one side by side."""
    ordered = sorted([*files, *folders])
    for folder in folders:
        at = bisect_left(ordered, folder + "/")
        if at == len(ordered) or not ordered[at].startswith(folder + "/"):
            yield folder
