"""What the evidence says of its own history: the chain of custody, and whether it was withdrawn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import ReefError
from ...records.names import printable
from ..finding import Finding, FindingKind
from .known_names import CHAIN, HEAD, HEAD_SIGNATURE, WITHDRAWN, WITHDRAWN_SIGNATURE
from .package import Package
from .result import SignerReport

if TYPE_CHECKING:
    from ..sign.key import PublicKey
    from ..trust.judge import Judgement, Trust

_CHAIN_LIMIT = 256 << 20
_SMALL = 1 << 20


@dataclass(frozen=True)
class Statements:
    """What was found, and who signed it; `keys` are those of valid signatures that are trusted."""

    findings: tuple[Finding, ...] = ()
    signers: tuple[SignerReport, ...] = ()
    judged: tuple[tuple[PublicKey, Judgement], ...] = ()


def check_custody(
    package: Package, trust: Trust, digests: Mapping[str, str] | None = None
) -> Statements:
    """Read the chain against its head, and judge who signed that; nothing where there is none.

    `digests` are the SHA-256 that the files here are listed with: the chain must say the same.
    """
    if not package.holds(CHAIN):
        findings = [
            Finding(
                FindingKind.CUSTODY_TRUNCATED, name, f"It speaks of {CHAIN}, which is not there."
            )
            for name in (HEAD, HEAD_SIGNATURE)
            if package.holds(name)
        ]
        return Statements(tuple(findings))
    from ..custody.chain import against_files, read_chain

    data = _read(package, CHAIN, _CHAIN_LIMIT)
    head = _read(package, HEAD, _SMALL) if package.holds(HEAD) else None
    found = [each for each in (data, head) if isinstance(each, Finding)]
    if found or not isinstance(data, bytes) or isinstance(head, Finding):
        return Statements(tuple(found))
    chain = read_chain(data, head)
    told = (*chain.findings, *against_files(chain, digests or {}))
    if head is None or not package.holds(HEAD_SIGNATURE):
        return Statements((*told, _no_head(package, head is not None)))
    signed = _check_signature(package, HEAD, HEAD_SIGNATURE, head, trust)
    return Statements((*told, *signed.findings), signed.signers, signed.judged)


def check_withdrawal(package: Package, lists: tuple[bytes, ...], trust: Trust) -> Statements:
    """Read a statement that lies beside the evidence, if it speaks of these lists."""
    if not package.holds(WITHDRAWN):
        if package.holds(WITHDRAWN_SIGNATURE):
            text = f"It signs {WITHDRAWN}, which is not there."
            return Statements((Finding(FindingKind.INVALID_SIGNATURE, WITHDRAWN_SIGNATURE, text),))
        return Statements()
    from ..custody.statements import read_statement

    data = _read(package, WITHDRAWN, _SMALL)
    if isinstance(data, Finding):
        return Statements((data,))
    try:
        statement = read_statement(data, WITHDRAWN)
    except ReefError as error:
        return Statements((Finding(FindingKind.NOT_CHECKED, WITHDRAWN, error.message),))
    if not any(statement.speaks_of(each) for each in lists):
        text = "It is there, and speaks of other evidence."
        return Statements((Finding(FindingKind.EXTRA, WITHDRAWN, text),))
    said = statement.finding(WITHDRAWN)
    if not package.holds(WITHDRAWN_SIGNATURE):
        # Whoever could put it there could have changed the evidence, too: it is believed.
        return Statements((said,))
    signed = _check_signature(package, WITHDRAWN, WITHDRAWN_SIGNATURE, data, trust)
    return Statements((said, *signed.findings), signed.signers, signed.judged)


def _no_head(package: Package, has_head: bool) -> Finding:
    what = f"{HEAD} is not signed" if has_head else "It has no signed head"
    return Finding(
        FindingKind.UNSIGNED_HEAD,
        HEAD if has_head else CHAIN,
        f"{what}: links that were cut off before the list was made would not be missed.",
    )


def _read(package: Package, name: str, limit: int) -> bytes | Finding:
    try:
        return package.read(name, limit)
    except ReefError as error:
        return Finding(FindingKind.UNREADABLE, name, error.message)
    except OSError as error:
        return Finding(FindingKind.UNREADABLE, name, printable(error.strerror or str(error)))


def _check_signature(
    package: Package, name: str, signature_name: str, data: bytes, trust: Trust
) -> Statements:
    from ..sign import sshsig
    from ..sign.public_key import fingerprint

    raw = _read(package, signature_name, sshsig.LIMIT)
    if isinstance(raw, Finding):
        return Statements((raw,))
    try:
        signature = sshsig.read(raw, signature_name)
    except ReefError as error:
        return _invalid(signature_name, error.message)
    if signature.namespace != sshsig.CUSTODY_NAMESPACE:
        return _invalid(
            signature_name,
            f"It was made for the namespace {printable(signature.namespace[:100])}, not for "
            f"{sshsig.CUSTODY_NAMESPACE}.",
        )
    if not signature.verify(data):
        return _invalid(signature_name, f"It is no signature of {name}: one of them was changed.")
    judgement = trust.judge(signature.public_key, sshsig.CUSTODY_NAMESPACE)
    report = SignerReport(
        judgement.identity,
        "sshsig",
        judgement.trusted,
        signature_name,
        fingerprint(signature.public_key),
        judgement.reason,
    )
    return Statements((), (report,), ((signature.public_key, judgement),))


def _invalid(name: str, text: str) -> Statements:
    return Statements((Finding(FindingKind.INVALID_SIGNATURE, name, text),))


def alone(package: Package, trust: Trust) -> Iterator[Finding | SignerReport]:
    """Check a chain that was named itself: its signed head is all that can vouch for it."""
    found = check_custody(package, trust)
    yield from found.findings
    yield from found.signers
    trusted = {key for key, judgement in found.judged if judgement.trusted}
    yield from untrusted(found)
    for key, judgement in found.judged:
        if not judgement.trusted and judgement.kind is FindingKind.UNKNOWN_SIGNER:
            yield from trust.missing((), (key,))
    if not found.judged or trusted:
        yield from trust.missing(trusted)


def untrusted(found: Statements) -> Iterator[Finding]:
    """Say why signers of the chain's head who are known are not trusted: revoked, expired …"""
    for _, judgement in found.judged:
        if not judgement.trusted and judgement.kind not in (None, FindingKind.UNKNOWN_SIGNER):
            reason = printable(judgement.reason or "It is not trusted.")
            yield Finding(judgement.kind, HEAD_SIGNATURE, reason)
