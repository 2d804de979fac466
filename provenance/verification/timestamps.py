"""RFC 3161 timestamps beside a list: what they prove, if the policy has the authority."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from ...errors import DoesNotHold, Untrusted, Unusable
from ..finding import Finding, FindingKind
from .listing import Listing

if TYPE_CHECKING:
    from ..trust.judge import Trust


@dataclass(frozen=True)
class Proven:
    """The times that are proven, by slot of the signer, and what was found."""

    times: Mapping[int, datetime]
    findings: tuple[Finding, ...]


def check_timestamps(listing: Listing, trust: Trust) -> Proven:
    """Check every timestamp; one whose authority nobody vouches for counts nothing."""
    times: dict[int, datetime] = {}
    findings: list[Finding] = []
    data = {each.name: each.data for each in listing.lists}
    signed = {each.slot for each in listing.carried if not each.is_timestamp}
    for each in listing.carried:
        if not each.is_timestamp:
            continue
        if each.finding is not None:
            findings.append(each.finding)
        elif not _is_one_sequence(each.data):
            text = "It is no RFC 3161 response."
            findings.append(Finding(FindingKind.INVALID_SIGNATURE, each.path, text))
        elif each.slot not in signed:
            text = "It stands for a signer whose signatures are not there."
            findings.append(Finding(FindingKind.EXTRA, each.path, text))
        elif not trust.timestamp_authorities:
            findings.append(
                Finding(
                    FindingKind.UNCHECKED_TIMESTAMP,
                    each.path,
                    "It counts nothing: no policy says which authority's timestamps to believe.",
                )
            )
        else:
            from ..sign.timestamp import verify_timestamp

            sums = data.get(each.list_name, b"")
            try:
                times[each.slot] = verify_timestamp(each.data, sums, trust.timestamp_authorities)
            except Untrusted as error:
                findings.append(Finding(FindingKind.UNTRUSTED_TIMESTAMP, each.path, error.message))
            except DoesNotHold as error:
                findings.append(Finding(FindingKind.INVALID_SIGNATURE, each.path, error.message))
            except Unusable as error:
                kind = FindingKind.INVALID_SIGNATURE
                if not error.message.startswith("The timestamp"):  # a library, or a certificate
                    kind = FindingKind.NOT_CHECKED
                findings.append(Finding(kind, each.path, error.message))
    return Proven(times, tuple(findings))


def _is_one_sequence(data: bytes) -> bool:
    """Tell whether it is one SEQUENCE of DER that fills the file: all that shows without trust."""
    if len(data) < 2 or data[0] != 0x30:
        return False
    if data[1] < 0x80:
        return len(data) == 2 + data[1]
    count = data[1] & 0x7F
    return 0 < count <= 4 and len(data) == 2 + count + int.from_bytes(data[2 : 2 + count], "big")
