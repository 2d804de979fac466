"""How long a manifest takes, against hashing the same files once.

Both sides are whole processes. The yardstick reads with a buffer of 1 MiB and knows only hashlib;
the manifest has every file's digest, every tensor's, its crc32 and its anchors.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
from _harness import Floor, Place, Side, Table, alternate, machine, options, place

from reefkit.recover.formats.safetensors import parse_header, write_header
from reefkit.recover.rehearsal import write_adapter

FLOOR = Floor(2.2)
SMALL_FLOOR = Floor(2.2, 0.3)
MOST_RSS = 96 << 20
SMALL_FILES = 20_000
SMALL_TENSORS = 50_000
HASH = """
import hashlib, os, sys
buffer = bytearray(1 << 20)
view = memoryview(buffer)
for folder, _, names in os.walk(sys.argv[1]):
    for name in names:
        digest = hashlib.sha256()
        with open(os.path.join(folder, name), "rb", buffering=0) as file:
            while count := file.readinto(buffer):
                digest.update(view[:count])
        digest.hexdigest()
"""
ARCHIVE = "from reefkit.cli import archive_main; archive_main()"


def main() -> int:
    """Measure, print, judge."""
    asked = options(__doc__, size=2 << 30, size_is="bytes of the large file", repeat=5)
    table = Table("manifest", asked)
    with place(asked) as here:
        folder = here.root / "content"
        folder.mkdir()
        path = folder / "adapter_model.safetensors"
        write_adapter(path)
        compare(table, here, folder, "adapter, 504 tensors, 174 MB", asked.repeat, Floor(2.2, 0.2))
        path.unlink()
        write_large(path, asked.size)
        what = f"one file, {asked.size / (1 << 30):.1f} GiB, 64 tensors"
        compare(table, here, folder, what, asked.repeat, FLOOR)
        rss = peak(here, folder)
        held = rss <= MOST_RSS
        table.amount("memory for that file", f"{rss >> 20} MiB", f"≤ {MOST_RSS >> 20} MiB", held)
        path.unlink()
        write_small(path)
        what = f"{SMALL_TENSORS:,} tensors of 128 bytes"
        compare(table, here, folder, what, asked.repeat, None)
        path.unlink()
        for number in range(SMALL_FILES):
            (folder / f"{number:05}.txt").write_bytes(b"%d" % number * 20)
        compare(table, here, folder, f"{SMALL_FILES:,} small files", asked.repeat, SMALL_FLOOR)
        table.note(f"Page cache warm, both sides. {machine(here.root)}")
    return table.end()


def compare(
    table: Table, here: Place, folder: Path, what: str, rounds: int, floor: Floor | None
) -> None:
    """Time the manifest of a folder against hashing it."""
    out = here.out / "manifest.json"
    here.fresh(*folder.iterdir())
    sides = {
        "ours": here.side(
            sys.executable, "-c", ARCHIVE, "manifest", folder, "--out", out, "--force"
        ),
        "hash": Side(lambda: here.run([sys.executable, "-c", HASH, folder])),
    }
    times = alternate(sides, rounds)
    table.ratio(what, times["ours"], times["hash"], "hashlib, one pass", floor)


def peak(here: Place, folder: Path) -> int:
    """Give the largest resident size in bytes of a process that makes the manifest."""
    out = here.out / "manifest.json"
    command = [sys.executable, "-c", ARCHIVE, "manifest", folder, "--out", out, "--force"]
    script = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, "
        "stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL); "
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, command)],
        env=here.environment,
        capture_output=True,
        check=True,
    )
    return int(done.stdout) * 1024


def write_large(path: Path, size: int) -> None:
    """Write 64 tensors of random bytes."""
    each = size // 64 // 2
    names = [(f"model.layers.{i}.mlp.up_proj.weight", "BF16", (each,)) for i in range(64)]
    random = np.random.default_rng()
    with path.open("wb") as file:
        file.write(write_header(names, {"format": "pt"}))
        for _ in names:
            file.write(random.integers(0, 1 << 16, each, np.uint16).data)


def write_small(path: Path) -> None:
    """Write many tensors of 128 bytes."""
    name = "model.layers.{}.mlp.experts.{}.up_proj.lora_A.weight"
    names = [(name.format(i // 500, i % 500), "BF16", (2, 32)) for i in range(SMALL_TENSORS)]
    header = write_header(names, {"format": "pt"})
    size = parse_header(header).file_size - len(header)
    path.write_bytes(header + np.random.default_rng().bytes(size))


if __name__ == "__main__":
    sys.exit(main())
