"""With REEFKIT_NO_SKIP=1 a test that is skipped fails: a check that did not run is never a pass."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

NO_SKIP = os.environ.get("REEFKIT_NO_SKIP") == "1"


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if NO_SKIP and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"REEFKIT_NO_SKIP=1 allows no skip, but: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _refuse_skip(report)
    return report
