"""Sign a folder: list its files, hash them, write SHA256SUMS and the signatures of it.

Everything is looked at and computed before anything is written, and each file appears whole.
When a run was cut off, the same command completes it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ...errors import Unusable
from ...records.names import decoded, printable
from ...records.tool import tool_identity
from ..content.folder import FolderContent
from ..sums.read import read_sums
from ..sums.write import write_sums
from .carriers import SUMS, Form, all_names, carrier_of
from .companions import MADE, companions, key_copies
from .identity import check_identity
from .key import Signer
from .new_files import NewFile, put_files
from .public_key import fingerprint
from .signable import (
    SUMS_LIMIT,
    demand_equal,
    demand_sound,
    hash_signed,
    listed_files,
    remove_leftovers,
    signable,
)
from .signatures import forms_of, sign_sums
from .slots import Present, Signed, timestamp_name

SCHEMA = "reefkit.signature/1"


@dataclass(frozen=True)
class Order:
    """How to sign.

    `timestamp` gives the response of an authority for the bytes of the sums. `progress` is told how
    many bytes there are, and gives what is told of those that were read.
    """

    signer: Signer
    identity: str
    add: bool = False
    force: bool = False
    timestamp: Callable[[bytes], bytes] | None = None
    progress: Callable[[int], Callable[[int], object]] | None = None


@dataclass(frozen=True)
class SignedPlace:
    """What was signed, by whom, and the files that were written for it or were there already."""

    path: Path
    identity: str
    fingerprint: str
    slot: int
    schemes: tuple[str, ...]
    files: tuple[str, ...]
    written: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        """Give the document of `sign --json`."""
        return {
            "schema": SCHEMA,
            "path": decoded(os.fsencode(self.path)),
            "identity": self.identity,
            "fingerprint": self.fingerprint,
            "slot": self.slot,
            "schemes": list(self.schemes),
            "files": [decoded(name) for name in self.files],
            "written": [decoded(name) for name in self.written],
            "tool": tool_identity(),
        }


def sign_folder(folder: Path, order: Order) -> SignedPlace:
    """Sign all files of a folder, which may hold neither links nor special files.

    Where SHA256SUMS is there, it must list exactly what is there. Raises DestinationExists,
    DoesNotHold, Unusable, NotPermitted, and what the signer raises.
    """
    check_identity(order.identity)
    remove_leftovers(folder, MADE)
    found = signable(FolderContent(folder))
    new: dict[str, bytes] = {}
    progress = None if order.progress is None else order.progress(found.size)
    if found.sums is None:
        new = companions(found, order.signer, order.identity, force=order.force)
        files = hash_signed(found, but=new, progress=progress)
        files.update((name, hashlib.sha256(data).hexdigest()) for name, data in new.items())
        new[SUMS] = sums = write_sums(files)
    else:
        sums = found.read(found.sums, SUMS_LIMIT)
        files = listed_files(sums)
        demand_equal(files, hash_signed(found, progress=progress))
    known = [order.signer.public, *key_copies(found)]
    signed = Signed(sums, files, found.present(), known=known)
    return _write(folder, folder, signed, new, order)


def sign_file(path: Path, order: Order) -> SignedPlace:
    """Sign a checksum file alone: what its lines name is not read, and there is no model.sig.

    Raises DestinationExists, DoesNotHold, Unusable, and what the signer raises.
    """
    check_identity(order.identity)
    label = printable(os.fsencode(path))
    sums = _read_beside(path, SUMS_LIMIT)
    if sums is None:
        raise Unusable(f"{label} is not a file.", remedy="Give a folder, or a checksum file.")
    demand_sound(read_sums(sums, label))
    present: list[Present] = []
    for name in all_names(path.name):
        carrier = carrier_of(name, path.name)
        if carrier is None or not name.startswith(path.name):
            continue
        data = _read_beside(path.with_name(name), carrier.limit)
        if data is not None:
            present.append(Present(carrier, data))
    signed = Signed(sums, None, present, path.name, [order.signer.public])
    return _write(path, path.parent, signed, {}, order)


def _write(
    path: Path, folder: Path, signed: Signed, new: Mapping[str, bytes], order: Order
) -> SignedPlace:
    key = order.signer.public
    slot = signed.slot_for(key, add=order.add, force=order.force)
    signatures = sign_sums(
        signed.sums, signed.files, order.signer, slot, sums_name=signed.sums_name
    )
    stamp = timestamp_name(slot, signed.sums_name)
    if order.timestamp is not None:
        there = any(each.carrier.name == stamp for each in signed.present)
        if order.force or not there:
            signatures[stamp] = order.timestamp(signed.sums)
    obsolete = signed.obsolete(slot, signatures) if order.force and not order.add else []
    written = {**new, **signed.missing(slot, signatures, force=order.force)}
    put_files([NewFile(folder / name, data) for name, data in written.items()], force=order.force)
    for name in obsolete:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(folder / name)
    kept = [each.carrier.name for each in signed.present if each.carrier.slot == slot]
    files = {*signatures, *new, *(name for name in kept if name not in obsolete)}
    forms = forms_of(order.signer, with_files=signed.files is not None)
    return SignedPlace(
        path,
        order.identity,
        fingerprint(key),
        slot,
        tuple(_SCHEMES[form] for form in forms) + (("rfc3161",) if stamp in files else ()),
        tuple(sorted(files)),
        tuple(written),
    )


_SCHEMES = {
    Form.SSHSIG: "sshsig",
    Form.DER: "openssl",
    Form.ED25519: "openssl",
    Form.SIGSTORE: "sigstore",
    Form.MINISIGN: "minisign",
    Form.OMS: "oms",
}


def _read_beside(path: Path, limit: int) -> bytes | None:
    """Read a regular file, following no link; None when there is none. Raises Unusable, OSError."""
    label = printable(os.fsencode(path))
    try:
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        fd = os.open(path, flags | getattr(os, "O_BINARY", 0))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unusable(f"{label}: {os.strerror(error.errno or 0).lower()}.") from None
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise Unusable(f"{label} is not a file.", remedy="Give a folder, or a checksum file.")
        data = file.read(limit + 1)
    if len(data) > limit:
        raise Unusable(f"{label} is larger than {limit:,} bytes.")
    return data
