"""How long it takes to look at every byte of a checkpoint, and to judge it.

A process of its own imports numpy, scans and judges; the yardstick is the floor of a second for
174 MB. Hashing the same file, and only reading it, are shown beside it.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
from _harness import Broken, Place, Side, Table, Timing, alternate, machine, need, options, place

from reefkit.recover.formats.safetensors import parse_header, write_header
from reefkit.recover.rehearsal import write_adapter

ADAPTER = 174_656_040
SECONDS_PER_ADAPTER = 1.0
SMALL_SECONDS = 2.0
DTYPES = ("F32", "F16", "F8_E4M3", "I8")
PROGRAM = """
import sys
from pathlib import Path
from reefkit.recover.checkpoint import Checkpoint, Shard
from reefkit.recover.formats.safetensors import read_header
from reefkit.recover.readable import FileReadable
from reefkit.recover.validation.content.scan import scan_content
from reefkit.recover.validation.damage import file_damage
from reefkit.recover.validation.content.judge import judge
from reefkit.recover.validation.content.roles import roles
with FileReadable(Path(sys.argv[1])) as file:
    shard = Shard("file", file, read_header(file.read, file.size))
    facts = scan_content(shard, jobs=int(sys.argv[2]))
    named = roles(tensor.name for tensor in facts.tensors)
    found = judge(Checkpoint("bench", (shard,)), {"file": facts}, named)
    print(len(file_damage(shard)) + len(found.damage))
"""


def main() -> int:
    """Measure, print, judge."""
    asked = options(__doc__, size=50_000, size_is="tensors in the file of small ones", repeat=7)
    need("openssl")
    table = Table("content checks", asked)
    with place(asked) as here:
        path = here.root / "adapter_model.safetensors"
        write_adapter(path)
        here.fresh(path)
        sides = {
            "two": looking(here, path, 2),
            "one": looking(here, path, 1),
            "sha256": here.side("openssl", "dgst", "-sha256", path),
            "read": Side(lambda: read_through(path)),
            "numpy": here.side(sys.executable, "-c", "import numpy"),
        }
        times = alternate(sides, asked.repeat)
        within(table, "adapter, 504 BF16 tensors, 2 threads", times["two"], SECONDS_PER_ADAPTER)
        within(table, "the same, 1 thread", times["one"], SECONDS_PER_ADAPTER)
        table.ratio("2 threads against hashing", times["two"], times["sha256"], "openssl sha256")
        table.ratio("2 threads against reading", times["two"], times["read"], "only read")
        table.ratio("2 threads against imports", times["two"], times["numpy"], "import numpy")
        for dtype in DTYPES:
            write_one(path, dtype, ADAPTER)
            here.fresh(path)
            took = alternate({dtype: looking(here, path, 2)}, asked.repeat)[dtype]
            within(table, f"{ADAPTER / 1e6:.0f} MB of {dtype}", took, SECONDS_PER_ADAPTER)
        write_small(path, asked.size)
        here.fresh(path)
        took = alternate({"small": looking(here, path, 2)}, asked.repeat)["small"]
        within(table, f"{asked.size:,} tensors of 64 elements", took, SMALL_SECONDS)
        table.note("Whole processes from start to end: imports, header, scan and judgement.")
        table.note(f"Page cache warm, all sides. {machine(here.root)}")
    return table.end()


def within(table: Table, what: str, took: Timing, seconds: float) -> None:
    """Hold the best time against a limit in seconds."""
    table.amount(what, str(took), f"≤ {seconds:g} s", took.best <= seconds)


def looking(here: Place, path: Path, jobs: int) -> Side:
    """Make a side that must find no damage."""

    def run() -> None:
        if here.run([sys.executable, "-c", PROGRAM, path, str(jobs)]).strip() != "0":
            raise Broken("A correct file was called damaged.")

    return Side(run)


def read_through(path: Path) -> None:
    """Read a file and do nothing with it."""
    buffer = bytearray(1 << 20)
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def write_one(path: Path, dtype: str, size: int) -> None:
    """Write a file of four tensors whose bytes are small numbers in every dtype."""
    count = size // 4 // 4 * 4
    bits = {"F32": 32, "F16": 16}.get(dtype, 8)
    names = [(f"model.layers.{i}.up_proj.weight", dtype, (count * 8 // bits,)) for i in range(4)]
    random = np.random.default_rng(time.time_ns())
    with path.open("wb") as file:
        file.write(write_header(names, {"format": "pt"}))
        for _ in names:
            file.write(random.integers(1, 0x3C, count, np.uint8).tobytes())


def write_small(path: Path, count: int) -> None:
    """Write many tensors of 128 bytes."""
    name = "base_model.model.model.layers.{}.mlp.experts.{}.up_proj.lora_A.weight"
    names = [(name.format(i // 500, i % 500), "BF16", (2, 32)) for i in range(count)]
    header = write_header(names, {"format": "pt"})
    random = np.random.default_rng(time.time_ns())
    size = parse_header(header).file_size - len(header)
    bits = random.integers(0x3800, 0x3D00, size // 2, np.uint16)
    path.write_bytes(header + bits.astype("<u2").tobytes())


if __name__ == "__main__":
    sys.exit(main())
