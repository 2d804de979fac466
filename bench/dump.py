"""How long it takes to save a mapped file that was deleted, with its proof.

Ours is the whole process: start, look at every process that may write to the file, read it twice
(the page cache, then the storage), compare, hash, write, fsync, record. The yardsticks are one
hash of the same inode, one durable copy of it, and what a person would type to get two copies that
are known to be equal. All read a warm page cache; the second read of ours bypasses it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from _harness import (
    Broken,
    Floor,
    Options,
    Place,
    Side,
    Table,
    Timing,
    alternate,
    lost,
    machine,
    need,
    options,
    place,
    reef_recover,
)

from reefkit.recover.formats.safetensors import parse_header, write_header
from reefkit.recover.rehearsal import write_adapter

SLOWER = Floor(1.5, plus=0.3)
TWO_COPIES = Floor(1 / 3)
LARGE = 2 << 30  # the size that the floor for two copies is about
ANONYMOUS_MAX = 80_000_000
SMALL_ROUNDS = 3  # as many more, since a round takes a second
GCORE_SECONDS = 120
_AT_ONCE = 4 << 20
_TENSOR = (4096, 1024)
_POLL_SECONDS = 0.001

OPENSSL, COPY, TWICE = "openssl dgst -sha256", "cp && sync", "2 x cp, sha256sum"
OURS, STREAM, MEMORY = "dump", "dump --out - | cat", "dump --source memory"


@dataclass(frozen=True)
class Victim:
    """A process that maps a deleted file, and what the file holds."""

    pid: int
    fd: int
    size: int
    sha256: str

    @property
    def path(self) -> str:
        """The deleted file, for other programs to open."""
        return f"/proc/{os.getpid()}/fd/{self.fd}"

    @property
    def named(self) -> str:
        """The size in words."""
        gib = self.size / (1 << 30)
        return f"{gib:.1f} GiB" if gib >= 1 else f"{self.size / 1e6:.0f} MB"


def main() -> int:
    """Measure, print, judge."""
    asked = options(__doc__, size=2048, size_is="MiB of the large file", repeat=3)
    need("bash", "openssl", "cp", "sha256sum", "sync")
    table = Table("dump", asked)
    with place(asked) as here:
        path = here.root / "runs" / "step_8" / "adapter_model.safetensors"
        path.parent.mkdir(parents=True)
        digest = write_adapter(path)
        with lost(path) as (pid, fd):
            victim = Victim(pid, fd, os.fstat(fd).st_size, digest)
            measure(table, here, victim, asked.repeat + SMALL_ROUNDS)
        digest = write_adapter(path)
        with lost(path) as (pid, fd):
            victim = Victim(pid, fd, os.fstat(fd).st_size, digest)
            measure_memory(table, here, victim, asked.repeat + SMALL_ROUNDS)
        digest = write_large(path, asked.size << 20)
        with lost(path) as (pid, fd):
            victim = Victim(pid, fd, os.fstat(fd).st_size, digest)
            measure(table, here, victim, asked.repeat)
        note(table, here, asked)
    return table.end()


def measure(table: Table, here: Place, victim: Victim, rounds: int) -> None:
    """Measure the file route: time, our memory, and what it costs the process."""
    before = cost_of(victim.pid)
    sides = {
        OURS: dumping(here, victim, route="map_files"),
        STREAM: streaming(here, victim),
        OPENSSL: here.side("openssl", "dgst", "-sha256", victim.path),
        COPY: here.shell('cp "$1" out/copy && sync', victim.path),
        TWICE: here.shell(
            'cp "$1" out/first && cp "$1" out/second && sha256sum out/first out/second',
            victim.path,
        ),
    }
    large = victim.size >= LARGE
    times = alternate(sides, rounds, before=partial(here.fresh, victim.path), rehearse=not large)
    slower = max((OPENSSL, COPY), key=lambda name: times[name].best)
    other = COPY if slower == OPENSSL else OPENSSL
    what = f"{OURS}, {victim.named}"
    table.ratio(what, times[OURS], times[slower], slower, SLOWER)
    table.ratio(what, times[OURS], times[other], other)
    table.ratio(what, times[OURS], times[TWICE], TWICE, TWO_COPIES if large else None)
    table.ratio(f"{STREAM}, {victim.named}", times[STREAM], times[OPENSSL], OPENSSL)
    here.fresh(victim.path)
    peak = peak_anonymous(here, dump_command(here, victim))
    table.amount(
        f"{OURS}, {victim.named}: peak anonymous RSS",
        f"{peak / 1e6:.0f} MB",
        f"≤ {ANONYMOUS_MAX / 1e6:.0f} MB",
        peak <= ANONYMOUS_MAX,
    )
    grown = [now - then for then, now in zip(before, cost_of(victim.pid), strict=True)]
    table.amount(
        f"{OURS}, {victim.named}: growth of the process's VmRSS, minor, major faults",
        "{} kB, {}, {}".format(*grown),
        "0 kB, 0, 0",
        max(grown) <= 0,
    )


def measure_memory(table: Table, here: Place, victim: Victim, rounds: int) -> None:
    """Measure the memory route, and gcore, which takes all of the process's memory."""
    before = cost_of(victim.pid)
    sides = {
        MEMORY: dumping(here, victim, "--source", "memory", route="memory"),
        OPENSSL: here.side("openssl", "dgst", "-sha256", victim.path),
    }
    first = alternate(sides, 1, before=partial(here.fresh, victim.path), rehearse=False)
    grown = cost_of(victim.pid)[0] - before[0]
    times = alternate(sides, rounds, before=partial(here.fresh, victim.path), rehearse=False)
    what = f"{MEMORY}, {victim.named}"
    table.ratio(f"{what}, pages absent", first[MEMORY], first[OPENSSL], OPENSSL)
    table.ratio(f"{what}, pages resident", times[MEMORY], times[OPENSSL], OPENSSL)
    table.amount(
        f"{what}: growth of the process's VmRSS", f"{grown * 1024 / 1e6:.0f} MB", "-", None
    )
    here.fresh(victim.path)
    began = time.perf_counter()
    size, failure = gcore(here, victim.pid)
    took = Timing((time.perf_counter() - began,))
    if failure:
        table.amount(f"gcore of the same process: {failure}", "-", "-", None)
    else:
        table.ratio(what, times[MEMORY], took, f"gcore, once ({size / 1e6:.0f} MB)")


def note(table: Table, here: Place, asked: Options) -> None:
    """Say what is equal for all sides."""
    table.note("Before every side: outputs removed, sync, the source read into the page cache.")
    table.note("`cp`, `sha256sum` and `openssl` read the page cache; ours reads the storage, too.")
    table.note("Only `cp && sync` and ours end with the bytes on the disk.")
    table.note("gcore stops the process while it writes; ours never does.")
    table.note(machine(here.root))


# --- sides ---------------------------------------------------------------------------------------


def dump_command(here: Place, victim: Victim, *more: str) -> list[str]:
    """Give the command that dumps into a folder that is not there yet."""
    out = str(here.out / "dump")
    return [*reef_recover(), "dump", "--quiet", "--pid", str(victim.pid), "--out", out, *more]


def dumping(here: Place, victim: Victim, *more: str, route: str) -> Side:
    """Make a side of a dump; the bytes, the route and the independent read are checked."""

    def check() -> None:
        record: dict[str, Any] = json.loads((here.out / "dump" / "recovery.json").read_text())
        file = record["files"][0]
        reads = [(read["route"], read["independent"]) for read in file["reads"]]
        independent = route != "memory"
        if file["sha256"] != victim.sha256 or reads != [(route, False), (route, independent)]:
            raise Broken(f"dump gave {file['verdict']} by {reads}: is this root, and on a disk?")

    return here.side(*dump_command(here, victim, *more), check=check)


def streaming(here: Place, victim: Victim) -> Side:
    """Make a side of a dump to a pipe that somebody reads; what comes out is checked once."""
    command = [*reef_recover(), "dump", "--quiet", "--pid", str(victim.pid), "--out", "-"]
    shell = ["bash", "-o", "pipefail", "-c"]
    found = here.run([*shell, '"$@" | openssl dgst -sha256 -r', "bash", *command])
    if found.split()[0] != victim.sha256:
        raise Broken("dump --out - gave other bytes.")
    return here.side(*shell, '"$@" | cat > /dev/null', "bash", *command)


def write_large(path: Path, size: int) -> str:
    """Write a safetensors file of about `size` bytes that no two blocks of are the same."""
    count = max(1, size // (2 * _TENSOR[0] * _TENSOR[1]))
    header = write_header([(f"layers.{i}.weight", "BF16", _TENSOR) for i in range(count)])
    left = parse_header(header).file_size - len(header)
    noise = os.urandom(_AT_ONCE) * 2
    digest = hashlib.sha256(header)
    with path.open("wb") as file:
        file.write(header)
        for start in range(0, left, _AT_ONCE):
            turn = start // _AT_ONCE * 64 % _AT_ONCE
            block = memoryview(noise)[turn : turn + min(_AT_ONCE, left - start)]
            digest.update(block)
            file.write(block)
        os.fsync(file.fileno())
    return digest.hexdigest()


# --- what it costs -------------------------------------------------------------------------------


def peak_anonymous(here: Place, command: Sequence[str]) -> int:
    """Run a command; give the most anonymous memory, in bytes, that it was seen to have."""
    peak = 0
    with subprocess.Popen(
        command, cwd=here.root, env=here.environment, stdout=subprocess.DEVNULL
    ) as process:
        status = Path(f"/proc/{process.pid}/status")
        while process.poll() is None:
            with contextlib.suppress(OSError):
                for line in status.read_text().splitlines():
                    if line.startswith("RssAnon:"):
                        peak = max(peak, int(line.split()[1]) * 1024)
            time.sleep(_POLL_SECONDS)
    if process.returncode:
        raise Broken(f"{' '.join(command)}: {process.returncode}")
    return peak


def cost_of(pid: int) -> tuple[int, int, int]:
    """Give a process's VmRSS in kB, and its minor and major faults (proc_pid_stat(5))."""
    status = Path(f"/proc/{pid}/status").read_text()
    resident = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(resident.split()[1]), int(fields[7]), int(fields[9])


def gcore(here: Place, pid: int) -> tuple[int, str | None]:
    """Write a core file; give its size, and why there is none."""
    if shutil.which("gcore") is None:
        return 0, "not installed"
    try:
        done = subprocess.run(
            ["gcore", "-o", str(here.out / "core"), str(pid)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=GCORE_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return 0, f"not done after {GCORE_SECONDS} s"
    written = here.out / f"core.{pid}"
    if done.returncode or not written.exists():
        return 0, f"failed with {done.returncode}"
    return written.stat().st_size, None


if __name__ == "__main__":
    sys.exit(main())
