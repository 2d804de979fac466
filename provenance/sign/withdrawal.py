"""Withdraw evidence that is published already: a signed statement beside what it cannot change."""

from __future__ import annotations

import os
from pathlib import Path

from ...errors import Unusable
from ...records.names import printable
from ...records.new_file import new_file, refuse_existing
from ..custody.statements import LOOSE_FILE, loose_statement
from . import sshsig
from .carriers import SUMS
from .key import Signer
from .signable import SUMS_LIMIT


def withdraw(
    target: Path, signer: Signer, reason: str, *, by: str | None = None, force: bool = False
) -> tuple[Path, Path]:
    """Write withdrawn.json and its signature beside a checksum file; give their paths.

    `target` is that file, or the folder with SHA256SUMS; `by` names what replaces the evidence.
    Raises DestinationExists, Unusable, and what the signer raises.
    """
    sums = target / SUMS if target.is_dir() else target
    try:
        with open(sums, "rb") as file:
            data = file.read(SUMS_LIMIT)
    except OSError as error:
        raise Unusable(
            f"{printable(os.fsencode(sums))} cannot be read: {error.strerror}.",
            remedy="Name the folder of the evidence, or its checksum file.",
        ) from None
    statement = loose_statement(data, reason, by=by)
    signature = sshsig.sign(signer, statement, sshsig.CUSTODY_NAMESPACE)
    path = sums.with_name(LOOSE_FILE)
    signed = sums.with_name(f"{LOOSE_FILE}.sig")
    for place in (path, signed):
        refuse_existing(place, force=force)
    for place, content in ((signed, signature), (path, statement)):
        with new_file(place, force=force) as file:
            file.write(content)
    return path, signed
