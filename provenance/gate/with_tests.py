"""Let a chain pass only if tests, whose JUnit results are given, passed as well."""

from __future__ import annotations

from dataclasses import replace

from .chain import Findings
from .junit import JoinedTests
from .model import ChainReport, GateVerdict

_WORSE = (GateVerdict.PASSED, GateVerdict.INCOMPLETE, GateVerdict.FAILED)


def with_tests(chain: ChainReport, tests: JoinedTests) -> ChainReport:
    """Add the tests as a cell of their own; the worse verdict is that of both."""
    findings = Findings()
    tests.add_to(findings)
    return replace(
        chain,
        cells=(*chain.cells, tests.cell()),
        verdict=max(chain.verdict, tests.verdict, key=_WORSE.index),
        reasons=tuple(dict.fromkeys((*chain.reasons, *findings.reasons))),
        notes=(*chain.notes, *findings.notes),
    )
