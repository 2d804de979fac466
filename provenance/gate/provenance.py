"""Whether the reports of all ranks say who measured, and say the same."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from ...errors import ReefError
from ...records.names import printable
from ..content.members import Content
from .chain import Findings
from .files import ContentFiles, read_small
from .model import RankReport


@dataclass(frozen=True)
class CodeIdentity:
    """The code that all ranks ran; None where they do not agree or do not say."""

    commit: str | None
    tree: str | None
    dirty: bool | None


def run_record_name(rank: int) -> str:
    """Name the run record of a rank; that of rank 0 is `run.json`."""
    return "run.json" if rank == 0 else f"run-rank-{rank}.json"


def check_provenance(
    reports: Mapping[int, RankReport], content: Content, findings: Findings
) -> CodeIdentity:
    """Add to the findings what is not known of the run, and what contradicts itself."""
    files = ContentFiles(content, "")
    present = set(files.names())
    for rank, report in reports.items():
        lacking = report.provenance.lacking()
        if lacking:
            findings.incomplete.append(f"Rank {rank} does not say its {', '.join(lacking)}.")
        name = run_record_name(rank)
        if report.provenance.run_sha256 is None:
            findings.incomplete.append(f"The report of rank {rank} names no run record.")
        elif name not in present:
            findings.incomplete.append(f"The run record of rank {rank}, {name}, is not here.")
        else:
            fault = _fault(files, name, report)
            if fault is not None:
                findings.failed.append(f"The run record {name} {fault}.")
    runs = [report.provenance for report in reports.values()]
    if len({run.execution_id for run in runs}) < len(runs) and len(runs) > 1:
        findings.failed.append("Two ranks name the same execution.")
    commit = _agreed([run.commit for run in runs], "commits", findings)
    tree = _agreed([run.tree for run in runs], "trees", findings)
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


def _fault(files: ContentFiles, name: str, report: RankReport) -> str | None:
    from ..evidence.run_document import LIMIT, read_run

    said = report.provenance
    try:
        data = read_small(files, name, LIMIT)
        if hashlib.sha256(data).hexdigest() != said.run_sha256:
            return "is not the one that the report names: it was changed afterwards"
        record = read_run(data, name)
    except ReefError as error:
        return f"cannot be used: {error.message.rstrip('.')}"
    recorded = record.provenance(said.run_sha256)
    for key in ("execution_id", "commit", "tree", "dirty", "environment"):
        if getattr(recorded, key) != getattr(said, key):
            return f"says another `{key}` than the report"
    if record.rank != report.rank or record.topology != report.topology:
        return "is of another rank or topology than the report"
    return "says that the run was interrupted" if record.status.value == "interrupted" else None
