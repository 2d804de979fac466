"""How long `compare` takes: for the same bytes, and for values where bytes differ.

The yardstick is `cmp` of two equal files of the size: what it takes to read both and find nothing.
Values differ in three ways: one bit of one element, all in another order, all in another dtype.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from _harness import (
    Broken,
    Floor,
    Place,
    Side,
    Table,
    alternate,
    import_click,
    machine,
    need,
    options,
    place,
    reef_recover,
)

BYTES = Floor(1.5, plus=0.3)
VALUES = Floor(4, plus=0.4)
CMP, CLICK = "cmp", "import click"
ONE_BIT, TURNED, CAST = "one bit of the last tensor", "tensors in another order", "BF16 and F32"
MODULES = 252  # two tensors each: a rank-32 LoRA of Qwen3-8B has 504
RANK = 32


def main() -> int:
    """Measure, print, judge."""
    asked = options(__doc__, size=174, size_is="MB of each file", repeat=5)
    need("cmp")
    table = Table("compare", asked)
    with place(asked) as here:
        files = write(here, asked.size * 1_000_000)
        answers = {
            "b": "byte-identical",
            ONE_BIT: "different",
            TURNED: "re-serialised",
            CAST: "cast",
        }
        sides = {
            name: comparing(here, files["a"], files[name], answer)
            for name, answer in answers.items()
        }
        yardsticks = {
            CMP: here.side("cmp", files["a"], files["b"]),
            CLICK: here.side(*import_click()),
        }
        times = alternate(
            {**sides, **yardsticks}, asked.repeat, before=partial(here.fresh, *files.values())
        )
        megabytes = files["a"].stat().st_size / 1e6
        for name in sides:
            what = "the same bytes" if name == "b" else name
            floor = {"b": BYTES, CAST: None}.get(name, VALUES)
            table.ratio(f"compare, {megabytes:.0f} MB: {what}", times[name], times[CMP], CMP, floor)
        table.note(f"Ours starts Python; `python -c 'import click'` takes {times[CLICK]}.")
        table.note("All files in the page cache. F32 files are twice as large as what cmp reads.")
        table.note("The floors are this project's own.")
        table.note(machine(here.root))
    return table.end()


def comparing(here: Place, a: Path, b: Path, result: str) -> Side:
    """Make a side of a comparison whose answer is known."""
    command = [*reef_recover(), "compare", str(a), str(b), "--level", "values", "--json"]
    answer: list[dict[str, Any]] = []

    def run() -> None:
        answer[:] = [json.loads(here.run(command, accept=(0, 1)))]

    def check() -> None:
        if answer[0]["result"] != result:
            raise Broken(f"compare said {answer[0]['result']}, not {result}.")

    return Side(run, check)


def write(here: Place, size: int) -> dict[str, Path]:
    """Write the files to compare: the same values in other bytes, or one other value."""
    import numpy as np

    shape = (RANK, size // (2 * 2 * MODULES * RANK))
    names = [f"layers.{i:03}.lora_{ab}.weight" for i in range(MODULES) for ab in "AB"]
    bits = np.random.default_rng(8).integers(0, 1 << 16, (len(names), *shape), np.uint16)
    bits = bits & 0x83FF | 0x3800  # finite, and of a size that weights have
    folder = here.root / "files"
    folder.mkdir()
    files = {name: folder / f"{name}.safetensors" for name in ("a", "b", ONE_BIT, TURNED, CAST)}
    header = header_of(names, "BF16", shape)
    files["a"].write_bytes(header + bits.tobytes())
    shutil.copyfile(files["a"], files["b"])
    files[TURNED].write_bytes(header_of(names[::-1], "BF16", shape) + bits[::-1].tobytes())
    wide = (bits.astype(np.uint32) << 16).tobytes()
    files[CAST].write_bytes(header_of(names, "F32", shape) + wide)
    bits[-1, -1, -1] ^= 1
    files[ONE_BIT].write_bytes(header + bits.tobytes())
    return files


def header_of(names: Sequence[str], dtype: str, shape: tuple[int, int]) -> bytes:
    """Make a header whose data comes in the order of `names`."""
    size = shape[0] * shape[1] * {"BF16": 2, "F32": 4}[dtype]
    entries = {
        name: {"dtype": dtype, "shape": shape, "data_offsets": (i * size, (i + 1) * size)}
        for i, name in enumerate(names)
    }
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


if __name__ == "__main__":
    sys.exit(main())
