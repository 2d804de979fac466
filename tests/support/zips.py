"""Zips as they are written here, and what is in a zip."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

from reefkit.provenance.content.members import Content, MemberKind
from reefkit.provenance.content.zip_read import ZipContent
from reefkit.provenance.content.zip_write import ZipMember, write_zip


def member_of(name: str, data: bytes, crc32: int | None = None) -> ZipMember:
    return ZipMember(name, len(data), lambda: io.BytesIO(data), crc32)


def zipped(files: Mapping[str, bytes]) -> bytes:
    """Give the bytes of a zip of our own."""
    out = io.BytesIO()
    write_zip(out, [member_of(n, files[n]) for n in sorted(files, key=lambda n: n.encode())])
    return out.getvalue()


def contents(zip_content: Content) -> dict[str, bytes]:
    """Read all files of a zip."""
    found: dict[str, bytes] = {}
    for member in zip_content.members:
        if member.kind is MemberKind.FILE:
            with zip_content.open(member) as file:
                found[member.name] = file.read()
    return found


def read_zip(path: Path) -> dict[str, bytes]:
    """Read all files of the zip at a path."""
    with ZipContent(path) as content:
        return contents(content)
