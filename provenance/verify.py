"""Verify evidence: every byte, every signature, who signed, and what the evidence says of itself.

No network is touched. Nothing that comes with the evidence makes a signer trusted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import Unusable
from ..records.collection import no_collection
from ..records.names import printable
from .finding import Finding, FindingKind
from .verification.carried_trust import refuse_carried_trust
from .verification.cover import cover
from .verification.files import Checked, check_files
from .verification.known_names import ASIDE, CHAIN, GATE, RUN, STATEMENTS
from .verification.listing import Listing, find_listing
from .verification.open_target import open_target
from .verification.package import Package
from .verification.result import SignerReport, Verification

if TYPE_CHECKING:
    from .trust.judge import Trust
    from .verification.vouching import Vouching

# What a list that was changed after it was signed says of the files is not worth repeating.
_OF_THE_LIST = frozenset({FindingKind.MISMATCH, FindingKind.MISSING, FindingKind.EXTRA})
_MOST_NAMED = 5
_NOT_ASKED = Finding(
    FindingKind.UNSIGNED, None, "Nothing here is signed, and --integrity-only does not ask."
)


@dataclass(frozen=True)
class Request:
    """What to verify, and what is demanded of it.

    `required` switches to partial verification: listed files that are absent and not required are
    only noted. `at` is the time at which validity windows are judged, else now; a naive one is
    local. `progress` is told the number of bytes that will be read, and gives what is told of
    those that were.
    """

    target: str
    signers: Path | None = None
    policy: Path | None = None
    revoked: tuple[Path, ...] = ()
    required: tuple[str, ...] = ()
    identity: str | None = None
    at: datetime | None = None
    repository: Path | None = None
    integrity_only: bool = False
    strict: bool = False
    progress: Callable[[int], Callable[[int], object] | None] | None = field(
        default=None, compare=False
    )


def verify(request: Request) -> Verification:
    """Verify a target. Raises Unusable and NotPermitted where it cannot be judged."""
    with no_collection(), open_target(request.target, request.repository) as package:
        if package.bundle is not None:
            return _bundle(request, package)
        if package.listed_by == CHAIN:
            return _chain(request, package)
        return _package(request, package)


def _trust(request: Request) -> Trust:
    from .trust.judge import Trust

    return Trust.load(request.signers, request.policy, request.at, revoked=request.revoked)


def _package(request: Request, package: Package) -> Verification:
    listing = find_listing(package, strict=request.strict)
    if request.strict:
        _refuse_dialects(package)
    vouching, demanded = _vouching(request, package, listing)
    if listing.fault is not None and not (vouching and vouching.list_was_changed):
        raise listing.fault
    loose = {name for name in ASIDE if package.holds(name) and not _is_listed(listing, name)}
    aside = listing.aside | loose
    covered = cover(package, listing.lines, aside)
    required = {*request.required, *demanded}
    size = sum(pair.member.size for pair in covered.pairs)
    checked = check_files(
        package,
        covered,
        partial=bool(request.required),
        required=required,
        progress=None if request.progress is None else request.progress(size),
    )
    files = [*covered.findings, *checked.findings, *_required(required, listing, checked)]
    if not checked.names:
        text = "Not one file was compared with a digest."
        files.append(Finding(FindingKind.NOTHING_VERIFIED, None, text))
    if vouching and vouching.list_was_changed:
        files = _list_was_changed(listing, files, vouching.change)
    findings = [
        *(vouching.findings if vouching else (_NOT_ASKED,)),
        *package.content.findings,
        *listing.findings,
        *files,
        *_records(request, package, checked),
    ]
    signers = vouching.signers if vouching else ()
    return _result(request, package, findings, signers, checked.names, listing.names)


def _vouching(
    request: Request, package: Package, listing: Listing
) -> tuple[Vouching | None, tuple[str, ...]]:
    """Check what is signed, and give what the policy demands; None: nothing is, and nobody asked.

    Then nothing that judges signatures is loaded.
    """
    asked = (request.signers, request.policy, request.identity, request.revoked or None)
    is_signed = bool(listing.carried) or any(map(package.holds, STATEMENTS))
    if request.integrity_only and not is_signed and asked == (None, None, None, None):
        return None, ()
    from .verification.vouching import check_vouching

    trust = _trust(request)
    refuse_carried_trust(package, trust)
    return check_vouching(package, listing, trust, request.identity), trust.required


def _chain(request: Request, package: Package) -> Verification:
    from .verification.statements import alone

    trust = _trust(request)
    refuse_carried_trust(package, trust)
    found = list(alone(package, trust))
    findings = [each for each in found if isinstance(each, Finding)]
    signers = tuple(each for each in found if isinstance(each, SignerReport))
    names = (CHAIN,) if package.holds(CHAIN) else ()
    return _result(request, package, findings, signers, names, ())


def _bundle(request: Request, package: Package) -> Verification:
    """Hold the artifacts of a result bundle against the digests of their originals."""
    from .content.result_bundle import read_result_bundle

    name = package.bundle or ""
    bundle = read_result_bundle(package.read(name, 64 << 20), printable(name))
    good = tuple(each.name for each in bundle.artifacts if each.finding is None)
    findings = [*_trust(request).missing(()), *bundle.findings]
    absent = set(request.required) - set(good)
    findings += [_not_verified(each, each in good) for each in sorted(absent)]
    if not good:
        text = "Not one artifact was compared with the digest of its original."
        findings.append(Finding(FindingKind.NOTHING_VERIFIED, None, text))
    container = Package.of(package.content, container=request.target)
    return _result(request, container, findings, (), good, (name,))


def _result(
    request: Request,
    package: Package,
    findings: Iterable[Finding],
    signers: tuple[SignerReport, ...],
    files: tuple[str, ...],
    lists: tuple[str, ...],
) -> Verification:
    ordered = sorted(dict.fromkeys(findings), key=lambda finding: -finding.gravity)
    return Verification(
        package.revision or printable(os.fsencode(request.target)),
        len(files),
        tuple(ordered),
        signers,
        integrity_only=request.integrity_only,
        files=files,
        base=package.base,
        container=package.container,
        lists=lists,
    )


def _is_listed(listing: Listing, name: str) -> bool:
    return any(line.name == name for line in listing.lines)


def _required(required: Iterable[str], listing: Listing, checked: Checked) -> Iterable[Finding]:
    for name in sorted(required):
        if name not in checked.good:
            yield _not_verified(name, _is_listed(listing, name))


def _not_verified(name: str, is_listed: bool) -> Finding:
    if is_listed:
        return Finding(FindingKind.NOT_CHECKED, name, "It is required, and was not verified.")
    return Finding(FindingKind.MISSING, name, "It is required, and nothing lists it.")


def _list_was_changed(listing: Listing, files: list[Finding], change: str | None) -> list[Finding]:
    """Say once that the list is not the signed one, in place of what follows from that."""
    differing = sorted(
        {str(finding.path) for finding in files if finding.kind in _OF_THE_LIST and finding.path}
    )
    kept = [finding for finding in files if finding.kind not in _OF_THE_LIST]
    if change is not None:
        text = f"It is not the list that was signed, but would be {change}: something edited it."
    elif listing.fault is not None:
        text = f"It is not the list that was signed. {listing.fault.message}"
    elif differing:
        named = ", ".join(printable(name) for name in differing[:_MOST_NAMED])
        more = f" and {len(differing) - _MOST_NAMED:,} more" if len(differing) > _MOST_NAMED else ""
        text = (
            f"It is not the list that was signed. As it is now, it does not fit: {named}{more}. "
            "The signed list may well do."
        )
    else:
        text = "It is not the list that was signed, though the files here are as it says now."
    return [Finding(FindingKind.INVALID_SIGNATURE, listing.names[0], text), *kept]


def _refuse_dialects(package: Package) -> None:
    for finding in package.content.findings:
        if finding.kind is FindingKind.DIALECT:
            raise Unusable(finding.diagnosis, remedy="Leave out --strict to accept it with a note.")


def _records(request: Request, package: Package, checked: Checked) -> list[Finding]:
    """Look into the records, as far as any are called like one, and ask the repository."""
    found: list[Finding] = []
    if any(name.endswith((RUN, GATE)) for name in checked.good):
        from .verification.records import check_records

        found += check_records(package, checked.good)
    if request.repository is None:
        return found
    if package.revision is not None and package.base == request.target:
        held = package.revision.rstrip(":")
        text = f"What {held} holds was checked, not what lies in the folder."
        found.append(Finding(FindingKind.COMMITTED, None, text))
    from .verification.git import check_commits
    from .verification.records import commits_in

    named = commits_in(package, checked.good)
    found += check_commits(request.repository, named)
    if not named and package.revision is None:
        text = "--git was given, and nothing in the evidence names a commit, nor does git hold it."
        found.append(Finding(FindingKind.NOT_CHECKED, None, text))
    return found
