"""Whether the reports of all ranks say who measured, and say the same."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import ReefError
from ...records.names import printable
from ..content.members import Content
from .chain import Findings
from .files import ContentFiles, read_small
from .model import CellStatus, RankReport
from .same_run import check_same_run

if TYPE_CHECKING:
    from ..evidence.run_document import RunRecord

_CELL = re.compile(r"cell ([^\s:]+): ")
_SAID = {"passed": "passed", "failed": "failed", "unavailable": "could not be done"}


@dataclass(frozen=True)
class CodeIdentity:
    """The code that all ranks ran; None where they do not agree or do not say."""

    commit: str | None
    tree: str | None
    dirty: bool | None


class _Contradiction(Exception):
    """A run record cannot be that of a report; the message goes on after its name."""


def run_record_name(rank: int) -> str:
    """Name the run record of a rank; that of rank 0 is `run.json`."""
    return "run.json" if rank == 0 else f"run-rank-{rank}.json"


def check_provenance(
    reports: Mapping[int, RankReport], content: Content, findings: Findings
) -> CodeIdentity:
    """Add to the findings what is not known of the run, and what contradicts itself."""
    files = ContentFiles(content, "")
    present = set(files.names())
    records: dict[int, RunRecord] = {}
    for rank, report in reports.items():
        for text in report.contradictions:
            findings.failed.append(f"The report of rank {rank} contradicts itself: it says {text}.")
        lacking = report.provenance.lacking()
        if lacking:
            findings.incomplete.append(f"Rank {rank} does not say its {', '.join(lacking)}.")
        name = run_record_name(rank)
        if report.provenance.run_sha256 is None:
            findings.incomplete.append(f"The report of rank {rank} names no run record.")
        elif name not in present:
            findings.incomplete.append(f"The run record of rank {rank}, {name}, is not here.")
        else:
            try:
                records[rank] = _read(files, name, report)
            except _Contradiction as fault:
                findings.failed.append(f"The run record {name} {fault}.")
                continue
            _check_ending(records[rank], report, name, findings)
    runs = [report.provenance for report in reports.values()]
    if len({run.execution_id for run in runs}) < len(runs) and len(runs) > 1:
        findings.failed.append("Two ranks name the same execution.")
    commit = _agreed([run.commit for run in runs], "commits", findings)
    tree = _agreed([run.tree for run in runs], "trees", findings)
    check_same_run({rank: report.provenance for rank, report in reports.items()}, records, findings)
    dirty = None if any(run.dirty is None for run in runs) else any(run.dirty for run in runs)
    if dirty:
        findings.note("Tracked files had changes: no later stage accepts this one.")
    return CodeIdentity(commit, tree, dirty)


def _agreed(values: list[str | None], what: str, findings: Findings) -> str | None:
    known = set(values) - {None}
    if len(known) > 1:
        listed = ", ".join(sorted(printable(str(each))[:12] for each in known)[:4])
        findings.failed.append(f"The ranks ran different {what}: {listed}.")
    return known.pop() if len(known) == 1 and None not in values else None


def _read(files: ContentFiles, name: str, report: RankReport) -> RunRecord:
    """Read the run record that a report names. Raises _Contradiction."""
    from ..evidence.run_document import LIMIT, read_run

    said = report.provenance
    try:
        data = read_small(files, name, LIMIT)
        if hashlib.sha256(data).hexdigest() != said.run_sha256:
            raise _Contradiction("is not the one that the report names: it was changed afterwards")
        record = read_run(data, name)
    except ReefError as error:
        raise _Contradiction(f"cannot be used: {error.message.rstrip('.')}") from None
    recorded = record.provenance(said.run_sha256)
    for key in ("execution_id", "commit", "tree", "dirty", "environment"):
        if getattr(recorded, key) != getattr(said, key):
            raise _Contradiction(f"says another `{key}` than the report")
    if record.rank != report.rank or record.topology != report.topology:
        raise _Contradiction("is of another rank or topology than the report")
    return record


def _check_ending(record: RunRecord, report: RankReport, name: str, findings: Findings) -> None:
    """Hold how the run ended against the cells of the report, which may have been edited since."""
    status = record.status.value
    cells = {cell.id: cell.status for cell in report.cells}
    worst = _ending(set(cells.values()))
    if status == "interrupted":
        findings.incomplete.append(f"The run record {name} says that the run was interrupted.")
    elif status != worst:
        found = findings.failed if "failed" in (status, worst) else findings.incomplete
        found.append(
            f"The run record {name} says that the run {_SAID[status]}, its report that it "
            f"{_SAID[worst]}."
        )
    named = _CELL.match(record.reason or "")
    if named is not None and cells.get(named[1]) is CellStatus.PASSED:
        findings.failed.append(
            f"The run record {name} says that cell `{printable(named[1])}` did not pass, its "
            "report that it did."
        )
    if record.repository_changed:
        findings.incomplete.append(
            f"The repository was changed while rank {report.rank} ran ({name}): which code was "
            "measured is not known."
        )


def _ending(statuses: set[CellStatus]) -> str:
    """Say how a run whose cells ended so ends: as its worst cell."""
    if CellStatus.FAILED in statuses:
        return "failed"
    return "unavailable" if statuses - {CellStatus.PASSED} else "passed"
