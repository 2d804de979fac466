"""Say which ways to the bytes of a process's files are open, and what closes the others.

`examine` gathers and probes; `diagnose` is a pure function of what was found. What is open is
decided by the probes alone: the facts only explain a refusal.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass

from ...errors import NotPermitted, ProcessGone
from ..process import Life, Process
from ..procfs import is_hidden
from ..routes import Route
from .causes import Cause, explain
from .probes import Census, Probes, Step, census, own_child, probe
from .remedies import remedy_for
from .rights import CallerFacts, Capability, TargetFacts, caller_facts, target_facts

SCHEMA = "reefkit.doctor/1"


@dataclass(frozen=True)
class Row:
    """One route: open or not, why, and what to do. A cause may also qualify an open one."""

    route: Route
    open: bool
    cause: Cause | None
    explanation: str
    remedy: str | None

    def to_json(self) -> dict[str, object]:
        """Give one of the `routes` of `doctor --json`."""
        return {
            "route": self.route.value,
            "open": self.open,
            "cause": self.cause.value if self.cause else None,
            "explanation": self.explanation,
            "remedy": self.remedy,
        }


@dataclass(frozen=True)
class Report:
    """What `doctor` found. `probes` is empty where there was nothing to try."""

    caller: CallerFacts
    target: TargetFacts
    probes: Probes
    rows: tuple[Row, ...]
    processes: Census

    @property
    def best_route(self) -> Route | None:
        """The best route that is open."""
        return next((row.route for row in self.rows if row.open), None)

    def to_json(self) -> dict[str, object]:
        """Give the document of `doctor --json`; `target` is null where none was asked for."""
        best = self.best_route
        return {
            "schema": SCHEMA,
            "caller": self.caller.to_json(),
            "target": None if self.target.own_child else self.target.to_json(),
            "probes": self.probes.to_json(),
            "routes": [row.to_json() for row in self.rows],
            "best_route": best.value if best else None,
            "processes": vars(self.processes),
        }


def examine(pid: int | None) -> Report:
    """Look at this caller's ways into process `pid`, or into a child of its own.

    Raises ProcessGone where there is no such process or it ends meanwhile, Unusable for a thread.
    """
    caller = caller_facts()
    left_out = [os.getpid()]
    with contextlib.ExitStack() as stack:
        try:
            process = stack.enter_context(own_child() if pid is None else Process(pid))
            target = target_facts(process, caller, own_child=pid is None)
            has_memory = target.life in (Life.RUNNING, Life.LEADER_EXITED)
            tried = probe(process) if has_memory and not target.kernel_thread else Probes({})
            left_out += [process.pid] if pid is None else []
        except (NotPermitted, PermissionError, ProcessGone):
            if pid is None or not is_hidden(pid):
                raise
            target, tried = TargetFacts(pid, hidden=True), Probes({})
        rows = diagnose(caller, target, tried)
        return Report(caller, target, tried, rows, census(left_out))


def diagnose(caller: CallerFacts, target: TargetFacts, probes: Probes) -> tuple[Row, ...]:
    """Judge each route, best first."""
    closed = _what_closes_all(caller, target, probes)
    judged: Mapping[Route, tuple[bool, Cause | None]]
    if closed is not None:
        judged = {route: (False, closed) for route in Route}
    else:
        judged = {
            Route.MAP_FILES: _map_files(caller, probes),
            Route.FD: _descriptors(probes),
            Route.MEMORY: _memory(caller, target, probes),
        }
    return tuple(
        Row(
            route,
            is_open,
            cause,
            explain(route, cause, caller, target, probes),
            remedy_for(cause, caller, target, probes),
        )
        for route, (is_open, cause) in judged.items()
    )


# --- causes ---


def _what_closes_all(caller: CallerFacts, target: TargetFacts, probes: Probes) -> Cause | None:
    if target.hidden:
        return Cause.HIDEPID
    if target.kernel_thread:
        return Cause.KERNEL_THREAD
    if target.life not in (Life.RUNNING, Life.LEADER_EXITED):
        return Cause.ZOMBIE
    for step in (Step.MAPS, Step.MAP_FILES_LINKS):
        if probes.failed(step):
            refused = probes.answers[step] in (errno.EACCES, errno.EPERM)
            return _why_refused(caller, target, probes) if refused else Cause.UNEXPECTED
    return None


def _why_refused(caller: CallerFacts, target: TargetFacts, probes: Probes) -> Cause:
    """Find the first check of `__ptrace_may_access` that fails, in the order of the checks."""
    traces_all = caller.has(Capability.CAP_SYS_PTRACE)
    if target.same_user_namespace is False and not (traces_all and caller.initial_user_namespace):
        return Cause.OTHER_USER_NAMESPACE
    if not traces_all:
        monitors = caller.has(Capability.CAP_PERFMON, Capability.CAP_SYS_ADMIN)
        if monitors and probes.works(Step.MAPS):
            return Cause.PERFMON_ONLY
        if {*target.uids[:3]} != {caller.uid} or {*target.gids[:3]} != {caller.gid}:
            return Cause.OTHER_USER
        if target.dumpable is False:
            return Cause.NOT_DUMPABLE
        if target.permitted & ~caller.effective:
            return Cause.MORE_CAPABILITIES
    reads_all = caller.has(Capability.CAP_DAC_READ_SEARCH, Capability.CAP_DAC_OVERRIDE)
    if not reads_all and target.files_owner not in (None, caller.uid):
        return Cause.PROC_FILES_OWNER
    if not traces_all and target.dumpable is None and not caller.confined:
        return Cause.NOT_DUMPABLE
    return Cause.SECURITY_MODULE


def _map_files(caller: CallerFacts, probes: Probes) -> tuple[bool, Cause | None]:
    if probes.works(Step.MAP_FILES_OPEN):
        return True, None
    if probes.failed(Step.MAP_FILES_LIST):
        missing = probes.answers[Step.MAP_FILES_LIST] == errno.ENOENT
        return False, Cause.NO_MAP_FILES if missing else Cause.SECURITY_MODULE
    if probes.failed(Step.MAP_FILES_STAT):
        return False, _why_no_link(caller, probes.answers[Step.MAP_FILES_STAT])
    if probes.failed(Step.MAP_FILES_OPEN):
        return False, _file_mode(probes.answers[Step.MAP_FILES_OPEN])
    return False, Cause.NOTHING_MAPPED


def _why_no_link(caller: CallerFacts, answer: int) -> Cause:
    if answer == errno.EPERM:
        if not caller.initial_user_namespace:
            return Cause.NOT_INITIAL_USER_NAMESPACE
        if not caller.has(Capability.CAP_CHECKPOINT_RESTORE, Capability.CAP_SYS_ADMIN):
            return Cause.MISSING_CAPABILITY
    return Cause.SECURITY_MODULE if answer in (errno.EPERM, errno.EACCES) else Cause.UNEXPECTED


def _descriptors(probes: Probes) -> tuple[bool, Cause | None]:
    if probes.works(Step.FD_OPEN):
        return True, None
    if probes.failed(Step.FD_LIST):
        return False, Cause.SECURITY_MODULE
    if probes.failed(Step.FD_OPEN):
        return False, _file_mode(probes.answers[Step.FD_OPEN])
    return False, Cause.NO_DESCRIPTOR


def _file_mode(answer: int) -> Cause:
    return Cause.FILE_MODE if answer in (errno.EACCES, errno.EPERM) else Cause.UNEXPECTED


def _memory(caller: CallerFacts, target: TargetFacts, probes: Probes) -> tuple[bool, Cause | None]:
    if probes.answers.get(Step.MAP_FILES_LIST) == errno.ENOENT:
        return False, Cause.NO_MAP_FILES
    yama = _yama(caller)
    mem, vm_readv = probes.works(Step.MEM), probes.works(Step.PROCESS_VM_READV)
    if not mem and not vm_readv:
        return False, yama or Cause.SECURITY_MODULE
    if not probes.works(Step.PAGEMAP):
        return True, Cause.NO_PAGE_MAP
    if target.own_child and yama is Cause.YAMA_DESCENDANTS:
        return True, yama
    return True, None if mem and vm_readv else Cause.ONLY_MEM if mem else Cause.ONLY_VM_READV


def _yama(caller: CallerFacts) -> Cause | None:
    """Tell which Yama rule holds for this caller: security/yama/yama_lsm.c."""
    if caller.yama_scope == 3:
        return Cause.YAMA_NOBODY
    if caller.has(Capability.CAP_SYS_PTRACE):
        return None
    return {1: Cause.YAMA_DESCENDANTS, 2: Cause.YAMA_CAPABILITY}.get(caller.yama_scope or 0)
