"""Merge what a gate came to in several Python environments: vLLM in one, SGLang in another.

Each environment ran the same manifest, into a folder of its own; a cell that needs what is not
installed there was `unavailable`. Every folder is judged anew by its artifacts before anything is
merged. A cell counts as passed when it passed in one environment on all ranks, failed in none, and
left the same artifacts wherever it passed. Environments stay side by side; nothing is averaged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

from ...errors import ReefError, Unusable
from ...records.names import printable
from ..content.members import Content
from ..evidence.run_document import LIMIT, read_run
from .against import fitting, share_a_run
from .chain import Findings, judge_cells
from .files import ContentFiles, read_small
from .model import CellStatus, ChainCell, ChainReport, Drift, GateVerdict, RankReport
from .part import gate_part
from .patterns import STATUS_FILE
from .provenance import run_record_name
from .verdict import Question, judge_content, read_reports

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
_LEAST_BAD = (
    CellStatus.PASSED,
    CellStatus.UNAVAILABLE,
    CellStatus.SKIPPED,
    CellStatus.MISSING,
    CellStatus.FAILED,
)


@dataclass(frozen=True)
class Judged:
    """What one environment came to: its chain, judged anew, and the reports of its ranks.

    `changes` are the digests of the tracked changes that ranks ran with: None of a tree without
    any, `""` of one whose changes are not known.
    """

    name: str
    chain: ChainReport
    reports: Mapping[int, RankReport]
    changes: frozenset[str | None] = frozenset()


@dataclass(frozen=True)
class Merged:
    """All environments together; `sources` names those in which a passed cell passed."""

    chain: ChainReport
    sources: Mapping[str, tuple[str, ...]]
    environments: tuple[Judged, ...]

    def to_json(self) -> dict[str, object]:
        """Give the chain's document, with the environments beside it and named at each cell."""
        document = self.chain.to_json()
        document["cells"] = [
            {**cell.to_json(), "environments": list(self.sources.get(cell.id, ()))}
            for cell in self.chain.cells
        ]
        document["environments"] = {each.name: _described(each) for each in self.environments}
        return document


def _described(judged: Judged) -> dict[str, object]:
    runs = {str(rank): report.provenance.to_json() for rank, report in judged.reports.items()}
    statuses = {cell.id: cell.status.value for cell in judged.chain.cells}
    return {
        "verdict": judged.chain.verdict.value,
        "cells": statuses,
        "runs": runs,
        "reports": dict(judged.chain.reports),
    }


def judge_environment(
    name: str, target: Path, *, manifest: Path | None = None, predecessor: Path | None = None
) -> Judged:
    """Judge the folder or zip of one environment. Raises Unusable for what cannot be judged.

    `manifest` says where the manifest lies, which counts where this environment ran the same.
    """
    from ..content.open import open_content

    with open_content(target) as content:
        folder = target if target.is_dir() else None
        part = gate_part(content)
        chain = judge_content(Question(part, folder, fitting(part, manifest), predecessor))
        reports = read_reports(part)[0]
        return Judged(name, chain, reports, _changes(part, reports))


def _changes(content: Content, reports: Mapping[int, RankReport]) -> frozenset[str | None]:
    """Read from the run records which changes to tracked files each rank ran with."""
    files = ContentFiles(content, "")
    found: set[str | None] = set()
    for rank, report in reports.items():
        if report.provenance.dirty is not True:
            if report.provenance.dirty is False:
                found.add(None)
            continue
        name = run_record_name(rank)
        try:
            record = read_run(read_small(files, name, LIMIT), name)
        except (ReefError, KeyError):
            found.add("")
            continue
        found.add("" if record.repository_changed else record.diff_sha256 or "")
    return frozenset(found)


def merge(environments: Sequence[Judged]) -> Merged:
    """Merge environments of one gate. Raises Unusable for fewer than two, and for bad names."""
    _check_names(environments)
    findings = Findings()
    _check_identity(environments, findings)
    first = environments[0].chain
    ids = [cell.id for cell in first.cells]
    for judged in environments:
        if [cell.id for cell in judged.chain.cells] != ids:
            findings.failed.append(f"Environment `{judged.name}` has other cells.")
    ids = list(dict.fromkeys(c.id for judged in environments for c in judged.chain.cells))
    merged = [_cell(each, environments, findings) for each in ids]
    cells = tuple(cell for cell, _ in merged)
    world = 1 if first.topology is None else first.topology.world_size
    judge_cells(cells, world, findings)
    if not cells:
        findings.incomplete.append("There is no cell, which is no pass.")
    for judged in environments:
        _add_the_rest(judged, world, findings)
    chain = replace(
        first,
        cells=cells,
        verdict=findings.verdict,
        reasons=findings.reasons,
        notes=tuple(findings.notes),
        first_drift=_first_drift(environments, ids),
        ranks=tuple(sorted({rank for judged in environments for rank in judged.chain.ranks})),
        commit=_same([judged.chain.commit for judged in environments]),
        tree=_same([judged.chain.tree for judged in environments]),
        dirty=_worst_dirty([judged.chain.dirty for judged in environments]),
        reports={
            f"{judged.name}/{name}": sha256
            for judged in environments
            for name, sha256 in judged.chain.reports.items()
        },
    )
    return Merged(chain, {cell.id: names for cell, names in merged}, tuple(environments))


def _check_names(environments: Sequence[Judged]) -> None:
    names = [judged.name for judged in environments]
    if len(names) < 2:
        raise Unusable("There is nothing to merge.", remedy="Name two environments or more.")
    for name in names:
        if _NAME.fullmatch(name) is None:
            raise Unusable(
                f"`{printable(name[:80])}` cannot name an environment.",
                remedy="Use letters, digits, dots, dashes: `vllm`, `sglang-0.5`.",
            )
    if len(set(names)) != len(names):
        raise Unusable("Two environments have one name.", remedy="Give each a name of its own.")


def _check_identity(environments: Sequence[Judged], findings: Findings) -> None:
    """Check that all are of one gate, one configuration, one code, one topology, one history."""
    first = environments[0]
    for other in environments[1:]:
        for what, name in (
            ("stage", "stage"),
            ("configuration", "config_fingerprint"),
            ("commit", "commit"),
            ("tree", "tree"),
            ("topology", "topology"),
            ("predecessor", "predecessor"),
        ):
            if getattr(first.chain, name) != getattr(other.chain, name):
                findings.failed.append(
                    f"Environments `{first.name}` and `{other.name}` have not the same {what}."
                )
    manifests = {r.manifest_sha256 for judged in environments for r in judged.reports.values()}
    if len(manifests) > 1:
        findings.failed.append("The environments ran different manifests.")
    changes = frozenset[str | None]().union(*(judged.changes for judged in environments))
    if len(changes) > 1 or "" in changes:
        findings.failed.append(
            "Tracked files had changes, and it is not known that all environments had the same."
            if "" in changes
            else "The environments ran with different changes to tracked files."
        )
    for one, other in combinations(environments, 2):
        if share_a_run(one.reports.values(), other.reports.values()):
            findings.incomplete.append(
                f"Environments `{one.name}` and `{other.name}` name the same execution: one is "
                "a copy of the other."
            )


def _cell(
    each: str, environments: Sequence[Judged], findings: Findings
) -> tuple[ChainCell, tuple[str, ...]]:
    """Merge one cell: a failure anywhere fails, a pass counts where nothing contradicts it."""
    found = [
        (judged, cell) for judged in environments for cell in judged.chain.cells if cell.id == each
    ]
    failed = [(judged, cell) for judged, cell in found if cell.status is CellStatus.FAILED]
    passed = [(judged, cell) for judged, cell in found if cell.status is CellStatus.PASSED]
    names = tuple(judged.name for judged, _ in passed)
    if failed:
        judged, cell = failed[0]
        also = f" (it passed in {', '.join(names)})" if names else ""
        return replace(cell, reason=f"in {judged.name}: {cell.reason}{also}"), ()
    if not passed:
        worst = max(found, key=lambda one: _LEAST_BAD.index(one[1].status))[1]
        reasons = "; ".join(f"in {judged.name}: {cell.reason}" for judged, cell in found)
        return replace(worst, reason=reasons), ()
    conflict = _conflict(each, [judged for judged, _ in passed])
    if conflict is not None:
        return ChainCell(each, CellStatus.FAILED, conflict), ()
    for judged, cell in found:
        if cell.status is not CellStatus.PASSED:
            findings.note(
                f"Cell `{printable(each)}` passed in {', '.join(names)}; in {judged.name} it was "
                f"{cell.status.value}: {cell.reason}."
            )
    return ChainCell(each, CellStatus.PASSED, compared=max(c.compared for _, c in passed)), names


def _conflict(each: str, passed: Sequence[Judged]) -> str | None:
    """Say where two environments in which a cell passed left different artifacts."""
    first = passed[0]
    ours = _artifacts(first, each)
    for other in passed[1:]:
        theirs = _artifacts(other, each)
        different = sorted(key for key in {*ours, *theirs} if ours.get(key) != theirs.get(key))
        if different:
            rank, name = different[0]
            return (
                f"it passed in {first.name} and {other.name} with different artifacts: "
                f"{printable(name)} on rank {rank}"
            )
    return None


def _artifacts(judged: Judged, each: str) -> dict[tuple[int, str], str]:
    """Give the digests of a cell's artifacts by rank and name, but for what it said of itself."""
    return {
        (rank, artifact.name): artifact.sha256
        for rank, report in judged.reports.items()
        for cell in report.cells
        if cell.id == each
        for artifact in cell.artifacts
        if artifact.name != STATUS_FILE
    }


def _add_the_rest(judged: Judged, world: int, findings: Findings) -> None:
    """Add what speaks against an environment as a whole, beside its cells."""
    of_cells = Findings()
    judge_cells(judged.chain.cells, world, of_cells)
    rest = [each for each in judged.chain.reasons if each not in of_cells.reasons]
    failed = judged.chain.verdict is GateVerdict.FAILED
    unexplained = not rest and failed and not of_cells.failed
    if unexplained or (not rest and not judged.chain.passed and not of_cells.reasons):
        rest = ["It is no pass, and does not say why."]
    for text in rest:
        worst = failed and not of_cells.failed
        (findings.failed if worst else findings.incomplete).append(f"{judged.name}: {text}")
    for note in judged.chain.notes:
        findings.note(f"{judged.name}: {note}")


def _first_drift(environments: Sequence[Judged], ids: Sequence[str]) -> Drift | None:
    """Give the first divergence by the order of the cells; of equals, that of the first named."""
    found = [j.chain.first_drift for j in environments if j.chain.first_drift is not None]
    place = {each: index for index, each in enumerate(ids)}
    return min(found, key=lambda drift: place.get(drift.cell, len(ids)), default=None)


def _same(values: Sequence[str | None]) -> str | None:
    return values[0] if len(set(values)) == 1 else None


def _worst_dirty(values: Sequence[bool | None]) -> bool | None:
    if any(value is True for value in values):
        return True
    return None if any(value is None for value in values) else False
