"""Every signature that is there: valid, of this very list, and by whom.

Keys that come with the evidence only tell whether a signature is valid; who made it, and whether
that counts, is for the verifier's own files to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from ...errors import ReefError
from ...records.names import printable
from ..finding import Finding, FindingKind
from ..sign.key import PublicKey
from .carried import Carried
from .known_names import KEY_COPY
from .listing import Listing
from .package import Package
from .result import SignerReport

if TYPE_CHECKING:
    from ..sign.found import FoundSignature
    from ..trust.judge import Judgement, Trust

_COPY_LIMIT = 1 << 20
_MOST_NAMED = 5


@dataclass(frozen=True)
class Signed:
    """What the signatures say.

    `list_was_changed`: signatures over the bytes of the list are there, and none fits it; `change`
    completes "it would be the signed one", where undoing an edit that tools make has proven that.
    """

    signers: tuple[SignerReport, ...] = ()
    findings: tuple[Finding, ...] = ()
    list_was_changed: bool = False
    change: str | None = None


@dataclass(frozen=True)
class _Valid:
    """A valid signature: by which key, of which list."""

    carried: Carried
    signature: FoundSignature
    key: PublicKey


def check_signatures(
    package: Package,
    listing: Listing,
    trust: Trust,
    *,
    identity: str | None = None,
    signed_at: Mapping[int, datetime] | None = None,
) -> Signed:
    """Check all signatures, and judge their keys. `signed_at` are proven times, by slot."""
    findings: list[Finding] = []
    valid: list[_Valid] = []
    over_list: list[bool] = []
    keys = _Keys(package, listing, trust)
    for each in listing.carried:
        if each.is_timestamp:
            continue
        if each.signature is None:
            findings += [each.finding] if each.finding is not None else []
            continue
        if each.signature.fault is not None:
            findings.append(Finding(each.signature.fault[0], each.path, each.signature.fault[1]))
            continue
        sums = _bytes_of(listing, each)
        key = keys.fitting(each, sums)
        if not each.binds_files:
            over_list.append(key is not None)
        if key is None:
            findings.append(keys.none_fits(each, sums))
            continue
        other = _other_files(listing, each)
        if other is not None:
            findings.append(other)
            continue
        valid.append(_Valid(each, each.signature, key))
        findings += _ignored(each)
        findings += [
            Finding(FindingKind.NOT_CHECKED, each.path, text) for text in each.signature.unchecked
        ]
    changed = bool(over_list) and not any(over_list)
    judged = _judge(listing, valid, trust, identity, signed_at or {})
    return Signed(
        judged.signers,
        (*findings, *judged.findings),
        list_was_changed=changed,
        change=_change(listing, keys) if changed else None,
    )


def _change(listing: Listing, keys: _Keys) -> str | None:
    """Undo what editors, checkouts and shells do to a text, and see whether a signature fits."""
    for each in listing.carried:
        if each.signature is None or each.binds_files:
            continue
        data = _bytes_of(listing, each)
        lf = data.replace(b"\r\n", b"\n")
        for change, undone in (
            ("with LF at the ends of its lines", lf),
            ("with CR LF at the ends of its lines", lf.replace(b"\n", b"\r\n")),
            ("without its byte order mark", data.removeprefix(b"\xef\xbb\xbf")),
            ("without its byte order mark, with LF", lf.removeprefix(b"\xef\xbb\xbf")),
            ("with a newline at its end", data + b"\n"),
            ("without the newline at its end", data.removesuffix(b"\n")),
        ):
            if undone != data and keys.fitting(each, undone) is not None:
                return change
    return None


def _bytes_of(listing: Listing, each: Carried) -> bytes:
    return next((found.data for found in listing.lists if found.name == each.list_name), b"")


class _Keys:
    """The keys to try: those that signatures carry, the trusted ones, and the copy in there."""

    def __init__(self, package: Package, listing: Listing, trust: Trust) -> None:
        carried = [
            (each.slot, each.signature.public_key)
            for each in listing.carried
            if each.signature is not None and each.signature.public_key is not None
        ]
        self._by_slot = dict(carried)
        others = [*(key for _, key in carried), *trust.keys(), *_copies(package)]
        self._all = tuple(dict.fromkeys(others))

    def fitting(self, each: Carried, sums: bytes) -> PublicKey | None:
        """Find the key that made a signature."""
        signature = each.signature
        assert signature is not None
        if signature.public_key is not None:
            tried: Iterable[PublicKey] = (signature.public_key,)
        else:
            own = self._by_slot.get(each.slot)
            tried = dict.fromkeys((own, *self._all) if own is not None else self._all)
        return next((key for key in tried if signature.verify(key, sums)), None)

    def none_fits(self, each: Carried, sums: bytes) -> Finding:
        """Say that a signature is not valid, as far as that can be said."""
        signature = each.signature
        assert signature is not None
        what = "what it binds" if each.binds_files else printable(each.list_name)
        key = signature.public_key
        if not each.binds_files and not sums:
            text = f"It signs {printable(each.list_name)}, which is not there."
            return Finding(FindingKind.INVALID_SIGNATURE, each.path, text)
        if key is None and not self._all:
            return Finding(
                FindingKind.UNKNOWN_SIGNER,
                each.path,
                f"It carries no key, and there is none here to try (scheme {signature.scheme}): "
                "name the signer's with --signers.",
            )
        if key is not None and signature.touchless and signature.verify(
            key, sums, allow_touchless=True
        ):  # fmt: skip
            text = "The security key signed it without being touched: any program could have asked."
        elif key is not None:
            text = f"It is not a signature of {what} by the key that it names: one was changed."
        else:
            text = (
                f"It is not a signature of {what} by any key that is known here: it, or what it "
                "signs, was changed, or the key is missing."
            )
        return Finding(FindingKind.INVALID_SIGNATURE, each.path, text)


def _copies(package: Package) -> list[PublicKey]:
    from ..sign.public_key import from_pem

    if not package.holds(KEY_COPY):
        return []
    try:
        return [from_pem(package.read(KEY_COPY, _COPY_LIMIT), KEY_COPY)]
    except (ReefError, OSError):
        return []


def _other_files(listing: Listing, each: Carried) -> Finding | None:
    """Say how the files that a signature binds differ from those that are listed."""
    assert each.signature is not None
    if each.signature.files is None:
        return None
    carriers = {found.path: found for found in listing.carried}
    bound = {name: sha for name, sha in each.signature.files.items() if name not in carriers}
    listed = {
        line.name: line.digest
        for line in listing.lines
        if line.algorithm == "sha256" and line.name not in carriers
    }
    unbound = {line.name for line in listing.lines} - bound.keys() - carriers.keys()
    differing = sorted(
        {name for name in bound.keys() | listed.keys() if bound.get(name) != listed.get(name)}
        | unbound
    )
    differing += sorted(_changed_carriers(each.signature, carriers))
    if not differing:
        return None
    named = ", ".join(printable(name) for name in differing[:_MOST_NAMED])
    more = f" and {len(differing) - _MOST_NAMED:,} more" if len(differing) > _MOST_NAMED else ""
    return Finding(
        FindingKind.OTHER_FILES_SIGNED,
        each.path,
        f"It is a valid signature, but for other files than {' and '.join(listing.names)} "
        f"lists: {named}{more}.",
    )


def _changed_carriers(signature: FoundSignature, carriers: Mapping[str, Carried]) -> Iterable[str]:
    import hashlib

    for name, digest in (signature.files or {}).items():
        if name in carriers and hashlib.sha256(carriers[name].data).hexdigest() != digest:
            yield name


def _ignored(each: Carried) -> list[Finding]:
    from ..sign.carriers import all_names

    assert each.signature is not None
    usual = {*all_names(each.list_name), each.path}
    ignored = sorted(set(each.signature.ignored) - usual)
    if not ignored:
        return []
    named = ", ".join(printable(name[:200]) for name in ignored[:_MOST_NAMED])
    more = f" and {len(ignored) - _MOST_NAMED:,} more" if len(ignored) > _MOST_NAMED else ""
    return [
        Finding(
            FindingKind.IGNORED_PATHS,
            each.path,
            f"It lets its own verifier skip {len(ignored):,} paths ({named}{more}). They were "
            "looked at here.",
        )
    ]


def _judge(
    listing: Listing,
    valid: Sequence[_Valid],
    trust: Trust,
    identity: str | None,
    signed_at: Mapping[int, datetime],
) -> Signed:
    from ..sign.public_key import fingerprint

    reports: list[SignerReport] = []
    refused: list[Finding] = []
    trusted: dict[str, set[PublicKey]] = {}
    unknown: set[PublicKey] = set()
    named: set[PublicKey] = set()
    for each in valid:
        judgement = _judgement(each, trust, signed_at)
        reports.append(
            SignerReport(
                judgement.identity,
                each.signature.scheme,
                judgement.trusted,
                each.carried.path,
                fingerprint(each.key),
                judgement.reason,
            )
        )
        if judgement.trusted:
            for name in _lists_of(listing, each):
                trusted.setdefault(name, set()).add(each.key)
            if identity is not None and _is_named(identity, each, trust, signed_at):
                named.add(each.key)
        elif judgement.kind is FindingKind.UNKNOWN_SIGNER:
            unknown.add(each.key)
        else:
            kind = judgement.kind or FindingKind.UNKNOWN_SIGNER
            reason = _sentence(judgement.reason or "the key is not trusted")
            refused.append(Finding(kind, each.carried.path, reason))
    counted = _of_all_lists(listing, trusted)
    missing = trust.missing(counted, unknown - counted)
    if missing and refused and all(each.kind is FindingKind.UNSIGNED for each in missing):
        missing = ()  # why those who signed do not count says more
    needed = missing or not counted
    findings = [*(refused if needed else map(further, refused)), *missing]
    if identity is not None and not named & counted:
        findings.append(
            Finding(
                FindingKind.TOO_FEW_SIGNERS,
                None,
                f"No valid signature by {printable(identity)} is there, whom your files trust.",
            )
        )
    return Signed(tuple(reports), tuple(_without_repeats(findings)))


def _lists_of(listing: Listing, each: _Valid) -> tuple[str, ...]:
    """Name the lists that a signature is of: one that binds the files stands for them all."""
    if each.carried.binds_files:
        return tuple(found.name for found in listing.lists) or (each.carried.list_name,)
    return (each.carried.list_name,)


def _judgement(each: _Valid, trust: Trust, signed_at: Mapping[int, datetime]) -> Judgement:
    from ..sign.sshsig import SUMS_NAMESPACE
    from ..trust.judge import Judgement

    moment = signed_at.get(each.carried.slot)
    judgement = trust.judge(each.key, SUMS_NAMESPACE, signed_at=moment)
    namespace = each.signature.namespace
    if judgement.trusted and namespace not in (None, SUMS_NAMESPACE):
        reason = (
            f"it was made for the namespace {printable(str(namespace))}, not for {SUMS_NAMESPACE}"
        )
        return Judgement(judgement.identity, False, FindingKind.NAMESPACE, reason)
    return judgement


def _is_named(identity: str, each: _Valid, trust: Trust, signed_at: Mapping[int, datetime]) -> bool:
    """Tell whether the trust in a key is by a line that names this identity."""
    lines = tuple(line for line in trust.signers if line.is_named(identity))
    return _judgement(each, replace(trust, signers=lines), signed_at).trusted


def _of_all_lists(listing: Listing, trusted: Mapping[str, set[PublicKey]]) -> set[PublicKey]:
    """Give the keys that signed every list: what only one is signed for proves half."""
    if not listing.lists:
        return set[PublicKey]().union(*trusted.values())
    signed = [trusted.get(each.name, set[PublicKey]()) for each in listing.lists]
    return set[PublicKey].intersection(*signed)


def further(finding: Finding) -> Finding:
    """Say of a signer who is not needed that the signature counts nothing, and why."""
    return Finding(FindingKind.FURTHER_SIGNER, finding.path, finding.diagnosis)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "."


def _without_repeats(findings: Iterable[Finding]) -> Iterable[Finding]:
    return dict.fromkeys(findings)
