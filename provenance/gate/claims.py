"""Judge reports without a gate's manifest: what they claim is told, and is never a pass.

These are reports of public schemas (`foreign`), and our own where the manifest that they are of is
not there, so that nothing says what they should hold.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...errors import Unusable
from ...records.names import printable
from ...records.strict_json import parse_object
from ..content.members import Content, MemberKind
from .chain import Findings
from .files import ContentFiles, read_small
from .manifest_file import read_bytes
from .model import CellStatus, ChainCell, ChainReport, GateVerdict, RankReport
from .report import LIMIT

_MOST = 10_000


@dataclass(frozen=True)
class _Claim:
    """One report: whether it is known to be wrong, what to say of it, and what it names."""

    cell: ChainCell
    reasons: tuple[str, ...]
    notes: tuple[str, ...]
    report: ChainReport | None


def judge_claims(content: Content) -> ChainReport:
    """Judge all reports in a container that has no manifest of a gate.

    Raises Unusable where no file is a report that is known, or one that is cannot be read.
    """
    from .foreign import read_report
    from .foreign.attempt import newest_attempts
    from .foreign.model import ForeignReport, check_files

    files = ContentFiles(content, "")
    attempts = newest_attempts(files)
    claims = [_claim(found, case) for case, found in attempts.items()]
    digests: dict[str, str] = {}
    within = tuple(f"{case}/" for case in attempts)
    names = [
        member.name
        for member in content.members
        if member.kind is MemberKind.FILE and not member.name.startswith(within)
    ]
    for name in [each for each in names if each.endswith((".json", ".json.partial"))][:_MOST]:
        data = read_small(files, name, LIMIT)
        found = read_report(data, name)
        if found is None:
            continue
        if isinstance(found, ForeignReport):
            found = check_files(found, files, name[: name.rfind("/") + 1])
        claims.append(_claim(found, name))
        digests[name] = hashlib.sha256(data).hexdigest()
    if not claims:
        raise Unusable(
            f"{content.label} holds no manifest of a gate, and no report that is known.",
            remedy="Name a folder that a gate wrote, or one with its reports.",
        )
    findings = Findings()
    findings.take(content.findings)
    return _fold(claims, digests, findings)


def judge_claim(path: Path) -> ChainReport:
    """Judge one report in a file. Raises Unusable where it is none that is known."""
    from .foreign import read_report

    data = read_bytes(path, LIMIT)
    label = printable(os.fsencode(path.name))
    found = read_report(data, path.name)
    if found is None:
        parse_object(data, label)
        raise Unusable(
            f"{label} is neither a manifest of a gate nor a report that is known.",
            remedy="Name a manifest, a report, or the folder of a run.",
        )
    return _fold([_claim(found, path.name)], {path.name: hashlib.sha256(data).hexdigest()})


def _claim(found: object, name: str) -> _Claim:
    from .foreign.model import ForeignReport

    label = printable(name)
    if isinstance(found, ForeignReport):
        failed = found.verdict is GateVerdict.FAILED
        status = CellStatus.FAILED if failed else CellStatus.UNAVAILABLE
        cell = ChainCell(label, status, found.statement.rstrip("."), found.rank)
        shown = ChainReport(
            found.scope or "",
            found.config_fingerprint,
            (),
            found.verdict,
            first_drift=found.first_drift,
            commit=found.provenance.commit,
            dirty=found.provenance.dirty,
        )
        return _Claim(cell, found.reasons, tuple(map(printable, found.notes)), shown)
    if isinstance(found, ChainReport):
        failed = found.verdict is GateVerdict.FAILED
        said = f"says {found.verdict.value}: claimed, its manifest and reports are not here"
        status = CellStatus.FAILED if failed else CellStatus.UNAVAILABLE
        return _Claim(ChainCell(label, status, said), (f"{label} {said}.",), (), found)
    assert isinstance(found, RankReport)
    wrong = [cell for cell in found.cells if cell.status is CellStatus.FAILED]
    if found.contradictions:
        said = f"contradicts itself: it says {found.contradictions[0]}"
        return _Claim(
            ChainCell(label, CellStatus.FAILED, said, found.rank), (f"{label} {said}.",), (), None
        )
    said = "claims, without the manifest that it is of, " + (
        f"that cell `{printable(wrong[0].id)}` failed" if wrong else "that no cell failed"
    )
    status = CellStatus.FAILED if wrong else CellStatus.UNAVAILABLE
    shown = ChainReport(
        found.stage, found.config_fingerprint, (), GateVerdict.INCOMPLETE,
        commit=found.provenance.commit, dirty=found.provenance.dirty,
    )  # fmt: skip
    cell = ChainCell(label, status, said, found.rank)
    return _Claim(cell, (f"{label} {said}.",), (), shown)


def _fold(
    claims: Sequence[_Claim], digests: dict[str, str], findings: Findings | None = None
) -> ChainReport:
    findings = findings or Findings()
    for claim in claims:
        failed = claim.cell.status is CellStatus.FAILED
        (findings.failed if failed else findings.incomplete).extend(claim.reasons)
        for note in claim.notes:
            findings.note(note)
    reports = [claim.report for claim in claims if claim.report is not None]
    prints = {report.config_fingerprint for report in reports}
    commits = {report.commit for report in reports}
    drifts = [report.first_drift for report in reports if report.first_drift is not None]
    stages = {report.stage for report in reports} - {""}
    chain = ChainReport(
        stage=stages.pop() if len(stages) == 1 else "",
        config_fingerprint=prints.pop() if len(prints) == 1 else None,
        cells=tuple(claim.cell for claim in claims),
        verdict=findings.verdict,
        reasons=findings.reasons,
        notes=tuple(findings.notes),
        first_drift=drifts[0] if drifts else None,
        commit=commits.pop() if len(commits) == 1 else None,
        reports=digests,
    )
    if chain.passed:  # nobody recomputed anything
        return replace(chain, verdict=GateVerdict.INCOMPLETE)
    return chain
