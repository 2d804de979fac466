"""Pack a folder as one signed zip: manifest, custody, checksums, signatures, and how to check them.

Every file is read twice: once for its digests, and once on its way into the zip, where it must
have them still. Nothing in the folder is changed. The same content, key and tool give the same
bytes on every machine: no clock, no owner and no order of a folder gets in.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from ...errors import DoesNotHold, Unusable
from ...records.documents import to_text
from ...records.names import printable
from ..content.folder import FolderContent
from ..content.members import Member, MemberKind
from ..content.zip_write import ZipMember, write_zip
from ..manifest import Manifest, build_manifest
from ..sign.key import Signer
from ..sums.write import write_sums
from . import package_names as names
from .written_once import written_once

SCHEMA = "reefkit.redaction/1"


@dataclass(frozen=True)
class Request:
    """What to pack, where to, and who signs; without a signer the package is unsigned.

    `timestamp` gives the RFC 3161 response for the bytes of the sums.
    """

    folder: Path
    out: Path
    signer: Signer | None
    identity: str | None
    force: bool = False
    timestamp: Callable[[bytes], bytes] | None = None
    progress: Callable[[int], object] | None = None


@dataclass(frozen=True)
class Package:
    """What was packed: the zip and its digest, the files in it, and empty folders left out."""

    path: Path
    sha256: str
    size: int
    files: tuple[str, ...]
    left_out: tuple[str, ...]
    identity: str | None

    def to_json(self) -> dict[str, object]:
        """Give the document of `pack --json`."""
        return {
            "schema": SCHEMA,
            "blocked": False,
            "redacted": False,
            "path": os.fsdecode(self.path),
            "sha256": self.sha256,
            "size": self.size,
            "identity": self.identity,
            "files": list(self.files),
            "left_out": list(self.left_out),
            "findings": [],
            "leftovers": [],
        }


def pack(request: Request) -> Package:
    """Make the zip. Raises Unusable, DoesNotHold when a file changes meanwhile, DestinationExists."""
    content = FolderContent(request.folder)
    kept = _packable(content)
    manifest = build_manifest(content, progress=request.progress)
    added = _added(content, manifest, request)
    digests = {entry.path: entry.sha256 for entry in manifest.files}
    members = [
        *(_from_folder(content, member, digests[member.name]) for member in kept),
        *(_from_memory(name, data) for name, data in added.items()),
    ]
    with written_once(request.out, force=request.force) as file:
        write_zip(file, sorted(members, key=lambda member: os.fsencode(member.name)))
        size = file.tell()
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Package(
        request.out,
        digest,
        size,
        tuple(sorted([*digests, *added])),
        tuple(m.name for m in content.members if m.kind is MemberKind.EMPTY_FOLDER),
        request.identity,
    )
