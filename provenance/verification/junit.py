"""A verification as JUnit XML: a test case for each file, each signature, and what else was found.

Names are escaped before they are written, so that the XML is valid whatever a file is called.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from xml.sax.saxutils import quoteattr

from ...records.names import printable
from ..finding import Finding, FindingKind, Gravity
from .meaning import meaning_of
from .result import SignerReport, Verification

_FILES, _SIGNATURES, _WHOLE = "files", "signatures", "evidence"
_OF_SIGNATURES = (
    FindingKind.INVALID_SIGNATURE,
    FindingKind.OTHER_FILES_SIGNED,
    FindingKind.PREDICATE_TYPE,
    FindingKind.UNKNOWN_SIGNER,
    FindingKind.UNTRUSTED_TIMESTAMP,
    FindingKind.UNCHECKED_TIMESTAMP,
)


def to_junit(result: Verification) -> str:
    """Write the document. What only --integrity-only excuses is skipped, never passed."""
    by_path: dict[str, list[Finding]] = defaultdict(list)
    for finding in result.findings:
        by_path[finding.path or ""].append(finding)
    cases = list(_cases(result, by_path))
    failures = sum("<failure " in case for case in cases)
    skipped = sum("<skipped " in case for case in cases)
    counts = f'tests="{len(cases)}" failures="{failures}" errors="0" skipped="{skipped}"'
    name = quoteattr(f"reef-archive verify {result.target}")
    return "\n".join(
        [
            '<?xml version="1.0" encoding="UTF-8"?>',
            f"<testsuites {counts}>",
            f"<testsuite name={name} {counts}>",
            *cases,
            "</testsuite>",
            "</testsuites>",
            "",
        ]
    )


def _cases(result: Verification, by_path: dict[str, list[Finding]]) -> Iterator[str]:
    yield _case(_WHOLE, result.target, by_path.pop("", []), result)
    signatures: dict[str, SignerReport] = {signer.path: signer for signer in result.signers}
    for path, signer in signatures.items():
        said = f"{signer.scheme} by {printable(signer.identity or 'somebody unknown')}"
        if signer.fingerprint:
            said += f", {signer.fingerprint}"
        if signer.reason:
            said += f": {printable(signer.reason)}"
        yield _case(_SIGNATURES, printable(path), by_path.pop(path, []), result, said)
    for path in result.files:
        yield _case(_FILES, printable(path), by_path.pop(path, []), result)
    for path, findings in by_path.items():
        group = _SIGNATURES if findings[0].kind in _OF_SIGNATURES else _FILES
        yield _case(group, printable(path), findings, result)


def _case(
    group: str, name: str, findings: Sequence[Finding], result: Verification, said: str = ""
) -> str:
    head = f"<testcase classname={quoteattr(f'reefkit.verify.{group}')} name={quoteattr(name)}"
    if not findings and not said:
        return f"{head}/>"
    body: list[str] = []
    bad = [finding for finding in findings if finding.gravity is not Gravity.NOTE]
    counted = [finding for finding in bad if result.counts(finding)]
    for finding in counted[:1]:  # one failure a case is all that readers of JUnit understand
        body.append(_element("failure", finding, "\n".join(each.diagnosis for each in counted)))
    if not counted and (
        bad or any(finding.kind is FindingKind.NOT_REQUIRED for finding in findings)
    ):
        body.append(_element("skipped", (bad or list(findings))[0], ""))
    lines = [said] * bool(said)
    lines += [finding.diagnosis for finding in findings if finding not in counted]
    if lines:
        body.append(f"<system-out>{_text(chr(10).join(lines))}</system-out>")
    return "\n".join([f"{head}>", *body, "</testcase>"])


def _element(tag: str, finding: Finding, text: str) -> str:
    message = f"{meaning_of(finding.kind).title}: {finding.diagnosis}"
    head = f"{tag} message={quoteattr(_clean(message))}"
    if tag == "failure":
        return f'<{head} type="{finding.kind.value}">{_text(text)}</failure>'
    return f"<{head} />"


def _clean(text: str) -> str:
    """Leave nothing that XML 1.0 cannot hold, should a diagnosis hold it in spite of its rule."""
    return "\n".join(
        "".join(c if c.isprintable() or c == " " else printable(c) for c in line)
        for line in text.split("\n")
    )


def _text(text: str) -> str:
    from xml.sax.saxutils import escape

    return escape(_clean(text))
