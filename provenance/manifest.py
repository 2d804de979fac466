"""Make the manifest of a folder, a zip or a file: digests, headers, and anchors for a search."""

from __future__ import annotations

import contextlib
import gc
import io
from collections.abc import Callable, Collection, Generator
from dataclasses import replace
from typing import BinaryIO

from ..errors import Unusable
from ..records.manifest import FileEntry, Manifest
from ..records.names import printable
from ..recover.fingerprint import Fingerprint, fingerprint
from .content.members import Content, Member, MemberKind
from .finding import Gravity

_SUFFIX = ".safetensors"


def build_manifest(
    content: Content,
    *,
    leave_out: Collection[str] = (),
    progress: Callable[[int], object] | None = None,
) -> Manifest:
    """Read every file once. Names in `leave_out` are not listed; empty folders never are.

    A safetensors file that is damaged is listed with its `fault`. Raises Unusable for links,
    special files and whatever is wrong with the container itself; what reading raises.
    """
    for finding in content.findings:
        if finding.gravity is not Gravity.NOTE:
            where = f"{printable(finding.path)}: " if finding.path else ""
            raise Unusable(f"{where}{finding.diagnosis}", remedy="Mend that, and try again.")
    for member in content.members:
        if member.kind in (MemberKind.LINK, MemberKind.SPECIAL):
            raise Unusable(
                f"{printable(member.name)} is a {member.kind.value}: a manifest lists files only.",
                remedy="Put a copy of what is meant in its place, or leave it out.",
            )
    with _no_collection():
        return Manifest(
            tuple(
                _entry(content, member, progress)
                for member in content.members
                if member.kind is MemberKind.FILE and member.name not in leave_out
            )
        )


@contextlib.contextmanager
def _no_collection() -> Generator[None, None, None]:
    """Keep the garbage collector from walking the entries of 200,000 tensors again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _entry(content: Content, member: Member, progress: Callable[[int], object] | None) -> FileEntry:
    with content.open(member) as file:
        found = fingerprint(
            _reader(file),
            member.size,
            named_safetensors=member.name.endswith(_SUFFIX),
            progress=progress,
        )
    entry = file_entry(member.name, found)
    if found.size != member.size:
        changed = f"It had {member.size:,} bytes when it was listed, and {found.size:,} when read."
        return replace(entry, header=None, tensors=(), fault=changed)
    return entry


def _reader(file: BinaryIO) -> Callable[[memoryview, int], int]:
    if isinstance(file, (io.RawIOBase, io.BufferedIOBase)):
        readinto = file.readinto
        return lambda buffer, _: readinto(buffer) or 0

    def read_into(buffer: memoryview, _: int) -> int:
        data = file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    return read_into


def file_entry(path: str, found: Fingerprint) -> FileEntry:
    """Give the entry of a file; one with a fault keeps neither header nor tensors."""
    if found.header is None or found.fault is not None:
        return FileEntry(path, found.size, found.sha256, fault=found.fault)
    return FileEntry(path, found.size, found.sha256, found.header.raw, found.tensors)
