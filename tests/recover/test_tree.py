"""Descendants and control groups: servers load weights in processes that nobody typed."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from victims import running

from reefkit.recover.process import Process
from reefkit.recover.tree import (
    _within,  # pyright: ignore[reportPrivateUsage]
    all_pids,
    cgroup_members,
    descendants,
)

WAITING = 'import sys; print("{}", flush=True); sys.stdin.read()'

# Starts the given number of generations below itself, with two children each, and names them all.
FAMILY = """
import json, os, subprocess, sys
source, depth = sys.argv[1], int(sys.argv[2])
with open("/proc/self/comm", "w") as comm:
    comm.write(") S 1 (")  # would shift the fields of stat
children = [
    subprocess.Popen([sys.executable, "-c", source, source, str(depth - 1)],
                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    for _ in range(2 if depth else 0)
]
below = [json.loads(child.stdout.readline()) for child in children]
print(json.dumps({"pid": os.getpid(), "children": below}), flush=True)
sys.stdin.read()
for child in children:
    child.stdin.close()
    child.wait()
"""


def generations(family: dict[str, Any]) -> list[set[int]]:
    """Give the process ids of each generation, the oldest first."""
    found: list[set[int]] = []
    row = [family]
    while row:
        found.append({member["pid"] for member in row})
        row = [child for member in row for child in member["children"]]
    return found


def test_descendants_are_found_three_deep_with_parents_first() -> None:
    with running(FAMILY, FAMILY, "3") as victim:
        rows = generations(victim)
        found = descendants(victim["pid"])
        victim["process"].stdin.close()
        victim["process"].wait()
    assert [len(row) for row in rows] == [1, 2, 4, 8]
    assert [set(found[start:stop]) for start, stop in ((0, 2), (2, 6), (6, 14))] == rows[1:]
    assert len(found) == 14


def test_several_roots_are_searched_at_once() -> None:
    with running(FAMILY, FAMILY, "1") as one, running(FAMILY, FAMILY, "1") as two:
        expected = generations(one)[1] | generations(two)[1]
        found = descendants(one["pid"], two["pid"])
        for victim in (one, two):
            victim["process"].stdin.close()
            victim["process"].wait()
    assert set(found) == expected


def test_a_process_without_children_has_no_descendants() -> None:
    with running(WAITING) as victim:
        assert descendants(victim["process"].pid) == []
        assert victim["process"].pid in all_pids()
        assert victim["process"].pid in descendants(os.getpid())


# --- control groups ------------------------------------------------------------------------------


def cgroup_mount() -> Path | None:
    """Find the unified hierarchy, and below it the group of this process."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        if after.startswith("cgroup2 "):
            for own in Path("/proc/self/cgroup").read_text().splitlines():
                if own.startswith("0::"):
                    return Path(before.split()[4]) / own.removeprefix("0::/")
    return None


@pytest.fixture
def group() -> Generator[Path, None, None]:
    """A control group of its own, with one below it, and a neighbour with a similar name."""
    own = cgroup_mount()
    base = own / f"reefkit-{os.getpid()}" if own else None
    if base is None:
        pytest.skip("no unified control group hierarchy is mounted")
    folders = [base, base / "below", base.with_name(f"{base.name}-neighbour")]
    made: list[Path] = []
    try:
        for folder in folders:
            folder.mkdir()
            made.append(folder)
    except OSError as error:
        pytest.skip(f"control groups cannot be made here: {error.strerror}")
    else:
        yield base
    finally:
        for folder in reversed(made):
            folder.rmdir()


def test_members_of_a_control_group_and_of_those_below_are_found(group: Path) -> None:
    places = [group, group, group / "below", group.with_name(f"{group.name}-neighbour")]
    with ExitStack() as stack:
        pids: list[int] = []
        for place in places:
            pid = stack.enter_context(running(WAITING))["process"].pid
            (place / "cgroup.procs").write_text(str(pid))
            pids.append(pid)
        with Process(pids[0]) as held, Process(pids[2]) as below:
            assert cgroup_members(held) == sorted(pids[:3])
            assert cgroup_members(below) == [pids[2]]


@pytest.mark.parametrize(
    ("line", "group", "expected"),
    [
        (b"0::/a", b"0::/a", True),
        (b"0::/a/b", b"0::/a", True),
        (b"0::/ab", b"0::/a", False),
        (b"0::/", b"0::/a", False),
        (b"0::/a", b"0::/", True),
        (b"0::/", b"0::/", True),
        (b"4:memory:/a", b"5:memory:/a", False),
        (b"1:name=systemd:/a/b", b"1:name=systemd:/a", True),
        (b"0::/../b", b"0::/a", False),
    ],
)
def test_a_group_is_within_itself_and_those_above(
    line: bytes, group: bytes, expected: bool
) -> None:
    assert _within(line, group) is expected
