"""How long `reef-archive verify` takes, against sha256sum, hashlib and model_signing.

Whole processes from start to end; ours also looks for what no list mentions, and explains.
"""

from __future__ import annotations

import sys
from pathlib import Path

from _harness import Floor, Place, Side, Table, alternate, machine, need, options, place
from sums import HASHLIB, LARGE_SIZE, SMALL_SIZE, counting, listed, sums_of

SMALL_FLOOR = Floor(2.0)
LARGE_FLOOR = Floor(1 / 0.9, 0.3)  # and the start of a command
OTHER_FLOOR = Floor(1.0)
BIN = Path(sys.executable).parent
VERIFY: list[str | Path] = [BIN / "reef-archive", "verify", "--integrity-only", "--quiet"]


def main() -> int:
    """Measure, print, judge."""
    asked = options(__doc__, size=20_000, size_is="small files", repeat=3)
    need("sha256sum")
    table = Table("verify", asked)
    with place(asked) as here:
        names = [f"step_{n // 500}/file-{n:06}.json" for n in range(asked.size)]
        small = inside(listed(here, "small", dict.fromkeys(names, SMALL_SIZE)))
        sides = {
            "ours": Side(lambda: here.run([*VERIFY, small])),
            "theirs": here.shell('cd "$1"; sha256sum -c --quiet SHA256SUMS', small),
        }
        took = alternate(sides, asked.repeat)
        what = f"{asked.size:,} files of 2 KiB"
        table.ratio(what, took["ours"], took["theirs"], "sha256sum -c", SMALL_FLOOR)
        for count in (1, 4):
            sizes = {f"{n}.bin": LARGE_SIZE // count for n in range(count)}
            folder = listed(here, f"large{count}", sizes)
            what = f"{count} x {LARGE_SIZE // count >> 20} MiB"
            one_core(table, here, folder, what, asked.repeat)
            inside(folder)
        against_model_signing(table, here, here.root / "large4", asked.repeat)
        table.note(f"Page cache warm, all sides. {machine(here.root)}")
    return table.end()


def inside(folder: Path) -> Path:
    """Put a folder's list into it."""
    sums_of(folder).rename(folder / "SHA256SUMS")
    return folder


def one_core(table: Table, here: Place, folder: Path, what: str, rounds: int) -> None:
    """Hold the command on one core against the plainest loop over hashlib."""
    core: list[str | Path] = ["taskset", "-c", "0"]
    count = sum(1 for _ in sums_of(folder).open())
    plain = [*core, sys.executable, "-c", HASHLIB, sums_of(folder)]
    copy = folder / "SHA256SUMS"
    copy.write_bytes(sums_of(folder).read_bytes())
    sides = {
        "ours": Side(lambda: here.run([*core, *VERIFY, folder])),
        "theirs": counting(here, count, plain, folder),
    }
    took = alternate(sides, rounds)
    copy.unlink()
    table.ratio(f"{what}, one core", took["ours"], took["theirs"], "hashlib", LARGE_FLOOR)


def against_model_signing(table: Table, here: Place, folder: Path, rounds: int) -> None:
    """Hold the command against `model_signing verify key` on a signed folder."""
    key = here.root / "key"
    here.run([BIN / "reef-archive", "keygen", "--out", key, "--identity", "e@lab", "--quiet"])
    (folder / "SHA256SUMS").unlink()
    here.run([BIN / "reef-archive", "sign", folder, "--key", key, "--quiet"])
    signers = f"{key}.allowed_signers"
    theirs: list[str | Path] = [
        BIN / "model_signing",
        "verify",
        "key",
        folder,
        "--signature",
        folder / "model.sig",
    ]
    sides = {
        "ours": Side(lambda: here.run([*VERIFY[:2], folder, "--signers", signers, "--quiet"])),
        "theirs": Side(lambda: here.run([*theirs, "--public_key", f"{key}.pem"])),
    }
    took = alternate(sides, rounds)
    what = "4 x 128 MiB, signatures too"
    table.ratio(what, took["ours"], took["theirs"], "model_signing", OTHER_FLOOR)


if __name__ == "__main__":
    sys.exit(main())
