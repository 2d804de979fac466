"""How long it takes to read a checksum list and hash what it lists, against sha256sum and hashlib.

Both sides do the same work on the same files: ours lists the folder, parses SHA256SUMS, hashes and
compares, in a process of its own.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

from _harness import (
    Broken,
    Floor,
    Place,
    Side,
    Table,
    alternate,
    machine,
    need,
    options,
    place,
)

from reefkit.provenance.sums.read import read_sums
from reefkit.provenance.sums.write import write_sums

SMALL_SIZE = 2048
LARGE_SIZE = 512 << 20
LINES_AT_MOST = 0.06
SMALL_FLOOR = Floor(2.0)
LARGE_FLOOR = Floor(1 / 0.9, 0.1)  # and the start of the interpreter's imports
SUMS = "SHA256SUMS"
OURS = """
import sys
from pathlib import Path
from reefkit.provenance.content.folder import FolderContent
from reefkit.provenance.hashing import hash_members
from reefkit.provenance.sums.read import read_sums
content = FolderContent(Path(sys.argv[1]))
sums = read_sums(Path(sys.argv[2]).read_bytes(), "sums")
listed = {line.name: line for line in sums.lines}
wanted = [(m, frozenset({listed[m.name].algorithm})) for m in content.members]
equal = sum(h.digests.get("sha256") == listed[h.member.name].digest
            for h in hash_members(content, wanted))
print(equal)
"""
HASHLIB = """
import hashlib, sys
print(sum(
    hashlib.file_digest(open(name, "rb", buffering=0), "sha256").hexdigest() == digest
    for digest, name in (line.rstrip().split("  ", 1) for line in open(sys.argv[1]))
))
"""


def main() -> int:
    """Measure, print, judge."""
    asked = options(__doc__, size=20_000, size_is="small files", repeat=5)
    need("sha256sum")
    table = Table("checksum lists", asked)
    with place(asked) as here:
        lines = {f"step_{n // 500}/file-{n:06}.json": f"{n:064x}" for n in range(asked.size)}
        data = write_sums(lines)
        took = alternate({"read": Side(lambda: read_sums(data, SUMS))}, asked.repeat)["read"]
        table.amount(
            f"read a list of {asked.size:,} lines",
            str(took),
            f"≤ {LINES_AT_MOST:g} s",
            took.best <= LINES_AT_MOST,
        )
        small = listed(here, "small", {name: SMALL_SIZE for name in lines})
        compare(table, here, small, f"{asked.size:,} files of 2 KiB", SMALL_FLOOR, asked.repeat)
        for count in (1, 4):
            name = f"large{count}"
            large = listed(here, name, {f"{n}.bin": LARGE_SIZE // count for n in range(count)})
            what = f"{count} x {LARGE_SIZE // count >> 20} MiB"
            compare(table, here, large, what, None, asked.repeat)
            one_core(table, here, large, what, asked.repeat)
        table.note("Whole processes from start to end. Ours also lists the folder.")
        table.note(f"Page cache warm, all sides. {machine(here.root)}")
    return table.end()


def listed(here: Place, name: str, sizes: dict[str, int]) -> Path:
    """Make a folder of random files, and its list beside it."""
    folder = here.root / name
    digests: dict[str, str] = {}
    for path, size in sizes.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        data = os.urandom(size)
        file.write_bytes(data)
        digests[path] = hashlib.sha256(data).hexdigest()
    sums_of(folder).write_bytes(write_sums(digests))
    here.fresh(*(folder / path for path in sizes))
    return folder


def sums_of(folder: Path) -> Path:
    """Give where the list of a folder lies."""
    return folder.with_name(f"{folder.name}.{SUMS}")


def compare(
    table: Table, here: Place, folder: Path, what: str, floor: Floor | None, rounds: int
) -> None:
    """Hold ours against `sha256sum -c`."""
    theirs = here.shell('cd "$1"; sha256sum -c --quiet "$2"', folder, sums_of(folder))
    times = alternate({"ours": ours(here, folder), "sha256sum": theirs}, rounds)
    table.ratio(what, times["ours"], times["sha256sum"], "sha256sum -c", floor)


def one_core(table: Table, here: Place, folder: Path, what: str, rounds: int) -> None:
    """Hold ours on one core against the plainest loop over hashlib."""
    count = sum(1 for _ in sums_of(folder).open())
    command = ["taskset", "-c", "0", sys.executable, "-c"]
    plain = counting(here, count, [*command, HASHLIB, sums_of(folder)], folder)
    sides = {
        "ours": counting(here, count, [*command, OURS, folder, sums_of(folder)]),
        "hashlib": plain,
    }
    times = alternate(sides, rounds)
    table.ratio(f"{what}, one core", times["ours"], times["hashlib"], "hashlib", LARGE_FLOOR)


def ours(here: Place, folder: Path) -> Side:
    """Make our side, which must find every file equal."""
    count = sum(1 for _ in sums_of(folder).open())
    return counting(here, count, [sys.executable, "-c", OURS, folder, sums_of(folder)])


def counting(
    here: Place, count: int, command: list[str | Path], folder: Path | None = None
) -> Side:
    """Make a side that prints how many files are equal: all of them."""
    run: list[str | Path] = list(command)
    if folder is not None:
        run = ["sh", "-ec", 'cd "$1"; shift; exec "$@"', "sh", folder, *command]

    def checked() -> None:
        if here.run(run).strip() != str(count):
            raise Broken("A file that is as listed was called different.")

    return Side(checked)


if __name__ == "__main__":
    sys.exit(main())
