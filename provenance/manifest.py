"""Make the manifest of a folder, a zip or a file: digests, headers, and anchors for a search."""

from __future__ import annotations

import io
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import BinaryIO

from ..records.collection import no_collection
from ..records.manifest import FileEntry, Manifest
from ..recover.fingerprint import Fingerprint, fingerprint
from .content.files_only import files_only
from .content.members import Content, Member

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
    files = files_only(content, "a manifest lists")
    with no_collection():
        return Manifest(
            tuple(
                _entry(content, member, progress)
                for member in files
                if member.name not in leave_out
            )
        )


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
