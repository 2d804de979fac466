"""Many files, large files, and whatever dies in the middle of saving them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from victims import dump_json, lost, mapping, write_checkpoint

from reefkit.recover.formats.safetensors import write_header

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="map_files needs a capability: run as root"
)

MB = 1_000_000
CHUNK = 8 << 20
RESIDENT_LIMIT = 80 * MB
PATIENCE = 240.0


def test_two_hundred_shards_are_all_exact(tmp_path: Path) -> None:
    shards = [
        write_checkpoint(
            tmp_path / "run" / f"model-{i:05}-of-00200.safetensors", [("t", "U8", (256 << 10,))]
        )
        for i in range(200)
    ]
    with lost(*shards) as victim:
        code, document = dump_json(victim["pid"], tmp_path / "out")
    saved = {Path(f["path"]).name: f for f in document["files"]}
    assert (code, document["verdict"], len(saved)) == (0, "FILE_EXACT", 200)
    for shard in shards:
        file = saved[shard.path.name]
        assert (file["verdict"], file["sha256"]) == ("FILE_EXACT", shard.sha256)
        assert Path(file["path"]).read_bytes() == shard.data


# --- large files ---


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


@dataclass(frozen=True)
class Large:
    """A file too large to keep in memory, and its digest."""

    path: Path
    size: int
    sha256: str


def write_large(path: Path, size: int) -> Large:
    """Write a checkpoint of at least `size` random bytes, in tensors of 8 MiB."""
    import numpy as np

    numbers = np.random.Generator(np.random.SFC64(size))
    header = write_header([(f"t{i}", "U8", (CHUNK,)) for i in range(-(-size // CHUNK))])
    digest = hashlib.sha256(header)
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.write(header)
        for _ in range(-(-size // CHUNK)):
            chunk = numbers.bytes(CHUNK)
            digest.update(chunk)
            file.write(chunk)
    return Large(path, path.stat().st_size, digest.hexdigest())


@contextlib.contextmanager
def victim_of(large: Large) -> Generator[int, None, None]:
    """Run a victim that maps the file, whose folder is deleted afterwards."""
    with mapping({"path": large.path, "kind": "private"}) as victim:
        shutil.rmtree(large.path.parent)
        yield victim["pid"]


@pytest.fixture
def folder(tmp_path: Path) -> Generator[Path, None, None]:
    """Give a folder of which nothing is left afterwards."""
    yield tmp_path
    shutil.rmtree(tmp_path)


@contextlib.contextmanager
def dumping(pid: int, out: Path, *options: str) -> Generator[subprocess.Popen[bytes], None, None]:
    """Start a dump into a folder, its document going beside it; end it if it still runs."""
    arguments = ["dump", "--pid", str(pid), "--out", str(out), "--json", *options]
    with out.with_suffix(".json").open("wb") as document:
        process = subprocess.Popen(
            [sys.executable, "-m", "reefkit.cli", *arguments],
            stdout=document,
            stderr=subprocess.DEVNULL,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def answer_of(dump: subprocess.Popen[bytes], out: Path) -> tuple[int, dict[str, Any]]:
    """Wait for a dump; give its exit code and what it says of its one file."""
    code = dump.wait(timeout=PATIENCE)
    files: list[dict[str, Any]] = json.loads(out.with_suffix(".json").read_text())["files"]
    (file,) = files
    return code, file


def status_bytes(pid: int, key: str) -> int:
    """Read a size from /proc/PID/status; 0 once the process has ended."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(f"{key}:"):
                return int(line.split()[1]) * 1024
    return 0


def bytes_read(pid: int) -> int:
    """Tell how many bytes a process has read so far."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for line in Path(f"/proc/{pid}/io").read_text().splitlines():
            if line.startswith("rchar:"):
                return int(line.split()[1])
    return 0


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    """Wait for a condition while a process runs."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert process.poll() is None, "it ended before that"
        assert time.monotonic() < deadline, "it hangs"
        time.sleep(0.005)


def peak_of(process: subprocess.Popen[bytes]) -> int:
    """Wait for a process; give the most that it had resident of its own."""
    peak = 0
    while process.poll() is None:
        peak = max(peak, status_bytes(process.pid, "RssAnon"))
        time.sleep(0.02)
    return peak


def resident_at_rest(pid: int) -> int:
    """Tell what a process has resident, once it waits for its input."""
    while Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "S":
        time.sleep(0.01)
    return status_bytes(pid, "VmRSS")


SIZES = [
    pytest.param(300 << 20, id="300 MiB"),
    pytest.param(6 << 30, id="6 GiB", marks=pytest.mark.soak),
]


@pytest.mark.parametrize("size", SIZES)
def test_a_large_file_is_exact_and_costs_neither_side_memory(size: int, folder: Path) -> None:
    large, out = write_large(folder / "run" / "a.safetensors", size), folder / "out"
    with victim_of(large) as pid:
        before = resident_at_rest(pid)
        with dumping(pid, out) as dump:
            peak = peak_of(dump)
            code, file = answer_of(dump, out)
        assert resident_at_rest(pid) == before
    assert (code, file["verdict"], file["sha256"]) == (0, "FILE_EXACT", large.sha256)
    assert sha256_of(Path(file["path"])) == large.sha256
    assert file["size"] == large.size
    assert 0 < peak <= RESIDENT_LIMIT


@pytest.mark.parametrize("size", SIZES)
def test_a_dump_killed_again_and_again_ends_exact_and_leaves_nothing_behind(
    size: int, folder: Path
) -> None:
    moments = random.Random(size)
    large, out = write_large(folder / "run" / "a.safetensors", size), folder / "out"
    killed = 0
    with victim_of(large) as pid:
        started = time.monotonic()
        with dumping(pid, out) as dump:
            assert answer_of(dump, out)[0] == 0
        duration = time.monotonic() - started
        shutil.rmtree(out)
        for _ in range(10):
            with dumping(pid, out) as dump, contextlib.suppress(subprocess.TimeoutExpired):
                dump.wait(moments.uniform(0.1, 0.9) * duration)
            killed += dump.returncode == -signal.SIGKILL
            if (out / "recovery.json").exists() and not list(out.rglob("*.rescue.map")):
                shutil.rmtree(out)  # it was complete
        with dumping(pid, out) as dump:
            code, file = answer_of(dump, out)
    assert killed >= 3
    assert (code, file["verdict"], file["sha256"]) == (0, "FILE_EXACT", large.sha256)
    saved = Path(file["path"])
    assert sha256_of(saved) == large.sha256
    assert {p for p in out.rglob("*") if p.is_file()} == {
        saved,
        out / "custody.jsonl",
        out / "recovery.json",
    }


# Runs a command line and dies as by SIGKILL before the change to the disk of a given number.
DYING = """
import os, signal, sys
from reefkit.cli import recover, run
left = int(sys.argv[1])
def counted(function):
    def call(*arguments, **options):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **options)
    return call
for name in "fchmod fdatasync fsync ftruncate mkdir pwritev rename unlink utime".split():
    setattr(os, name, counted(getattr(os, name)))
sys.exit(run(recover, sys.argv[2:]))
"""


def test_a_dump_killed_before_any_change_to_the_disk_ends_exact(tmp_path: Path) -> None:
    checkpoint, out = write_checkpoint(tmp_path / "run" / "a.safetensors"), tmp_path / "out"
    steps = 0
    with lost(checkpoint) as victim:
        arguments = ["dump", "--pid", str(victim["pid"]), "--out", str(out), "--json"]

        def dies_before(step: int) -> bool:
            command = [sys.executable, "-c", DYING, str(step), *arguments]
            code = subprocess.run(command, capture_output=True, check=False).returncode
            assert code in (0, -signal.SIGKILL)
            return code != 0

        while dies_before(steps):
            code, document = dump_json(victim["pid"], out)
            (file,) = document["files"]
            assert (code, file["verdict"], file["sha256"]) == (0, "FILE_EXACT", checkpoint.sha256)
            saved = Path(file["path"])
            assert saved.read_bytes() == checkpoint.data
            left = {path for path in out.rglob("*") if path.is_file()}
            assert left == {saved, out / "custody.jsonl", out / "recovery.json"}, (
                f"killed before change {steps}"
            )
            shutil.rmtree(out)
            steps += 1
    assert steps > 15


@pytest.mark.parametrize("stage", [50 * MB, 250 * MB])
def test_the_target_may_die_during_a_dump_of_the_file(stage: int, folder: Path) -> None:
    large, out = write_large(folder / "run" / "a.safetensors", 300 << 20), folder / "out"
    with victim_of(large) as pid, dumping(pid, out) as dump:
        wait_until(lambda: bytes_read(dump.pid) > stage, dump)
        os.kill(pid, signal.SIGKILL)
        code, file = answer_of(dump, out)
    assert (code, file["verdict"], file["sha256"]) == (0, "FILE_EXACT", large.sha256)
    assert sha256_of(Path(file["path"])) == large.sha256


def assert_true_claim(code: int, file: dict[str, Any], original: Path) -> None:
    """Hold what a dump of memory claims against the original."""
    saved, wanted = Path(file["path"]).read_bytes(), original.read_bytes()
    if code == 0:
        assert (file["verdict"], file["unread"]) == ("MEMORY_CLEAN", [])
    else:
        assert file["verdict"] == ("PARTIAL" if file["unread"] else "REBUILT_UNVERIFIED")
    position = 0
    for gap in [*file["unread"], {"offset": len(wanted), "bytes": 0}]:
        assert saved[position : gap["offset"]] == wanted[position : gap["offset"]]
        position = gap["offset"] + gap["bytes"]


# Each byte is read twice: up to 300 MB read, at least half of the file is still to come.
@pytest.mark.parametrize("stage", [50 * MB, 250 * MB, 550 * MB])
def test_a_target_that_dies_during_a_dump_of_its_memory_is_never_called_whole(
    stage: int, folder: Path
) -> None:
    large, out = write_large(folder / "run" / "a.safetensors", 300 << 20), folder / "out"
    original = folder / "original"
    os.link(large.path, original)
    with victim_of(large) as pid, dumping(pid, out, "--source", "memory") as dump:
        wait_until(lambda: bytes_read(dump.pid) > stage, dump)
        os.kill(pid, signal.SIGKILL)
        code, file = answer_of(dump, out)
    assert_true_claim(code, file, original)
    if stage <= 300 * MB:
        assert (code, file["verdict"]) == (1, "PARTIAL")
        assert file["path"].endswith(".partial")
