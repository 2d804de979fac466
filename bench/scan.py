"""How long `scan --all` takes: the machine as it is, and with more processes.

The yardstick is `lsof -n +L1`, what a person would use to find deleted files, and the start of a
Python program. lsof does not look into a single file; scan opens each one to see what it is.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Generator

from _harness import (
    Broken,
    Floor,
    Options,
    Place,
    Table,
    alternate,
    import_click,
    lost,
    machine,
    need,
    options,
    place,
    reef_recover,
)

from reefkit.recover.rehearsal import write_adapter

FLOOR = Floor(1, plus=0.05)


def main() -> int:
    """Measure, print, judge."""
    asked = options(__doc__, size=100, size_is="extra sleeping processes", repeat=9)
    need("lsof")
    table = Table("scan", asked)
    with place(asked) as here:
        path = here.root / "step_8" / "adapter_model.safetensors"
        path.parent.mkdir()
        write_adapter(path)
        with lost(path) as (pid, _):
            measure(table, here, asked, pid)
            with sleeping(asked.size):
                measure(table, here, asked, pid)
        table.note("Files and /proc in the kernel's caches, all sides; one lost adapter to find.")
        table.note(machine(here.root))
    return table.end()


def measure(table: Table, here: Place, asked: Options, pid: int) -> None:
    """Scan the machine in the state that it is in now."""
    scan = [*reef_recover(), "scan", "--all"]
    found = json.loads(here.run([*scan, "--json"]))["candidates"]
    if pid not in [candidate["pid"] for candidate in found]:
        raise Broken("scan does not find the lost adapter.")
    sides = {
        "scan": here.side(*scan),
        "lsof": here.side("lsof", "-n", "+L1", accept=(0, 1)),
        "click": here.side(*import_click()),
    }
    times = alternate(sides, asked.repeat)
    processes = sum(name.isdigit() for name in os.listdir("/proc"))
    what = f"scan --all, {processes} processes"
    table.ratio(what, times["scan"], times["lsof"] + times["click"], "lsof + import click", FLOOR)


@contextlib.contextmanager
def sleeping(count: int) -> Generator[None, None, None]:
    """Keep processes that do nothing, and end them."""
    processes = [subprocess.Popen(["sleep", "600"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


if __name__ == "__main__":
    sys.exit(main())
