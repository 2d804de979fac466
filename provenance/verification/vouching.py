"""All that somebody has signed: the list, the time, the chain of custody, a withdrawal."""

from __future__ import annotations

from dataclasses import dataclass

from ..finding import Finding
from ..trust.judge import Trust
from .listing import Listing
from .package import Package
from .result import SignerReport
from .signatures import check_signatures, further
from .statements import check_custody, check_withdrawal, untrusted
from .timestamps import check_timestamps


@dataclass(frozen=True)
class Vouching:
    """What was found, and who signed; for `list_was_changed` and `change` see signatures.Signed."""

    findings: tuple[Finding, ...] = ()
    signers: tuple[SignerReport, ...] = ()
    list_was_changed: bool = False
    change: str | None = None


def check_vouching(
    package: Package, listing: Listing, trust: Trust, identity: str | None
) -> Vouching:
    """Check every signature and every signed statement."""
    stamps = check_timestamps(listing, trust)
    signed = check_signatures(package, listing, trust, identity=identity, signed_at=stamps.times)
    digests = {line.name: line.digest for line in listing.lines if line.algorithm == "sha256"}
    custody = check_custody(package, trust, digests)
    aside = [further(each) for each in untrusted(custody)]
    withdrawal = check_withdrawal(package, tuple(each.data for each in listing.lists), trust)
    return Vouching(
        (*signed.findings, *stamps.findings, *custody.findings, *aside, *withdrawal.findings),
        (*signed.signers, *custody.signers, *withdrawal.signers),
        signed.list_was_changed,
        signed.change,
    )
