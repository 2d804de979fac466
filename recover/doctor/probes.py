"""Try each thing that recovery does to a process, and note what the kernel answers.

Every probe is the real operation, on a scale that costs the target nothing: one open, one byte.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import stat
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from ...errors import NotPermitted, ProcessGone
from .. import linux
from ..mappings import FileMapping, OpenFile
from ..process import Process
from ..tree import all_pids
from .rights import is_kernel_thread

_T = TypeVar("_T")


class Step(str, Enum):
    """What is tried, in this order. `map_files_stat` takes an O_PATH handle and stats it."""

    MAPS = "maps"
    MAP_FILES_LIST = "map_files_list"
    MAP_FILES_LINKS = "map_files_links"
    MAP_FILES_STAT = "map_files_stat"
    MAP_FILES_OPEN = "map_files_open"
    FD_LIST = "fd_list"
    FD_OPEN = "fd_open"
    MEM = "mem"
    PROCESS_VM_READV = "process_vm_readv"
    PAGEMAP = "pagemap"


@dataclass(frozen=True)
class Probes:
    """The error number of each step, 0 where it worked; a step that is missing was not tried."""

    answers: Mapping[Step, int]

    def works(self, step: Step) -> bool:
        """Tell whether the step was tried and worked."""
        return self.answers.get(step) == 0

    def failed(self, step: Step) -> bool:
        """Tell whether the step was tried and did not work."""
        return self.answers.get(step, 0) != 0

    def to_json(self) -> dict[str, str | None]:
        """Give `ok`, the name of the error, or None for what was not tried."""
        return {step.value: _shown(self.answers.get(step)) for step in Step}


def probe(target: Process) -> Probes:
    """Try everything on a process that has memory. Raises ProcessGone when it ends meanwhile."""
    trial = _Trial(target)
    maps = trial.attempt(Step.MAPS, lambda: _read(target, "maps"))
    trial.attempt(Step.MAP_FILES_LIST, lambda: _list(target, "map_files"))
    trial.open_a_mapping(trial.attempt(Step.MAP_FILES_LINKS, target.mappings) or ())
    trial.open_a_descriptor(trial.attempt(Step.FD_LIST, target.open_files) or ())
    address = resident_address(maps or b"")
    trial.attempt(Step.MEM, lambda: _read_mem(target, address))
    trial.attempt(Step.PROCESS_VM_READV, lambda: _read_by_system_call(target, address))
    trial.attempt(Step.PAGEMAP, lambda: os.close(target.open_memory("pagemap")))
    return Probes(trial.answers)


def resident_address(maps: bytes) -> int | None:
    """Choose an address to read from: the stack's last byte, else the first code; None if neither.

    exec writes the arguments to the end of the stack, so that this page is the process's own and
    present already. Any other page might have to be made resident, in the target's name.
    """
    code: int | None = None
    for line in maps.splitlines():
        fields = line.split(None, 5)
        if len(fields) < 2:
            continue
        start, _, stop = fields[0].partition(b"-")
        if fields[5:] == [b"[stack]"]:
            return int(stop, 16) - 1
        if code is None and fields[1].startswith(b"r-x"):
            code = int(start, 16)
    return code


class _Trial:
    """Attempts on one process, and what came of them."""

    def __init__(self, target: Process) -> None:
        self.answers: dict[Step, int] = {}
        self._target = target

    def attempt(self, step: Step, action: Callable[[], _T]) -> _T | None:
        try:
            result = action()
        except NotPermitted as error:
            refusal = error.__context__
            self.answers[step] = _number(refusal) if isinstance(refusal, OSError) else errno.EACCES
        except ProcessLookupError:
            raise ProcessGone(f"Process {self._target.pid} ended while it was looked at.") from None
        except OSError as error:
            self.answers[step] = _number(error)
        else:
            self.answers[step] = 0
            return result
        return None

    def open_a_mapping(self, mappings: Sequence[FileMapping]) -> None:
        mapping = self._first_regular(mappings)
        if mapping is not None:
            self.attempt(Step.MAP_FILES_OPEN, lambda: os.close(self._target.open_mapped(mapping)))

    def _first_regular(self, mappings: Sequence[FileMapping]) -> FileMapping | None:
        for mapping in sorted(mappings, key=lambda m: _rank(m.name)):
            try:
                regular = _is_regular(self._target, f"map_files/{mapping.entry}")
            except FileNotFoundError:
                continue
            except OSError as error:
                self.answers[Step.MAP_FILES_STAT] = _number(error)
                return None
            if regular:
                self.answers[Step.MAP_FILES_STAT] = 0
                return mapping
        return None

    def open_a_descriptor(self, files: Sequence[OpenFile]) -> None:
        if files:
            number = min(files, key=lambda f: _rank(f.name)).number
            self.attempt(Step.FD_OPEN, lambda: os.close(self._target.open_descriptor(number)))


def _rank(name: bytes) -> int:
    """Put first what a recovery would ask for: its mode may refuse where a library's does not."""
    return 0 if name.endswith(b" (deleted)") else 1 if name.endswith(b".safetensors") else 2


def _number(error: OSError) -> int:
    return error.errno or errno.EIO


def _shown(answer: int | None) -> str | None:
    if answer is None:
        return None
    return errno.errorcode.get(answer, str(answer)) if answer else "ok"


def _read(target: Process, name: str) -> bytes:
    with open(target.open_memory(name), "rb") as file:
        return file.read()


def _list(target: Process, name: str) -> list[str]:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    fd = os.open(name, flags, dir_fd=target.memory_directory())
    try:
        return os.listdir(fd)
    finally:
        os.close(fd)


def _is_regular(target: Process, name: str) -> bool:
    fd = os.open(name, os.O_PATH | os.O_CLOEXEC, dir_fd=target.memory_directory())
    try:
        return stat.S_ISREG(os.fstat(fd).st_mode)
    finally:
        os.close(fd)


def _read_mem(target: Process, address: int | None) -> None:
    fd = target.open_memory("mem")
    try:
        if address is not None:
            os.pread(fd, 1, address)
    finally:
        os.close(fd)


def _read_by_system_call(target: Process, address: int | None) -> None:
    # Where the main thread has exited, only another thread's id leads to the memory.
    task = os.readlink(f"/proc/self/fd/{target.memory_directory()}").rpartition("/")[2]
    # Permission is asked before the address is looked at (mm/process_vm_access.c): where maps was
    # refused and no address is known, any will do.
    linux.read_process_memory(int(task), address or 0, memoryview(bytearray(1)))


# --- a process of one's own ---


@contextlib.contextmanager
def own_child() -> Generator[Process]:
    """Start a process that maps one file and holds it open, and end it afterwards.

    It waits on a pipe, so that it also ends when its parent is killed. Raises OSError.
    """
    waits, ends = os.pipe()
    held = os.memfd_create("reefkit-doctor")
    os.truncate(held, linux.PAGE)
    with mmap.mmap(held, linux.PAGE):
        child = os.fork()
        if child == 0:
            try:
                os.close(ends)
                os.read(waits, 1)
            finally:
                os._exit(0)
    for fd in (waits, held):
        os.close(fd)
    try:
        with Process(child) as target:
            yield target
    finally:
        os.close(ends)
        os.waitpid(child, 0)


# --- all the others ---


@dataclass(frozen=True)
class Census:
    """How many processes /proc shows, and into how many of those with memory one may look."""

    visible: int
    accessible: int
    refused: int
    without_memory: int


def census(leaving_out: Collection[int] = ()) -> Census:
    """Count the processes by whether the name of a file that they map can be read."""
    counts = {kind: 0 for kind in ("accessible", "refused", "without_memory")}
    for pid in all_pids():
        if pid not in leaving_out:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                counts[_kind(pid)] += 1
    return Census(visible=sum(counts.values()), **counts)


def _kind(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
        if is_kernel_thread(text) or text.rpartition(b")")[2].split()[0] in b"ZX":
            return "without_memory"
        with os.scandir(f"/proc/{pid}/map_files") as entries:
            entry = next(entries, None)
        if entry is None:
            return "without_memory"
        os.readlink(entry.path)
        return "accessible"
    except PermissionError:
        return "refused"
