"""How long it takes to validate a safetensors header, against the library that is written in Rust.

Both open the file and deliver name, dtype and shape of every tensor; ours also the offsets and, for
a broken header, where it breaks which rule. The data is a hole: neither reads it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _harness import Broken, Floor, Side, Table, alternate, machine, options, place
from safetensors import safe_open

from reefkit.recover.formats.safetensors import parse_header, read_header, write_header
from reefkit.recover.readable import FileReadable

COUNTS = (504, 5_000)
FLOOR = Floor(4)  # Python against Rust
OURS, OPEN, FACTS = "ours", "safe_open", "safe_open, dtype and shape of each"

open_by_library: Callable[..., Any] = safe_open  # its members have no types
Facts = dict[str, tuple[str, tuple[int, ...]]]


def main() -> int:
    """Measure, print, judge."""
    asked = options(__doc__, size=50_000, size_is="tensors in the largest header", repeat=9)
    table = Table("headers", asked)
    with place(asked) as here:
        for count in (*COUNTS, asked.size):
            path = here.root / f"{count}.safetensors"
            bytes_of_header = write(path, count)
            if by_reefkit(path) != by_library(path):
                raise Broken("The two read different headers.")
            sides = {
                OURS: reading(by_reefkit, path),
                FACTS: reading(by_library, path),
                OPEN: reading(by_opening, path),
            }
            times = alternate(sides, asked.repeat)
            what = f"{count:,} tensors, {bytes_of_header / 1e6:.2f} MB"
            table.ratio(what, times[OURS], times[FACTS], FACTS, FLOOR)
            table.ratio(what, times[OURS], times[OPEN], f"{OPEN} alone")
        table.note("One process, libraries imported, page cache warm, for all sides.")
        table.note(
            "The floor is this project's own: it keeps the Python parser from becoming slow."
        )
        table.note(machine(here.root))
    return table.end()


def reading(read: Callable[[Path], object], path: Path) -> Side:
    """Make a side of reading a header."""
    return Side(lambda: read(path))


def write(path: Path, count: int) -> int:
    """Write a file with the names of an adapter and a hole for data; give the header's bytes."""
    tensors = [
        (f"base_model.model.model.layers.{i // 14}.self_attn.proj_{i % 14}.lora_A.weight", i)
        for i in range(count)
    ]
    header = write_header([(name, "BF16", (8, 16 + i % 7)) for name, i in tensors])
    with path.open("wb") as file:
        file.write(header)
        file.truncate(parse_header(header).file_size)
    return len(header)


def by_reefkit(path: Path) -> Facts:
    """Check every rule and give the facts."""
    with FileReadable(path) as file:
        header = read_header(file.read, file.size)
        if header.file_size != file.size:
            raise Broken("The header does not describe the file.")
    return {tensor.name: (tensor.dtype, tensor.shape) for tensor in header.tensors}


def by_library(path: Path) -> Facts:
    """Let the library check its rules and ask it for the facts."""
    facts: Facts = {}
    with open_by_library(path, "np") as file:
        for name in file.keys():
            piece = file.get_slice(name)
            facts[name] = (piece.get_dtype(), tuple(piece.get_shape()))
    return facts


def by_opening(path: Path) -> None:
    """Let the library check its rules."""
    with open_by_library(path, "np"):
        pass


if __name__ == "__main__":
    sys.exit(main())
