"""Fold what all ranks did into one verdict, and find the first divergence.

First is by order of execution: the order of the cells in the manifest, of the model over all ranks
(`place_in_model`: towers, layers, what is computed within a layer), of the artifacts in the cell
where their names say nothing of it, then the rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...records.names import printable
from ..finding import Finding, Gravity
from .model import CellResult, CellStatus, ChainCell, Drift, GateVerdict
from .place_in_model import order_of

_WORST = (
    CellStatus.FAILED,
    CellStatus.MISSING,
    CellStatus.UNAVAILABLE,
    CellStatus.SKIPPED,
    CellStatus.PASSED,
)
_SAID = {
    CellStatus.FAILED: "failed",
    CellStatus.MISSING: "is missing",
    CellStatus.UNAVAILABLE: "is unavailable",
    CellStatus.SKIPPED: "was skipped",
}


@dataclass
class Findings:
    """What speaks against a pass, as sentences fit to print; and what else should be known."""

    failed: list[str] = field(default_factory=lambda: list[str]())
    incomplete: list[str] = field(default_factory=lambda: list[str]())
    notes: list[str] = field(default_factory=lambda: list[str]())

    @property
    def verdict(self) -> GateVerdict:
        """Let the worst decide."""
        if self.failed:
            return GateVerdict.FAILED
        return GateVerdict.INCOMPLETE if self.incomplete else GateVerdict.PASSED

    @property
    def reasons(self) -> tuple[str, ...]:
        """Give every sentence once, the worst first."""
        return tuple(dict.fromkeys([*self.failed, *self.incomplete]))

    def take(self, found: Iterable[Finding]) -> None:
        """Take over what is wrong with the container itself, by its gravity."""
        for finding in found:
            if finding.gravity is Gravity.FAILED:
                self.failed.append(finding.diagnosis)
            elif finding.gravity is Gravity.NOTE:
                self.note(finding.diagnosis)
            else:
                self.incomplete.append(finding.diagnosis)

    def note(self, text: str) -> None:
        """Add a note, once."""
        if text not in self.notes:
            self.notes.append(text)


def fold_cells(
    ids: Sequence[str], ranks: Sequence[int], results: Mapping[int, Mapping[str, CellResult]]
) -> tuple[ChainCell, ...]:
    """Take the worst result of every cell over the ranks given; the first such is named."""
    return tuple(_fold(each, ranks, results) for each in ids)


def without_ranks(
    cells: Sequence[ChainCell], absent: Sequence[int], world: int
) -> tuple[ChainCell, ...]:
    """Let no cell pass while ranks gave no report."""
    if not absent:
        return tuple(cells)
    reason = f"{absent_ranks(absent, world)} gave no report"
    return tuple(
        replace(cell, status=CellStatus.MISSING, reason=reason, rank=absent[0])
        if cell.status is CellStatus.PASSED
        else cell
        for cell in cells
    )


def absent_ranks(absent: Sequence[int], world: int) -> str:
    """Name ranks that are not there, the first of many."""
    listed = ", ".join(map(str, absent[:8])) + (", …" if len(absent) > 8 else "")
    return f"{'rank' if len(absent) == 1 else 'ranks'} {listed} of {world}"


def _fold(
    each: str, ranks: Sequence[int], results: Mapping[int, Mapping[str, CellResult]]
) -> ChainCell:
    missing = CellResult(each, CellStatus.MISSING, "no report has it")
    found = [(rank, results.get(rank, {}).get(each, missing)) for rank in ranks]
    if not found:
        return ChainCell(each, CellStatus.MISSING, missing.reason)
    rank, worst = min(found, key=lambda one: _WORST.index(one[1].status))
    compared = sum(one.compared for _, one in found)
    if worst.status is CellStatus.PASSED:
        return ChainCell(each, worst.status, compared=compared)
    return ChainCell(each, worst.status, worst.reason, rank, compared)


def judge_cells(cells: Sequence[ChainCell], ranks: int, findings: Findings) -> None:
    """Add what the cells say to the findings."""
    for cell in cells:
        if cell.status is CellStatus.PASSED:
            continue
        where = f" on rank {cell.rank}" if cell.rank is not None and ranks > 1 else ""
        text = f"Cell `{printable(cell.id)}` {_SAID[cell.status]}{where}: {cell.reason}."
        failed = cell.status is CellStatus.FAILED
        (findings.failed if failed else findings.incomplete).append(text)


def first_drift(
    stage: str, ids: Sequence[str], results: Mapping[int, Mapping[str, CellResult]]
) -> Drift | None:
    """Find the first divergence; None when there is none."""
    for each in ids:
        found = [
            ((order_of(one), rank), one)
            for rank, cells in results.items()
            if each in cells
            for one in cells[each].differences
        ]
        if not found:
            continue
        (_, rank), first = min(found, key=lambda one: one[0])
        place = first.place
        return Drift(
            stage=stage,
            cell=each,
            rank=rank,
            layer=place.layer if place else None,
            family=place.family if place else None,
            node=place.node if place else None,
            tensor=first.tensor,
            artifact=first.artifact,
            element=first.element,
            reason=first.reason,
        )
    return None
