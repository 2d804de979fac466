"""The files to act on, and the processes that hold them, from the first look to the last byte."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Mapping

from ..errors import NotPermitted, ProcessGone, Unusable
from .pins import Pin, find_pins, take_out
from .process import Process, same_process
from .scan import Scan, Scanner
from .sources import FileSource
from .tree import cgroup_members, descendants


class HeldFiles:
    """What a process holds, with its descendants or its control group, and what is pinned of it.

    Every inode that can be opened is open from the moment it was found until this is closed.
    """

    def __init__(
        self,
        pid: int,
        *,
        children: bool = True,
        cgroup: bool = False,
        any_format: bool = False,
        pinned: bool = False,
    ) -> None:
        """Look into the process; with `pinned`, also into the pins that were made of it.

        Raises ProcessGone when it has ended and nothing of it is pinned, NotPermitted, and
        Unusable when its id was reused since it was pinned.
        """
        _raise_descriptor_limit()
        self.processes: dict[int, Process] = {}
        self._stack = contextlib.ExitStack()
        self._scanner = Scanner(any_format=any_format, keep_open=True)
        self._stack.callback(self._scanner.close)
        with contextlib.ExitStack() as on_failure:
            on_failure.callback(self._stack.close)
            pins = [p for p in find_pins() if pid in (p.target_pid, p.holder)] if pinned else []
            self.target: Mapping[str, object] = self._hold_root(pid, pins)
            if pid in self.processes:
                self._hold_others(self.processes[pid], children=children, cgroup=cgroup)
            for process in list(self.processes.values()):
                self._scanner.look(process)
            for found in pins:
                self._take_out(found)
            on_failure.pop_all()
        self.scan: Scan = self._scanner.result()

    def __enter__(self) -> HeldFiles:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def is_of(self, document: object) -> bool:
        """Tell whether an earlier record is about the same process."""
        return same_process(self.target, document)

    @property
    def sources(self) -> Mapping[tuple[int, int], FileSource]:
        """The inodes that could be opened, by (device, inode)."""
        return self._scanner.sources

    def _hold_root(self, pid: int, pins: list[Pin]) -> Mapping[str, object]:
        if any(pin.holder == pid for pin in pins):
            return pins[0].target
        try:
            root = self._stack.enter_context(Process(pid))
            root.memory_directory()
        except ProcessGone:
            if not pins:
                raise
            return pins[0].target
        identity = root.identity()
        if any(not same_process(identity.to_json(), pin.target) for pin in pins):
            raise Unusable(
                f"Process {pid} is another one than was pinned: its id was reused.",
                remedy="Give the holder instead, to save what was pinned: "
                + ", ".join(f"--pid {pin.holder}" for pin in pins)
                + "; or `reef-recover unpin` it first.",
            )
        self.processes[pid] = root
        return identity.to_json()

    def _hold_others(self, root: Process, *, children: bool, cgroup: bool) -> None:
        group = cgroup_members(root) if cgroup else []
        below = descendants(root.pid) if children else []
        for pid in dict.fromkeys(group + below):
            if pid not in self.processes:
                with contextlib.suppress(ProcessGone, NotPermitted, Unusable):
                    self.processes[pid] = self._stack.enter_context(Process(pid))

    def _take_out(self, pin: Pin) -> None:
        with contextlib.suppress(ProcessGone):
            process = self._stack.enter_context(Process(pin.holder))
            take_out(pin, process, self._scanner)


def _raise_descriptor_limit() -> None:
    """Allow as many descriptors as there may be: one is kept for each file found."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
