"""A folder that is to be signed: what is in it, what of that is signed, and its digests."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...errors import DoesNotHold, Unusable
from ...records.names import printable
from ...records.new_file import temporary_of
from ..content.members import Content, Member, MemberKind
from ..finding import Gravity
from ..hashing import hash_members
from ..sums.model import Sums
from ..sums.read import read_sums
from ..sums.text import MAX_SUMS
from .carriers import SUMS, all_names, carrier_of
from .slots import Present

SUMS_LIMIT = MAX_SUMS
_SHA256 = frozenset({"sha256"})
_NAMED = 3
_STALE = f"Remove {SUMS} and its signatures to sign the folder as it is now."


@dataclass(frozen=True)
class SignableFolder:
    """A folder's content, split into what is signed and what signs it."""

    content: Content
    signed: Sequence[Member]
    carriers: Sequence[Member]
    sums: Member | None
    by_name: Mapping[str, Member] = field(repr=False)

    @property
    def size(self) -> int:
        """Give the bytes of all that is signed."""
        return sum(member.size for member in self.signed)

    def read(self, member: Member, limit: int) -> bytes:
        """Read a member whole. Raises Unusable when it is larger than the limit."""
        with self.content.open(member) as file:
            data = file.read(limit + 1)
        if len(data) > limit:
            raise Unusable(f"{printable(member.name)} is larger than {limit:,} bytes.")
        return data

    def present(self) -> list[Present]:
        """Read the signatures that are there."""
        return [
            Present(carrier, self.read(member, carrier.limit))
            for member in self.carriers
            if (carrier := carrier_of(member.name)) is not None
        ]


def signable(content: Content) -> SignableFolder:
    """Sort the members, and refuse what cannot be signed. Raises Unusable."""
    grave = [finding for finding in content.findings if finding.gravity is not Gravity.NOTE]
    if grave:
        where = f"{printable(grave[0].path)}: " if grave[0].path else ""
        raise Unusable(
            f"{content.label} cannot be signed: {where}{grave[0].diagnosis}",
            remedy="Remove it, or sign a folder without it.",
        )
    for member in content.members:
        if member.kind is not MemberKind.FILE:
            raise Unusable(
                f"{printable(member.name)} is a {member.kind.value}, and no checksum covers that.",
                remedy="Remove it, or put a file in its place.",
            )
    names = {member.name: member for member in content.members}
    carriers = [member for member in content.members if carrier_of(member.name) is not None]
    sums = names.get(SUMS)
    aside = {SUMS, *(member.name for member in carriers)}
    signed = [member for member in content.members if member.name not in aside]
    if not signed:
        raise Unusable(f"{content.label} holds nothing to sign.", remedy="Name another folder.")
    if sums is None and carriers:
        raise Unusable(
            f"{printable(carriers[0].name)} is there, but no {SUMS} that it signs.",
            remedy="Remove the signatures that are left over.",
        )
    return SignableFolder(content, signed, carriers, sums, names)


def hash_signed(
    found: SignableFolder,
    *,
    but: Collection[str] = (),
    progress: Callable[[int], object] | None = None,
) -> dict[str, str]:
    """Hash what is signed, but for some names; give SHA-256 by name. Raises DoesNotHold."""
    wanted = [(each, _SHA256) for each in found.signed if each.name not in but]
    digests: dict[str, str] = {}
    for hashed in hash_members(found.content, wanted, progress=progress):
        if hashed.fault is not None:
            raise DoesNotHold(
                f"{printable(hashed.member.name)} could not be hashed: {hashed.fault}",
                remedy="Sign once nothing writes there any more.",
            )
        digests[hashed.member.name] = hashed.digests["sha256"]
    return digests


def listed_files(sums: bytes) -> dict[str, str]:
    """Read SHA256SUMS: SHA-256 by name. Raises Unusable."""
    found = read_sums(sums, SUMS)
    demand_sound(found)
    for line in found.lines:
        if line.algorithm != "sha256":
            raise Unusable(
                f"Line {line.line} of {SUMS} holds a {line.algorithm} digest, not SHA-256.",
                remedy=_STALE,
            )
    return {line.name: line.digest for line in found.lines}


def demand_sound(sums: Sums) -> None:
    """Demand that a list has no fault beyond its dialect. Raises Unusable."""
    for finding in sums.findings:
        if finding.gravity is not Gravity.NOTE:
            raise Unusable(finding.diagnosis, remedy="Make the list anew before it is signed.")


def demand_equal(listed: Mapping[str, str], there: Mapping[str, str]) -> None:
    """Demand that a list says what is there. Raises DoesNotHold that names the first few."""
    differing = [
        f"{printable(name)} {what}"
        for what, names in (
            ("is not listed", there.keys() - listed.keys()),
            ("is missing", listed.keys() - there.keys()),
            ("differs", {name for name in there if listed.get(name, "") != there[name]}),
        )
        for name in sorted(names)
        if what != "differs" or name in listed
    ]
    if differing:
        more = f", and {len(differing) - _NAMED:,} more" if len(differing) > _NAMED else ""
        raise DoesNotHold(
            f"{SUMS} does not say what is in the folder: {', '.join(differing[:_NAMED])}{more}.",
            remedy=_STALE,
        )


def remove_leftovers(folder: Path, names: Collection[str]) -> None:
    """Remove the temporary files of a run that was cut off: they are nothing to be signed."""
    for name in (*all_names(), *names):
        with contextlib.suppress(OSError):
            os.unlink(temporary_of(folder / name))
