"""What every benchmark needs: sides measured in turn, floors that hold or not, and one table.

No figure stands alone. What is compared runs alternately in one run (A B A B …) from the same
state, because two runs of the same machine minutes apart may differ by more than any floor allows.
Noise only ever adds time, so the best of all rounds decides; the median is shown beside it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from runpy import run_path

MAPPER: str = run_path(str(Path(__file__).parents[1] / "tests" / "support" / "victims.py"))[
    "MAPPER"
]
_AT_ONCE = 4 << 20
_HASH_FLAGS = {"sha_ni", "sha2"}  # x86, Arm


class Broken(Exception):
    """A side did not do its work, so that its time says nothing."""


@dataclass(frozen=True)
class Options:
    """What a benchmark was asked for."""

    size: int
    repeat: int
    directory: Path
    markdown: bool


def options(description: str | None, *, size: int, size_is: str, repeat: int) -> Options:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument("--size", type=int, default=size, help=f"{size_is} (default: {size})")
    parser.add_argument("--repeat", type=int, default=repeat, help=f"rounds (default: {repeat})")
    parser.add_argument(
        "--dir", type=Path, default=Path("/var/tmp"), help="where files go (default: /var/tmp)"
    )
    parser.add_argument("--markdown", action="store_true", help="print the table for a document")
    given = parser.parse_args()
    return Options(given.size, given.repeat, given.dir, given.markdown)


# --- sides ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Side:
    """One of the things compared; `check` runs after the clock and raises Broken."""

    run: Callable[[], object]
    check: Callable[[], object] = lambda: None


@dataclass(frozen=True)
class Timing:
    """How long each round took, in seconds."""

    seconds: tuple[float, ...]

    @property
    def best(self) -> float:
        """The time with the least noise in it."""
        return min(self.seconds)

    @property
    def median(self) -> float:
        """The time to expect."""
        return statistics.median(self.seconds)

    def __add__(self, other: Timing) -> Timing:
        return Timing(tuple(a + b for a, b in zip(self.seconds, other.seconds, strict=True)))

    def __str__(self) -> str:
        unit, scale = ("s", 1.0) if self.best >= 1 else ("ms", 1000.0)
        digits = 2 if unit == "s" or self.median < 0.01 else 0
        return f"{self.best * scale:.{digits}f} / {self.median * scale:.{digits}f} {unit}"


def alternate(
    sides: Mapping[str, Side],
    rounds: int,
    *,
    before: Callable[[], object] = lambda: None,
    rehearse: bool = True,
) -> dict[str, Timing]:
    """Time every side once a round, in turn; `before` brings back the state that all start from.

    A rehearsal is not counted: it brings programs and bytecode into the caches.
    """
    found: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(-1 if rehearse else 0, rounds):
        for name, side in sides.items():
            before()
            began = time.perf_counter()
            side.run()
            took = time.perf_counter() - began
            side.check()
            if number >= 0:
                found[name].append(took)
    return {name: Timing(tuple(seconds)) for name, seconds in found.items()}


# --- floors --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Floor:
    """The most that ours may take: `factor` times the rival's best, and `plus` seconds."""

    factor: float
    plus: float = 0.0

    def holds(self, ours: Timing, rival: Timing) -> bool:
        """Judge by the best of both."""
        return ours.best <= self.factor * rival.best + self.plus

    def __str__(self) -> str:
        return f"≤ {self.factor:.3g} x" + (f" + {self.plus:g} s" if self.plus else "")


class Table:
    """What was measured, a row each; `end` prints it and gives the exit code."""

    def __init__(self, title: str, options: Options) -> None:
        self._title = title
        self._markdown = options.markdown
        self._rows = [("what", "ours", "rival", "ratio", "floor", "holds")]
        self._notes = ["Times: best / median of the rounds. Floors are judged by the best."]
        self._broken_floors = 0

    def ratio(
        self, what: str, ours: Timing, rival: Timing, rival_is: str, floor: Floor | None = None
    ) -> None:
        """Add a time against another of the same run."""
        ratio = f"{ours.best / rival.best:.2f} / {ours.median / rival.median:.2f}"
        holds = floor.holds(ours, rival) if floor else None
        self._add(what, str(ours), f"{rival} {rival_is}", ratio, str(floor or "-"), holds)

    def amount(self, what: str, value: str, floor: str, holds: bool | None) -> None:
        """Add something that is not a time."""
        self._add(what, value, "-", "-", floor, holds)

    def note(self, text: str) -> None:
        """Add a line below the table."""
        self._notes.append(text)

    def end(self) -> int:
        """Print it; 0 when every floor holds, else 1."""
        if self._markdown:
            escaped = [[cell.replace("|", "\\|") for cell in row] for row in self._rows]
            lines = ["| " + " | ".join(row) + " |" for row in escaped]
            lines.insert(1, "|---" * len(self._rows[0]) + "|")
            print(*lines, "", *(f"- {note}" for note in self._notes), sep="\n")
        else:
            widths = [max(map(len, column)) for column in zip(*self._rows, strict=True)]
            print(f"\n{self._title}\n")
            for row in self._rows:
                cells = zip(row, widths, strict=True)
                print("  ".join(cell.ljust(width) for cell, width in cells).rstrip())
            print("", *self._notes, sep="\n")
        return 1 if self._broken_floors else 0

    def _add(
        self, what: str, ours: str, rival: str, ratio: str, floor: str, holds: bool | None
    ) -> None:
        self._broken_floors += holds is False
        verdict = "-" if holds is None else "yes" if holds else "NO"
        self._rows.append((what, ours, rival, ratio, floor, verdict))


# --- the machine ---------------------------------------------------------------------------------


def machine(directory: Path) -> str:
    """Say in one line what the figures depend on; nothing that names the machine."""
    info = Path("/proc/cpuinfo").read_text("utf-8").partition("\n\n")[0]
    fields = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
    words = {key.strip(): value.strip() for key, value in fields.items()}
    flags = set(words.get("flags", words.get("Features", "")).split())
    hashing = ", ".join(sorted(flags & _HASH_FLAGS)) or "no SHA instructions"
    return (
        f"{len(os.sched_getaffinity(0))} cores ({words.get('model name', platform.machine())}, "
        f"{hashing}), Linux {platform.release().partition('-')[0]}, {filesystem(directory)}, "
        f"Python {platform.python_version()}."
    )


def filesystem(directory: Path) -> str:
    """Name the type of the filesystem that a directory is on."""
    device = os.stat(directory).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text("utf-8").splitlines():
        mount, _, source = line.partition(" - ")
        if mount.split()[2] == number:
            return source.split()[0]
    return "unknown filesystem"


def need(*programs: str) -> None:
    """End when a rival is not installed: a benchmark without it would say nothing."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        sys.exit(f"Not installed: {', '.join(missing)}. See .ci/run for the packages.")


# --- the work place, and processes that hold files -----------------------------------------------


@dataclass(frozen=True)
class Place:
    """A folder for the files, a folder `out` that is empty before every side, and how to run."""

    root: Path

    @property
    def out(self) -> Path:
        """The folder that a side writes to."""
        return self.root / "out"

    def fresh(self, *sources: str | Path) -> None:
        """Empty `out`, put everything on the disk, and bring `sources` into the page cache."""
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir()
        os.sync()
        buffer = bytearray(_AT_ONCE)
        for source in sources:
            with open(source, "rb", buffering=0) as file:
                while file.readinto(buffer):
                    pass

    def run(self, command: Sequence[str | Path], accept: Sequence[int] = (0,)) -> str:
        """Run to the end and give what it printed. Raises Broken on any other exit code."""
        done = subprocess.run(
            command, cwd=self.root, env=self.environment, capture_output=True, text=True
        )
        if done.returncode not in accept:
            raise Broken(f"{' '.join(map(str, command))}: {done.returncode}\n{done.stderr}")
        return done.stdout

    def side(
        self,
        *command: str | Path,
        accept: Sequence[int] = (0,),
        check: Callable[[], object] = lambda: None,
    ) -> Side:
        """Make a side of a command line."""
        return Side(lambda: self.run(command, accept), check)

    def shell(self, script: str, *arguments: str | Path) -> Side:
        """Make a side of a shell script; `$1` is the first of `arguments`."""
        return self.side("sh", "-ec", script, "sh", *arguments)

    @property
    def environment(self) -> dict[str, str]:
        """Let every Python keep its bytecode, as installed programs do, but only in here."""
        kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        return {**kept, "PYTHONPYCACHEPREFIX": str(self.root / "bytecode")}


@contextlib.contextmanager
def place(options: Options) -> Generator[Place, None, None]:
    """Give a folder that is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="reefkit-bench-", dir=options.directory) as folder:
        made = Place(Path(folder))
        made.fresh()
        yield made


def reef_recover() -> list[str]:
    """Give the command: the console script where there is one beside this interpreter."""
    script = Path(sys.executable).with_name("reef-recover")
    return [str(script)] if script.exists() else [sys.executable, "-m", "reefkit.cli"]


def import_click() -> list[str]:
    """Give the command that all start-up times are held against."""
    return [sys.executable, "-c", "import click"]


@contextlib.contextmanager
def lost(path: Path) -> Generator[tuple[int, int], None, None]:
    """Let a process map a file, delete it; give the process's id and a descriptor for the rivals.

    The process has no descriptor, as a server has none. It ends with this context.
    """
    fd = os.open(path, os.O_RDONLY)
    plans = json.dumps([{"path": str(path), "kind": "private"}])
    process = subprocess.Popen(
        [sys.executable, "-c", MAPPER, plans], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None and process.stdin is not None
    try:
        if not process.stdout.readline():
            raise Broken("The process that was to map the file ended.")
        path.unlink()
        yield process.pid, fd
    finally:
        process.kill()
        process.stdin.close()
        process.stdout.close()
        process.wait()
        os.close(fd)
