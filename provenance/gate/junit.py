"""Read JUnit XML, count it anew, and join it to a gate: skipped is not passed, nothing is no pass.

What pytest, GoogleTest, Maven Surefire and others write: `testsuites` and `testsuite`, nested as
deep as they like, with `testcase` in them. The counts in attributes are held against the cases.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from ...records.names import printable
from .chain import Findings
from .junit_words import (
    CHILDREN,
    HARMLESS,
    SUITES,
    CaseStatus,
    counts_of,
    stated,
    worst,
)
from .junit_xml import Node, read_xml
from .model import CellStatus, ChainCell, GateVerdict

_SHOWN = 8


_BAD = (CaseStatus.FAILED, CaseStatus.ERROR)
_NO_PASS = (CaseStatus.SKIPPED, CaseStatus.XFAILED, CaseStatus.FLAKY, CaseStatus.UNKNOWN)


@dataclass(frozen=True)
class JUnitCase:
    """A test; `id` is `classname::name`, `reason` what it says of not passing."""

    id: str
    status: CaseStatus
    reason: str | None = None


@dataclass(frozen=True)
class JUnitReport:
    """A report; `disagreements` are sentences on what contradicts the cases, or is not known."""

    label: str
    cases: tuple[JUnitCase, ...]
    disagreements: tuple[str, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        """Count the cases by status, every status, and in all."""
        found = Counter(case.status for case in self.cases)
        return {status.value: found[status] for status in CaseStatus} | {"tests": len(self.cases)}

    @property
    def twice(self) -> tuple[str, ...]:
        """Give the ids that are there more than once."""
        return tuple(each for each, count in Counter(c.id for c in self.cases).items() if count > 1)


@dataclass(frozen=True)
class JoinedTests:
    """Reports together: their counts, what is missing, and what all that comes to."""

    reports: tuple[JUnitReport, ...]
    missing: tuple[str, ...]
    verdict: GateVerdict
    reasons: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def counts(self) -> dict[str, int]:
        """Give the sums of all reports' counts."""
        total: Counter[str] = Counter()
        for report in self.reports:
            total.update(report.counts)
        return {name: total[name] for name in (*(s.value for s in CaseStatus), "tests")}

    def cell(self, name: str = "junit") -> ChainCell:
        """Give the cell that stands for the tests in a chain; it holds no artifact to compare."""
        status = {
            GateVerdict.PASSED: CellStatus.PASSED,
            GateVerdict.FAILED: CellStatus.FAILED,
            GateVerdict.INCOMPLETE: CellStatus.SKIPPED if self.reports else CellStatus.MISSING,
        }[self.verdict]
        if status is CellStatus.PASSED:
            return ChainCell(name, status)
        return ChainCell(name, status, " ".join(each for each in self.reasons[:3]))

    def add_to(self, findings: Findings) -> None:
        """Add what was found to that of a chain."""
        worst = self.verdict is GateVerdict.FAILED
        (findings.failed if worst else findings.incomplete).extend(self.reasons)
        for note in self.notes:
            findings.note(note)

    def to_json(self) -> dict[str, object]:
        """Give the JSON form."""
        return {
            "verdict": self.verdict.value,
            "counts": self.counts,
            "reports": {report.label: report.counts for report in self.reports},
            "missing": list(self.missing),
            "reasons": list(self.reasons),
            "notes": list(self.notes),
        }


def read_junit(data: bytes, label: str) -> JUnitReport:
    """Read a report; `label` must be fit to print. Raises Unusable for what is none."""
    root, fault = read_xml(data, label)
    if _kind(root) not in SUITES:
        raise fault(f"is no JUnit report: it begins with `{printable(root.name[:60])}`")
    cases: list[JUnitCase] = []
    disagreements: list[str] = []
    _count(root, label, cases, disagreements)
    for case in cases:
        if not case.id:
            raise fault("has a test without a name")
    return JUnitReport(label, tuple(cases), tuple(dict.fromkeys(disagreements)))


@dataclass
class _Sums:
    tests: int = 0
    failures: int = 0
    errors: int = 0
    skipped: int = 0
    disabled: int = 0

    def add(self, other: _Sums) -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


def _kind(node: Node) -> str:
    return node.name.lower()


def _count(
    suite: Node, label: str, cases: list[JUnitCase], disagreements: list[str]
) -> tuple[_Sums, _Sums]:
    """Collect the cases of a suite; give the sums of its own, and of all below it.

    What is not known is gone through as a suite is, so that no failure in it is lost.
    """
    own, total = _Sums(), _Sums()
    for child in suite.children:
        kind = _kind(child)
        if kind == "testcase":
            for case, sums in _cases(child):
                cases.append(case)
                own.add(sums)
        elif kind in CHILDREN:
            status = CaseStatus.ERROR if CHILDREN[kind] in _BAD else CHILDREN[kind]
            cases.append(JUnitCase(f"{_suite_name(suite)}::", status, _said(child)))
            own.add(_sums_of({kind}, CHILDREN[kind], tests=0))
        elif kind not in HARMLESS or child.children:
            if kind not in SUITES and not _is_plain(child):
                disagreements.append(_not_known(child, label))
            total.add(_count(child, label, cases, disagreements)[1])
    for status, text in stated(suite, of_suite=True):
        if status is not CaseStatus.PASSED:
            kept = CaseStatus.ERROR if status in _BAD else status
            cases.append(JUnitCase(f"{_suite_name(suite)}::", kept, f"it says {printable(text)}"))
    total.add(own)
    disagreements.extend(_disagreements(suite, label, own, total))
    return own, total


def _is_plain(node: Node) -> bool:
    """Tell whether an element, and all within it, can say nothing of a test."""
    return _kind(node) in HARMLESS and all(_is_plain(child) for child in node.children)


def _not_known(node: Node, label: str) -> str:
    return f"{label} holds `<{printable(node.name[:60])}>`, whose meaning is not known."


def _cases(node: Node) -> Iterable[tuple[JUnitCase, _Sums]]:
    """Read a test, and those within it, which is no place for them."""
    kinds = {_kind(child) for child in node.children}
    found: list[tuple[CaseStatus, str]] = []
    for child in node.children:
        kind = _kind(child)
        if kind == "skipped" and "xfail" in child.get("type").lower():
            found.append((CaseStatus.XFAILED, _said(child) or ""))
        elif kind in CHILDREN:
            found.append((CHILDREN[kind], _said(child) or ""))
        elif not _is_plain(child):
            inner = worst(_within(child))
            text = f"it holds `<{printable(child.name[:60])}>`, whose meaning is not known"
            found.append((inner if inner in _BAD else CaseStatus.UNKNOWN, text))
        if kind == "testcase":
            yield from _cases(child)
    found.extend((status, f"it says {printable(text)}") for status, text in stated(node))
    status = worst(each for each, _ in found)
    reasons = [text for each, text in found if each is status and text]
    reason = reasons[0] if reasons and status is not CaseStatus.PASSED else None
    name, where = node.get("name"), node.get("classname")
    ident = (f"{where}::{name}" if where else name) if name else ""
    yield JUnitCase(ident, status, reason), _sums_of(kinds, status)


def _within(node: Node) -> Iterable[CaseStatus]:
    """Give what all elements below one, and itself, say."""
    if _kind(node) in CHILDREN:
        yield CHILDREN[_kind(node)]
    for status, _ in stated(node):
        yield status
    for child in node.children:
        yield from _within(child)


def _sums_of(kinds: Collection[str], status: CaseStatus, tests: int = 1) -> _Sums:
    """Count a test as its writer does: by its children, else by what it says."""
    told = bool(CHILDREN.keys() & kinds)
    skips = {"skipped", "ignored"} & set(kinds)
    return _Sums(
        tests,
        "failure" in kinds or (not told and status is CaseStatus.FAILED),
        "error" in kinds or (not told and status is CaseStatus.ERROR),
        bool(skips),
        "disabled" in kinds or (not skips and status is CaseStatus.SKIPPED),
    )


def _said(node: Node) -> str | None:
    text = node.get("message") or node.text
    return printable(text.strip().split("\n")[0][:300]) or None


def _suite_name(suite: Node) -> str:
    return suite.get("name") or suite.name


def _disagreements(suite: Node, label: str, own: _Sums, total: _Sums) -> Iterable[str]:
    for name, attribute, text in counts_of(suite):
        # A suite's attributes are about its own cases, or all below: writers differ.
        fitting = {str(int(getattr(each, attribute))) for each in (own, total)}
        if attribute == "skipped":
            fitting |= {str(each.skipped + each.disabled) for each in (own, total)}
        if (text.strip().lstrip("0") or "0") not in fitting or not text.strip():
            where = printable(_suite_name(suite)[:100])
            yield (
                f"{label}: `{where}` states {printable(name[:20])}={printable(text[:20])}, "
                f"but holds {int(getattr(total, attribute)):,}."
            )


def plain_id(each: str) -> str:
    """Give the form in which ids are compared: pytest's node ids and dotted names are alike.

    `tests/test_a.py::TestB::test_c[x/y]` and `tests.test_a.TestB::test_c[x/y]` are one test.
    """
    name, bracket, parameters = each.partition("[")
    name = name.replace(".py::", "::").replace("/", ".").replace("::", ".")
    return name + bracket + parameters


def join(results: Sequence[JUnitReport], required: Collection[str] = ()) -> JoinedTests:
    """Judge reports together. Each required id must be there, once, and have passed.

    A failure anywhere fails. What is skipped or expected to fail is never a pass: without required
    ids it leaves the whole incomplete; with them only theirs does, and others are noted.
    """
    findings = Findings()
    known: dict[str, list[JUnitCase]] = {}
    for report in results:
        for case in report.cases:
            known.setdefault(plain_id(case.id), []).append(case)
        _judge_report(report, findings, lenient=bool(required))
    for each, cases in known.items():
        if len(cases) > 1:
            findings.incomplete.append(f"The test `{printable(each)}` is there {len(cases)} times.")
    missing = tuple(each for each in dict.fromkeys(required) if plain_id(each) not in known)
    for each in missing:
        findings.failed.append(f"The test `{printable(each)}` is required, and is not there.")
    for each in required:
        for case in known.get(plain_id(each), []):
            if case.status is not CaseStatus.PASSED:
                findings.incomplete.append(_sentence(case))
    if not results:
        findings.incomplete.append("There is no JUnit report.")
    return JoinedTests(
        tuple(results), missing, findings.verdict, findings.reasons, tuple(findings.notes)
    )


def _judge_report(report: JUnitReport, findings: Findings, *, lenient: bool) -> None:
    if not report.cases:
        findings.incomplete.append(f"{report.label} holds no test.")
    findings.incomplete.extend(report.disagreements)
    bad = [c for c in report.cases if c.status in _BAD]
    findings.failed.extend(_some(bad, report.label))
    rest = [c for c in report.cases if c.status in _NO_PASS]
    for sentence in _some(rest, report.label):
        if lenient:
            findings.note(sentence)
        else:
            findings.incomplete.append(sentence)


def _some(cases: Sequence[JUnitCase], label: str) -> list[str]:
    more = [f"{label}: {len(cases) - _SHOWN:,} more did not pass."] if len(cases) > _SHOWN else []
    return [_sentence(case) for case in cases[:_SHOWN]] + more


def _sentence(case: JUnitCase) -> str:
    why = f": {case.reason}" if case.reason else ""
    return f"The test `{printable(case.id)}` {_VERBS[case.status]}{why}."


_VERBS = {
    CaseStatus.FAILED: "failed",
    CaseStatus.ERROR: "ended in an error",
    CaseStatus.SKIPPED: "was skipped",
    CaseStatus.XFAILED: "was expected to fail",
    CaseStatus.FLAKY: "passed only when it was run again",
    CaseStatus.UNKNOWN: "ended in a way that is not known",
}
