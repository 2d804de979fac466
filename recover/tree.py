"""Which processes belong together: descendants, and the members of a control group.

Inference servers map their weights in worker processes, not in the one that was started.
"""

from __future__ import annotations

import contextlib
import os

from .process import Process


def all_pids() -> list[int]:
    """List the processes that /proc shows, in ascending order."""
    return sorted(int(name) for name in os.listdir("/proc") if name.isdigit())


def descendants(*roots: int) -> list[int]:
    """List the children of the processes given, their children and so on, parents first."""
    children: dict[int, list[int]] = {}
    for candidate in all_pids():
        with contextlib.suppress(OSError, ValueError, IndexError):
            with open(f"/proc/{candidate}/stat", "rb") as file:
                parent = int(file.read().rpartition(b")")[2].split()[1])
            children.setdefault(parent, []).append(candidate)
    found: list[int] = []
    waiting = list(roots)
    while waiting:
        below = children.get(waiting.pop(0), [])
        found += below
        waiting += below
    return found


def cgroup_members(process: Process) -> list[int]:
    """List the processes in the control group of `process` and in the groups below it.

    Compares `/proc/PID/cgroup` line by line, so that no cgroup filesystem has to be mounted;
    of version 1 hierarchies, all must agree.
    """
    own = process.read("cgroup").splitlines()
    found: list[int] = []
    for pid in all_pids():
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/cgroup", "rb") as file:
                theirs = file.read().splitlines()
            if len(theirs) == len(own) and all(map(_within, theirs, own)):
                found.append(pid)
    return found


def _within(line: bytes, group: bytes) -> bool:
    return line == group or line.startswith(group.rstrip(b"/") + b"/")
