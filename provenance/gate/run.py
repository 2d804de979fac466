"""Run one rank's cells, in order, and write its report."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType

from ...errors import DestinationExists, ReefError, Unusable
from ...records.names import printable
from ..evidence.repository import RepositoryState, repository_state
from ..evidence.run_record import OpenRun, RunStatus, start_run
from .child import run_command
from .files import FolderFiles
from .held_references import HeldReferences, refuse_own_references
from .judge_cell import Ran, judge_cell
from .judge_rank import cell_folder, placeholders
from .kept import difference, environment_now, kept_cells
from .manifest import Cell, Manifest
from .model import CellResult, CellStatus, ChainReport, Provenance, RankReport, Topology
from .out_folder import OutFolder, check_destination
from .patterns import filled
from .predecessor import COPY_NAME, Before, demand
from .recorder import CELL_VARIABLE, OUT_VARIABLE, GateRecorder
from .references import Reference, find_reference
from .topology import check_accepted
from .verdict import CHAIN_NAME, judge

Function = Callable[[GateRecorder], None]
_LEFT_OUT = "left out by --quick"


@dataclass(frozen=True)
class Plan:
    """What a rank is asked to do.

    `repository` is a folder of the code that is measured, else that of the manifest; `argv` the
    command line to record. `functions` stand for the commands of cells, by their ids, and `news`
    is told what happens.
    """

    manifest: Manifest
    out: Path
    topology: Topology
    rank: int
    repository: Path | None = None
    argv: tuple[str, ...] = ()
    quick: bool = False
    predecessor: Path | None = None
    force: bool = False
    functions: Mapping[str, Function] = field(default_factory=lambda: dict[str, Function]())
    news: Callable[[str], None] = lambda _: None


def run_cells(plan: Plan) -> RankReport:
    """Run this rank's cells and write `rank-N.json`; what an interrupted run ended is kept.

    Ended cells are kept only if manifest, commit (of a clean tree), topology and environment are
    the same, and the artifacts still match. Raises VanishedCell, PredecessorRefused,
    DestinationExists, Unusable, before anything runs; a cell that goes wrong is in the report.
    """
    manifest = plan.manifest
    manifest.check_pin()
    check_accepted(plan.topology, manifest.topologies, manifest.stage)
    if plan.rank not in range(plan.topology.world_size):
        raise Unusable(f"There is no rank {plan.rank} among {plan.topology.world_size}.")
    state = RepositoryState()
    if manifest.predecessor is not None or plan.out.exists():  # git takes longer than small cells
        state = repository_state(plan.repository or manifest.folder or Path.cwd())
    before = demand(manifest, plan.predecessor, state.commit)
    refuse_own_references(manifest, plan.out, placeholders(plan.rank, plan.topology.world_size))
    out = OutFolder(plan.out, plan.rank)
    here = Provenance(None, state.commit, state.tree, state.dirty, environment_now())
    with out.alone():
        return _run(plan, out, before, _blank(plan, before, here))


def _run(plan: Plan, out: OutFolder, before: Before | None, report: RankReport) -> RankReport:
    """Keep what may be kept, run the rest, and write the report."""
    manifest = plan.manifest
    finished = out.earlier(finished=True) if not plan.force else None
    other = None if finished is None else difference(finished, report)
    if other is not None:
        raise DestinationExists(
            f"{printable(os.fsencode(plan.out))} holds a finished run of rank {plan.rank}, of "
            f"{other}.",
            remedy="Name another --out, or give --force to run anew here.",
        )
    check_destination(out, manifest, force=plan.force)
    if before is not None:
        out.keep_once(COPY_NAME, before.chain, force=plan.force)
    earlier = finished or out.earlier(finished=False)
    kept: dict[str, CellResult] = {}
    if earlier is not None:
        other = difference(earlier, report)
        if other is None:
            kept = kept_cells(manifest, earlier, out)
        else:
            plan.news(f"What an interrupted run left is of {other}: all runs anew.")
    if kept:
        plan.news(f"{len(kept)} of {len(manifest.cells)} cells were ended by an earlier run.")
    if finished is not None and len(kept) == len(manifest.cells):
        return replace(finished, cells=tuple(kept[cell.id] for cell in manifest.cells))
    out.retire_run(record=earlier is not None or plan.force)
    with _terminable(), _start(plan, before) as run:
        report = replace(report, provenance=run.record.provenance())
        runner = _Runner(plan, out, kept, run.execution_id)
        report = runner.run(report)
        record = run.finish(*_ending(report))
    report = replace(report, provenance=record.provenance(run.sha256))
    out.write_json(out.report_name, report.to_json())
    out.remove(f"{out.report_name}.partial")
    return report


def _start(plan: Plan, before: Before | None) -> OpenRun:
    path = plan.manifest.path
    return start_run(
        plan.out,
        plan.argv,
        repository=plan.repository or plan.manifest.folder,
        topology=plan.topology,
        rank=plan.rank,
        inputs=[] if path is None else [path],
        predecessor=None if before is None else before.run,
    )


def _ending(report: RankReport) -> tuple[RunStatus, str | None]:
    """Say how the run ended: as its worst cells did, all of which are named."""
    for status in (CellStatus.FAILED, CellStatus.UNAVAILABLE, CellStatus.SKIPPED):
        found = [f"cell {each.id}: {each.reason}" for each in report.cells if each.status is status]
        if found:
            failed = status is CellStatus.FAILED
            return RunStatus.FAILED if failed else RunStatus.UNAVAILABLE, "; ".join(found)
    return RunStatus.PASSED, None


def complete(plan: Plan) -> ChainReport | None:
    """Judge the chain once the reports of all ranks are there, and write `chain.json`.

    Gives None while reports are missing. Whoever comes last writes it; two may, and write the same.
    """
    out = OutFolder(plan.out, plan.rank)
    if len(out.reports()) < plan.topology.world_size:
        return None
    chain = judge(plan.out, manifest=plan.manifest.path, predecessor=plan.predecessor)
    out.write_json(CHAIN_NAME, chain.to_json())
    return chain


def _blank(plan: Plan, before: Before | None, provenance: Provenance) -> RankReport:
    manifest = plan.manifest
    path = None
    if manifest.path is not None:
        with contextlib.suppress(ValueError):  # another drive, on Windows
            path = os.path.relpath(manifest.path, plan.out)
    return RankReport(
        stage=manifest.stage,
        config_fingerprint=manifest.config_fingerprint,
        rank=plan.rank,
        topology=plan.topology,
        cells=(),
        provenance=provenance,
        manifest_sha256=manifest.sha256,
        manifest_path=path,
        quick=plan.quick,
        predecessor=None if before is None else before.record,
    )


def _files(out: OutFolder, cell: str) -> FolderFiles:
    return FolderFiles(out.path / cell_folder(cell, out.rank))


class _Runner:
    """Runs cell after cell, and keeps what has ended in `rank-N.json.partial`."""

    def __init__(
        self, plan: Plan, out: OutFolder, kept: Mapping[str, CellResult], execution: str
    ) -> None:
        self._plan = plan
        self._out = out
        self._kept = kept
        self._values = placeholders(plan.rank, plan.topology.world_size)
        self._execution = execution
        waiting = [cell for cell in plan.manifest.cells if not self._is_known(cell)]
        self._references = HeldReferences(waiting, self._values, plan.manifest.folder)

    def _is_known(self, cell: Cell) -> bool:
        return cell.id in self._kept or (self._plan.quick and not cell.quick)

    def run(self, report: RankReport) -> RankReport:
        cells = self._plan.manifest.cells
        self._save(report)
        for number, cell in enumerate(cells, 1):
            if cell.id in self._kept:
                result = self._kept[cell.id]
            elif self._is_known(cell):
                result = CellResult(cell.id, CellStatus.SKIPPED, _LEFT_OUT)
            else:
                self._plan.news(f"Cell {number} of {len(cells)}: {cell.id}")
                self._out.remove(CHAIN_NAME)
                result = self._run(cell)
            self._references.ended(result)
            report = replace(report, cells=(*report.cells, result))
            self._save(report)
        return report

    def _save(self, report: RankReport) -> None:
        self._out.write_json(f"{self._out.report_name}.partial", report.to_json())

    def _run(self, cell: Cell) -> CellResult:
        attempt = self._out.begin_cell(cell.id, self._execution)
        function = self._plan.functions.get(cell.id)
        if function is not None:
            function(GateRecorder(attempt))
            ran = Ran(0)
        else:
            ran = self._command(cell, attempt)
        try:
            files = FolderFiles(self._out.end_cell(cell.id, attempt))
        except ReefError as error:
            reason = f"what it left cannot be used: {error.message.rstrip('.')}"
            return CellResult(cell.id, CellStatus.FAILED, reason, exit_code=ran.exit_code)
        found: list[Reference | None] = [None]

        def reference() -> Reference | None:
            found[0] = self._reference(cell)
            return found[0]

        result = judge_cell(cell, ran, files, self._values, reference)
        return self._references.check(cell, result, found[0])

    def _command(self, cell: Cell, attempt: Path) -> Ran:
        where = (self._plan.manifest.folder or Path.cwd()).absolute()
        out = str(attempt.absolute())
        values = {**self._values, "out": out, "python": sys.executable, "manifest_dir": str(where)}
        argv = [filled(word, values) for word in cell.command]
        environment = {
            **os.environ,
            "RANK": str(self._plan.rank),
            "WORLD_SIZE": str(self._plan.topology.world_size),
            OUT_VARIABLE: out,
            CELL_VARIABLE: cell.id,
        }
        return run_command(
            argv,
            folder=where,
            environment=environment,
            timeout_s=cell.timeout_s,
            logs=self._out.logs(cell.id),
        )

    def _reference(self, cell: Cell) -> Reference | None:
        return find_reference(
            cell,
            self._values,
            self._plan.manifest.folder,
            lambda each: _files(self._out, each),
            {},
        )


@contextlib.contextmanager
def _terminable() -> Generator[None]:
    """Let SIGTERM, which torchrun sends, end the command of a cell as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
