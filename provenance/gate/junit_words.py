"""The words of JUnit XML: which elements, states and counts are known, and what they mean.

Gathered from what pytest, GoogleTest, CTest, Maven Surefire, Gradle, behave, nose and unittest
runners write. All are compared without regard to case. What is not in these tables is not known,
and nobody can say that it is a pass.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from .junit_xml import Node


class CaseStatus(str, Enum):
    """What became of a test; only the first is a pass."""

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    SKIPPED = "skipped"
    XFAILED = "xfailed"
    FLAKY = "flaky"
    UNKNOWN = "unknown"


_P, _F, _E, _S = CaseStatus.PASSED, CaseStatus.FAILED, CaseStatus.ERROR, CaseStatus.SKIPPED
WORST = (_E, _F, CaseStatus.UNKNOWN, CaseStatus.XFAILED, _S, CaseStatus.FLAKY, _P)

SUITES = frozenset({"testsuites", "testsuite"})
HARMLESS = frozenset({"properties", "property", "system-out", "system-err"})
CHILDREN = {
    "error": _E, "rerunerror": _E, "failure": _F, "rerunfailure": _F,
    "skipped": _S, "ignored": _S, "disabled": _S,
    "flakyfailure": CaseStatus.FLAKY, "flakyerror": CaseStatus.FLAKY,
}  # fmt: skip
_STATES = frozenset({"status", "result", "outcome", "state", "verdict", "conclusion"})
_WORDS = {
    **dict.fromkeys(
        "run completed complete passed pass success successful succeeded ok executed".split(), _P
    ),
    **dict.fromkeys("failed fail failure failures failing notok nok broken".split(), _F),
    **dict.fromkeys(
        "error errored errors exception crashed crash timeout timedout timed_out aborted killed "
        "interrupted".split(), _E
    ),
    **dict.fromkeys(
        "notrun not_run disabled suppressed skipped skip ignored ignore pending todo undefined "
        "untested inconclusive blocked cancelled canceled".split(), _S
    ),
}  # fmt: skip
# Attributes of a test or a suite that are true or false: the one that speaks against it, and what
# is said then.
_FLAGS = {
    "success": ("false", _F), "passed": ("false", _F), "failed": ("true", _F),
    "failure": ("true", _F), "error": ("true", _E), "errored": ("true", _E),
    "skipped": ("true", _S), "ignored": ("true", _S), "disabled": ("true", _S),
    "executed": ("false", _S), "failures": ("true", _F), "errors": ("true", _E),
}  # fmt: skip
_TRUTH = {"true": "true", "1": "true", "yes": "true", "false": "false", "0": "false", "no": "false"}
COUNTS = {
    "tests": "tests", "total": "tests",
    "failures": "failures", "failure": "failures", "failed": "failures", "fail": "failures",
    "errors": "errors", "error": "errors", "errored": "errors",
    "skipped": "skipped", "skip": "skipped", "skips": "skipped", "ignored": "skipped",
    "pending": "skipped", "disabled": "disabled", "notrun": "disabled",
}  # fmt: skip


def stated(node: Node, *, of_suite: bool = False) -> list[tuple[CaseStatus, str]]:
    """Give what the attributes of a test say of it, with the attribute, fit to be shown escaped.

    Those of a suite that count its tests are not asked here.
    """
    found: list[tuple[CaseStatus, str]] = []
    for name, value in node.attributes.items():
        key, word = _plain(name), value.strip().lower()
        text = f'{key}="{value.strip()[:60]}"'
        if key in _STATES and word:
            found.append((_WORDS.get(word.replace("-", "").replace(" ", ""), _UNKNOWN), text))
        elif key == "success" or (key in _FLAGS and not of_suite):
            against, status = _FLAGS[key]
            truth = _TRUTH.get(word)
            found.append((status if truth == against else _P if truth else _UNKNOWN, text))
    return found


_UNKNOWN = CaseStatus.UNKNOWN


def _plain(name: str) -> str:
    return name.rpartition(":")[2].lower()


def counts_of(suite: Node) -> list[tuple[str, str, str]]:
    """Give the counts that a suite states: attribute, what it counts, and the text."""
    return [
        (name, COUNTS[_plain(name)], text)
        for name, text in suite.attributes.items()
        if _plain(name) in COUNTS
    ]


def worst(found: Iterable[CaseStatus]) -> CaseStatus:
    """Give the worst; a pass where there is none."""
    return min(found, key=WORST.index, default=_P)
