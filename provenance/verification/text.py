"""A verification for people: the verdict, who signed, what was found, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...records.names import printable
from ..finding import Finding, Gravity
from .result import SignerReport, Verdict, Verification

_MOST = 50
_SAYS = {
    Verdict.VERIFIED: "every byte is as it was signed by somebody you trust",
    Verdict.UNTRUSTED: "the bytes are intact, but nobody you trust vouches for them",
    Verdict.INCOMPLETE: "nothing wrong was found, but not everything could be checked",
    Verdict.FAILED: "this is not what was listed or signed",
}


def to_text_report(result: Verification, *, every: bool = False) -> str:
    """Write the report; without `every` the list of findings is cut after the first fifty."""
    return "\n".join([*_lines(result, every=every), ""])


def headline(result: Verification) -> str:
    """Say the verdict in one line: what was checked, by whom it is signed."""
    checked = _counted(result.checked, "file")
    parts = [f"{result.verdict.value}  {result.target}: {checked} checked"]
    trusted = _people([signer for signer in result.signers if signer.trusted])
    others = _people([signer for signer in result.signers if not signer.trusted])
    if trusted:
        parts.append(f"signed by {'; '.join(trusted)}")
    if others and not trusted:
        parts.append(f"signed by {'; '.join(others)}, whom you do not trust")
    if not result.signers:
        parts.append("no valid signature")
    return ", ".join(parts)


def _lines(result: Verification, *, every: bool) -> Iterator[str]:
    yield headline(result)
    yield f"  {_sentence(result)}."
    yield from _signers(result)
    found = sorted(result.findings, key=lambda finding: -finding.gravity)
    shown = found if every else found[:_MOST]
    if shown:
        yield ""
        yield from _table(shown)
    if len(found) > len(shown):
        yield f"  … and {len(found) - len(shown):,} more; --json lists all."
    worst = [finding for finding in found if result.counts(finding)]
    if worst and worst[0].gravity is not Gravity.NOTE:
        from .meaning import meaning_of

        yield ""
        yield f"Next: {meaning_of(worst[0].kind).remedy}"


def _sentence(result: Verification) -> str:
    if result.integrity_only and result.verdict is Verdict.VERIFIED:
        return "every byte is as the list says; who made the list was not asked (--integrity-only)"
    return _SAYS[result.verdict]


def _people(signers: Sequence[SignerReport]) -> list[str]:
    keys = dict.fromkeys((signer.identity, signer.fingerprint) for signer in signers)
    return [
        f"{printable(identity or 'an unknown key')} ({fingerprint or 'no key in it'})"
        for identity, fingerprint in keys
    ]


def _signers(result: Verification) -> Iterator[str]:
    """Tell of each signer once, with all the files that hold their signatures."""
    told = " ".join(finding.diagnosis for finding in result.findings).lower()
    groups: dict[tuple[str | None, str | None, bool, str | None], list[str]] = {}
    for signer in result.signers:
        who = (signer.identity, signer.fingerprint, signer.trusted, signer.reason)
        groups.setdefault(who, []).append(f"{printable(signer.path)} ({signer.scheme})")
    for (identity, fingerprint, trusted, reason), files in groups.items():
        state = "trusted" if trusted else "NOT trusted"
        name = printable(identity or "unknown key")
        why = f": {reason}" if reason and reason.lower() not in told else ""
        yield f"  {name} {fingerprint or ''}, {state}{why}"
        yield f"    {', '.join(files)}"


def _table(findings: Sequence[Finding]) -> Iterator[str]:
    rows = [
        (finding.gravity.name.lower(), finding.kind.value, _said(finding)) for finding in findings
    ]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for gravity, kind, said in rows:
        yield f"  {gravity.ljust(widths[0])}  {kind.ljust(widths[1])}  {said}"


def _said(finding: Finding) -> str:
    return (
        finding.diagnosis
        if finding.path is None
        else (f"{printable(finding.path)}: {finding.diagnosis}")
    )


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun if number == 1 else noun + 's'}"
