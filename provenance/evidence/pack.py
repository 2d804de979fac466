"""Pack a folder as one signed zip: manifest, custody, checksums, signatures, and how to check them.

Every file is read twice: once for its digests, and once on its way into the zip, where it must
have them still. Nothing in the folder is changed. The same content, key and tool give the same
bytes on every machine: no clock, no owner and no order of a folder gets in.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from ...errors import DoesNotHold, Unusable
from ...records.custody_lines import FILE as CUSTODY
from ...records.custody_lines import LIMIT as CUSTODY_LIMIT
from ...records.names import decoded, printable
from ...records.new_file import new_file, refuse_existing
from ..content.files_only import files_only
from ..content.folder import FolderContent
from ..content.members import Content, Member, MemberKind
from ..content.zip_write import ZipMember, write_zip
from ..manifest import build_manifest
from ..sign.key import Signer
from .added import added_files
from .hashed_source import HashedSource
from .package_names import refuse_taken_names

SCHEMA = "reefkit.redaction/1"
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Order:
    """What to pack, where to, and who signs; without a signer the package is unsigned.

    `epoch` dates the link of custody, in seconds; None leaves it without a date. `timestamp` gives
    the RFC 3161 response for the bytes of the sums. `progress` is told the bytes that were read.
    """

    folder: Path
    out: Path
    signer: Signer | None = None
    identity: str | None = None
    epoch: int | None = None
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
            "path": decoded(os.fsencode(self.path)),
            "sha256": self.sha256,
            "size": self.size,
            "identity": self.identity,
            "files": [decoded(name) for name in self.files],
            "left_out": [decoded(name) for name in self.left_out],
            "findings": [],
            "leftovers": [],
        }


def pack(order: Order) -> Package:
    """Make the zip.

    Raises DestinationExists, Unusable for what no package can hold, DoesNotHold when a file
    changes meanwhile, and what the signer raises.
    """
    refuse_existing(order.out, force=order.force)
    _refuse_inside(order.out, order.folder)
    content = FolderContent(order.folder)
    kept, chain = _packable(content)
    manifest = build_manifest(content, leave_out={CUSTODY}, progress=order.progress)
    added = added_files(
        manifest,
        chain,
        order.signer,
        order.identity,
        epoch=order.epoch,
        timestamp=order.timestamp,
    )
    digests = {entry.path: entry.sha256 for entry in manifest.files}
    members = [
        *(_of_folder(content, member, digests[member.name], order.progress) for member in kept),
        *(_of_memory(name, data) for name, data in added.items()),
    ]
    with new_file(order.out, force=order.force) as file:
        write_zip(file, sorted(members, key=lambda member: os.fsencode(member.name)))
        size = file.seek(0, io.SEEK_END)
        sha256 = _sha256(file)
    empty = (m.name for m in content.members if m.kind is MemberKind.EMPTY_FOLDER)
    names = sorted([*digests, *added], key=os.fsencode)
    return Package(order.out, sha256, size, tuple(names), tuple(empty), order.identity)


def _refuse_inside(out: Path, folder: Path) -> None:
    if folder.resolve() in out.resolve().parents:
        raise Unusable(
            f"{printable(os.fsencode(out))} lies in the folder that is to be packed.",
            remedy="Choose an --out beside that folder: packing again would pack it, too.",
        )


def _packable(content: Content) -> tuple[tuple[Member, ...], bytes]:
    """Give the files, and the chain of custody so far. Raises Unusable for what is no file."""
    files = files_only(content, "a package holds")
    refuse_taken_names(member.name for member in files)
    if not files:
        raise Unusable(f"{content.label} holds no file.", remedy="Name the folder of a run.")
    chain = b""
    for member in files:
        if member.name == CUSTODY:
            with content.open(member) as file:
                chain = file.read(CUSTODY_LIMIT + 1)
    return tuple(member for member in files if member.name != CUSTODY), chain


def _of_folder(
    content: Content, member: Member, sha256: str, progress: Callable[[int], object] | None
) -> ZipMember:
    def changed() -> DoesNotHold:
        return DoesNotHold(
            f"{printable(member.name)} changed while it was packed.",
            remedy="Pack a folder that nothing writes to, or a copy of it.",
        )

    def opened() -> BinaryIO:
        return cast("BinaryIO", HashedSource(content.open(member), sha256, changed, progress))

    return ZipMember(member.name, member.size, opened)


def _of_memory(name: str, data: bytes) -> ZipMember:
    return ZipMember(name, len(data), lambda: io.BytesIO(data))


def _sha256(file: BinaryIO) -> str:
    file.seek(0)
    digest = hashlib.sha256()
    while block := file.read(_BLOCK):
        digest.update(block)
    return digest.hexdigest()
