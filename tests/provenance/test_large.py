"""A checkpoint of 6 GiB: signed, packed and verified, in little memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SIZE = 6 << 30
MOST_MEMORY_KIB = 120 << 10
COMMAND = """
import sys
from reefkit.cli import archive, run
code = run(archive, sys.argv[1:])
(peak,) = (line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(peak, file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.soak
def test_six_gibibytes_are_packed_and_verified_in_little_memory(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    block = os.urandom(64 << 20)
    with open(folder / "model.bin", "wb") as file:
        for number in range(SIZE // len(block)):
            file.write(number.to_bytes(8, "little") + block[8:])
    key, out = tmp_path / "lab", tmp_path / "evidence.zip"
    signers = f"{key}.allowed_signers"

    def command(*arguments: object, expected: int = 0) -> None:
        done = subprocess.run(
            [sys.executable, "-c", COMMAND, *map(str, arguments), "--quiet"],
            capture_output=True,
            text=True,
        )
        assert done.returncode == expected, done.stderr
        peak = int(done.stderr.split()[-1])
        print(f"{arguments[0]}: {peak >> 10} MiB at its peak")
        assert peak < MOST_MEMORY_KIB

    command("keygen", "--out", key, "--identity", "e@lab")
    command("pack", folder, "--out", out, "--key", key, "--no-redact")
    command("verify", out, "--signers", signers)
    with open(out, "r+b") as package:
        package.seek(5 << 30)
        (value,) = package.read(1)
        package.seek(5 << 30)
        package.write(bytes([value ^ 1]))
    command("verify", out, "--signers", signers, expected=1)
