"""What `reef-archive gate` prints: a table of the cells and one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from ..provenance.gate.model import CellStatus, ChainReport, Drift
from ..records.names import printable
from .frame import counted, table

_MOST = 40


def report(chain: ChainReport, more: Sequence[str], tests: int = 0) -> str:
    """Say what became of the cells, what diverged first, and what it comes to.

    `tests` is the number of tests that passed beside the cells.
    """
    lines = [_cells(chain), ""]
    if chain.first_drift is not None:
        lines.append(_drift(chain.first_drift))
    told = {CellStatus.FAILED, CellStatus.MISSING, CellStatus.UNAVAILABLE, CellStatus.SKIPPED}
    of_cells = sum(cell.status in told for cell in chain.cells)
    others = [reason for reason in chain.reasons if not reason.startswith("Cell `")]
    lines.extend(others[:_MOST])
    if len(others) > _MOST:
        lines.append(f"… and {counted(len(others) - _MOST, 'more reason')}.")
    lines.extend(f"Note: {note}" for note in chain.notes[:_MOST])
    lines.extend(more)
    lines.append(_sentence(chain, of_cells, tests))
    return "\n".join(lines)


def _cells(chain: ChainReport) -> str:
    rows = [(cell.id, cell.status.value, f"{cell.compared:,}", "") for cell in chain.cells]
    lines = table(("CELL", "STATUS", "COMPARED", ""), rows).split("\n")
    # Reasons are fit to print already: what a table escapes would be escaped twice.
    why = ["WHY", *(_why(cell.reason, cell.rank, chain) for cell in chain.cells)]
    return "\n".join(f"{line}{text}".rstrip() for line, text in zip(lines, why, strict=True))


def _why(reason: str | None, rank: int | None, chain: ChainReport) -> str:
    if reason is None:
        return ""
    reason = reason if reason.isprintable() else printable(reason)
    several = chain.topology is not None and chain.topology.world_size > 1
    return f"rank {rank}: {reason}" if several and rank is not None else reason


def _drift(drift: Drift) -> str:
    where = [f"stage {printable(drift.stage)}", f"cell {printable(drift.cell)}"]
    if drift.rank is not None:
        where.append(f"rank {drift.rank}")
    if drift.layer is not None:
        where.append(f"layer {drift.layer}")
    where.extend(printable(part) for part in (drift.family, drift.node) if part)
    if drift.tensor is not None:
        where.append(f"tensor {printable(drift.tensor)}")
    return f"First divergence: {', '.join(where)}."


def _sentence(chain: ChainReport, of_cells: int, tests: int) -> str:
    cells = counted(len(chain.cells), "cell")
    ranks = counted(len(chain.ranks), "rank")
    stage = printable(chain.stage)
    if chain.passed:
        compared = sum(cell.compared for cell in chain.cells)
        what = counted(compared, "artifact") + " bitwise equal" if compared else "nothing compared"
        what += f", {counted(tests, 'test')} passed" if tests else ""
        return f"{chain.verdict.value}: stage {stage}, {cells} on {ranks}, {what}."
    if not of_cells:
        return f"{chain.verdict.value}: stage {stage}, no cell failed, but the run does not count."
    return f"{chain.verdict.value}: stage {stage}, {of_cells} of {cells} did not pass."
