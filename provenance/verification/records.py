"""What records inside the evidence claim: read with the readers of runs and gates, judged anew.

Only verified bytes are looked at. A record of another schema is nobody's business here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice

from ...errors import ReefError
from ...records.names import printable
from ..content.members import Content
from ..finding import Finding, FindingKind
from .known_names import GATE, RUN
from .named_commits import NamedCommit, named_commits
from .package import Package

_LIMIT = 16 << 20
_MOST = 2000


def check_records(package: Package, verified: Collection[str]) -> Iterator[Finding]:
    """Hold run records and gates against what lies beside them."""
    for name in _called(package, verified, RUN):
        yield from _run_record(package, name)
    for name in _called(package, verified, GATE):
        yield from _chain_report(package, name)


def commits_in(package: Package, verified: Collection[str]) -> list[NamedCommit]:
    """Give all commits that verified JSON documents name."""
    names = (
        name
        for name in sorted(verified)
        if name.endswith(".json") and name in package.members
        and package.members[name].size <= _LIMIT
    )  # fmt: skip
    found: list[NamedCommit] = []
    for name in islice(names, _MOST):
        data = _read(package, name)
        if data is not None:
            found += named_commits(data, name)
    return found


def _called(package: Package, verified: Collection[str], last: str) -> list[str]:
    return sorted(
        name
        for name in verified
        if (name == last or name.endswith("/" + last)) and package.holds(name)
    )


def _read(package: Package, name: str) -> bytes | None:
    try:
        return package.read(name, _LIMIT)
    except (ReefError, OSError):
        return None


def _run_record(package: Package, name: str) -> Iterator[Finding]:
    from ..evidence.run_document import SCHEMA, read_run

    data = _read(package, name)
    if data is None or SCHEMA.encode() not in data:
        return
    try:
        read_run(data, printable(name))
    except ReefError as error:
        yield Finding(FindingKind.CLAIMED, name, f"It is no whole run record: {error.message}")


def _chain_report(package: Package, name: str) -> Iterator[Finding]:
    """Judge a gate that says it passed again, from its artifacts."""
    from ..gate.model import CHAIN_SCHEMA, GateVerdict
    from ..gate.part import MANIFEST_NAMES, Part
    from ..gate.report import parse_chain_report
    from ..gate.verdict import Question, judge_content

    data = _read(package, name)
    if data is None or CHAIN_SCHEMA.encode() not in data:
        return
    try:
        claimed = parse_chain_report(data, printable(name))
    except ReefError as error:
        yield Finding(FindingKind.RECORD, name, f"It is no report of a chain: {error.message}")
        return
    if not claimed.passed:
        return
    folder = name[: -len(GATE)]
    if not any(package.holds(folder + each) for each in MANIFEST_NAMES):
        text = "It says that the gate passed, and the gate's manifest and artifacts are not here."
        yield Finding(FindingKind.CLAIMED, name, text)
        return
    part: Content = Part(package.content, folder) if folder else package.content
    try:
        judged = judge_content(Question(part))
        if judged.verdict is GateVerdict.INCOMPLETE:
            told = judge_content(Question(part, pinned_reports=claimed.reports))
            if told.passed:
                text = (
                    "The gate passes again by its artifacts, but what they must equal is not "
                    "here: the digests of that are taken from its own reports."
                )
                yield Finding(FindingKind.CLAIMED, name, text)
                return
    except ReefError as error:
        text = f"It says that the gate passed, which cannot be judged again: {error.message}"
        yield Finding(FindingKind.NOT_CHECKED, name, text)
        return
    if judged.passed:
        return
    reason = judged.reasons[0] if judged.reasons else "no reason is known"
    failed = judged.verdict is GateVerdict.FAILED
    yield Finding(
        FindingKind.RECORD if failed else FindingKind.NOT_CHECKED,
        name,
        f"It says that the gate passed; judged again from its artifacts it is "
        f"{judged.verdict.value}: {reason}",
    )
