"""Save files that processes still hold: each by the best route, read twice, judged, made durable.

All inodes are opened before the first byte is read, so a process that exits meanwhile loses
nothing on the file routes.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from ..errors import NotPermitted, ProcessGone
from ..records.names import decoded
from .process import Process
from .routes import Wanted
from .save.file_route import facts_of_inode, recover_from_file
from .save.job import Job, Listener
from .save.memory_proof import MemoryView
from .save.memory_route import facts_of_memory, recover_from_memory
from .save.outputs import Outputs
from .save.recovery import BlockedFile, RecoveredFile
from .save.writers import find_writers
from .scan import Candidate
from .sources import FileSource

_JOBS_MAX = 4
_DOCTOR = "`reef-recover doctor --pid {}` says what blocks each route and how to open it."


@dataclass(frozen=True)
class Request:
    """What to save and how; `sources` are the inodes that could be opened."""

    candidates: tuple[Candidate, ...]
    sources: Mapping[tuple[int, int], FileSource]
    processes: Mapping[int, Process]
    wanted: Wanted = Wanted.AUTO
    expected_sha256: str | None = None
    against_memory: bool = False


@dataclass(frozen=True)
class Dump:
    """What was saved, and what could not be."""

    files: tuple[RecoveredFile, ...]
    blocked: tuple[BlockedFile, ...]
    processes_not_searched: int


@dataclass(frozen=True)
class _Way:
    """How one candidate will be read: from its inode, or as a process sees it."""

    candidate: Candidate
    file: FileSource | None
    memory: MemoryView | None
    from_memory: bool

    def facts(self) -> dict[str, str]:
        """Tell the source from every other."""
        if self.from_memory and self.memory:
            return facts_of_memory(self.candidate, self.memory)
        return facts_of_inode(self.file) if self.file else {}


def dump(request: Request, outputs: Outputs, listener: Listener) -> Dump:
    """Save every candidate; several at once where the machine has the cores and order is free.

    A file that cannot be read is reported and keeps no other from being saved. Raises
    NotPermitted when none can be read, DestinationExists and Unusable before anything is written,
    and OSError when the destination fails.
    """
    ways, blocked = _ways(request)
    if not ways:
        raise NotPermitted(blocked[0].reason, remedy=_DOCTOR.format(request.candidates[0].pid))
    search = find_writers({(w.candidate.device, w.candidate.inode): w.candidate.name for w in ways})
    stopped = threading.Event()
    jobs = [
        Job(
            candidate=way.candidate,
            output=outputs.open(way.candidate.name, way.facts()),
            listener=listener,
            stopped=stopped,
            expected_sha256=request.expected_sha256,
            is_only_file=len(ways) == 1,
            writers=search.writers[way.candidate.device, way.candidate.inode],
        )
        for way in ways
    ]
    results = _run(request, ways, jobs, in_order=outputs.in_order)
    files = tuple(result for result in results if isinstance(result, RecoveredFile))
    lost = tuple(result for result in results if isinstance(result, BlockedFile))
    return Dump(files, (*blocked, *lost), search.hidden_processes)


def _ways(request: Request) -> tuple[list[_Way], list[BlockedFile]]:
    ways: list[_Way] = []
    blocked: list[BlockedFile] = []
    for candidate in request.candidates:
        file = request.sources.get((candidate.device, candidate.inode))
        if request.wanted is not Wanted.MEMORY and file is not None:
            memory = _memory_view(request, candidate)[0] if request.against_memory else None
            ways.append(_Way(candidate, file, memory, from_memory=False))
            continue
        refusal = candidate.blocked_by or "Neither a mapping nor a descriptor leads to the file."
        if request.wanted is not Wanted.FILE:
            memory, refusal = _memory_view(request, candidate)
            if memory is not None:
                ways.append(_Way(candidate, file, memory, from_memory=True))
                continue
        blocked.append(BlockedFile(decoded(candidate.name), refusal))
    return ways, blocked


def _memory_view(request: Request, candidate: Candidate) -> tuple[MemoryView | None, str]:
    """Find a process that maps the file and whose memory may be read."""
    refusal = "No process maps the file: it is only held open."
    for holding in candidate.holdings:
        process = request.processes.get(holding.pid)
        if process is not None and holding.mappings:
            view = MemoryView(process, holding)
            try:
                with view.open(None):
                    return view, ""
            except (NotPermitted, ProcessGone) as error:
                refusal = error.message
    return None, refusal


def _run(
    request: Request, ways: Sequence[_Way], jobs: Sequence[Job], *, in_order: bool
) -> list[RecoveredFile | BlockedFile]:
    cores = len(os.sched_getaffinity(0))
    workers = 1 if in_order else max(1, min(_JOBS_MAX, len(jobs), cores // 2))
    if workers == 1:
        return [_save(request, way, job) for way, job in zip(ways, jobs, strict=True)]
    with ThreadPoolExecutor(workers) as pool:
        running = [pool.submit(_save, request, *pair) for pair in zip(ways, jobs, strict=True)]
        try:
            return [future.result() for future in running]
        except BaseException:
            for job, future in zip(jobs, running, strict=True):
                job.stopped.set()
                future.cancel()
            raise


def _save(request: Request, way: _Way, job: Job) -> RecoveredFile | BlockedFile:
    try:
        if not way.from_memory and way.file is not None:
            memory = way.memory if request.against_memory else None
            if memory:
                _warn_of_cost(job, memory)
            return recover_from_file(job, way.file, memory)
        if way.memory is not None:
            _warn_of_cost(job, way.memory)
            return recover_from_memory(job, way.memory, way.file, way.candidate.path_size)
    except (NotPermitted, ProcessGone) as error:
        return BlockedFile(decoded(way.candidate.name), error.message)
    raise AssertionError("a way leads to a file or to memory")


def _warn_of_cost(job: Job, memory: MemoryView) -> None:
    mapped = sum(m.stop - m.start for m in memory.holding.mappings)
    job.listener.note(
        f"Reading the memory of process {memory.process.pid} makes up to {mapped:,} bytes of it "
        "resident there; a tight memory limit may not allow that."
    )
