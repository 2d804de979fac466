"""Incidents that once gave a wrong answer, a leak or a lost byte; each keeps the right value."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from victims import (
    PAGE,
    WITHOUT_CAPABILITIES,
    dump_json,
    lost,
    mapping,
    reef,
    running,
    write_checkpoint,
)

from reefkit.cli import recover, run
from reefkit.recover.formats.safetensors import write_header
from reefkit.recover.sources import SecondLook

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="map_files needs a capability: run as root"
)


def test_a_file_that_was_pinned_alive_and_deleted_afterwards_is_saved(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "run" / "a.safetensors")
    with mapping({"path": checkpoint.path, "kind": "private"}) as victim:
        pid = victim["pid"]
        assert reef("pin", "--pid", pid).code == 0
    try:
        shutil.rmtree(tmp_path / "run")
        code, document = dump_json(pid, tmp_path / "out")
    finally:
        reef("unpin", "--pid", pid)
    (file,) = document["files"]
    assert (code, file["sha256"]) == (0, checkpoint.sha256)
    assert file["source"]["state"] == "deleted"


FORGED = """
import ctypes, fcntl, json, os, sys
ctypes.CDLL(None).prctl(15, b"reef-pin", 0, 0, 0)
held = os.open(sys.argv[2], os.O_RDONLY)
info = os.fstat(held)
fd = os.memfd_create("reefkit-pin", os.MFD_ALLOW_SEALING)
file = {"descriptor": held, "name": "x", "name_bytes": b"/run/step_8/a.safetensors".hex(),
        "state": "deleted", "size": info.st_size, "device": info.st_dev, "inode": info.st_ino,
        "command": "x"}
target = json.loads(sys.argv[1])
os.write(fd, json.dumps({"schema": "reefkit.pin/1", "holder": 0, "target": target,
                         "since": float("inf"), "timeout": None, "files": [file]}).encode())
fcntl.fcntl(fd, 1033, 15)
print(json.dumps({"pid": os.getpid()}), flush=True)
sys.stdin.read()
"""


def test_a_pin_from_another_namespace_is_not_believed(tmp_path: Path) -> None:
    true = write_checkpoint(tmp_path / "run" / "step_8" / "a.safetensors", seed=1)
    false = write_checkpoint(tmp_path / "false.safetensors", seed=2)
    with lost(true) as victim:
        target = json.dumps({"pid": victim["pid"], "start_ticks": 0, "boot_id": "x"})
        container = ("unshare", "--mount", "--pid", "--fork", "--kill-child")
        with running(FORGED, target, str(false.path), prefix=container):
            pins = reef("pins", "--json")
            code, document = dump_json(victim["pid"], tmp_path / "out")
    assert (pins.code, pins.json["pins"]) == (0, [])
    assert code == 0
    assert [f["sha256"] for f in document["files"]] == [true.sha256]


@pytest.mark.parametrize("missing", [1, 7, 15])
def test_a_file_cut_within_its_last_page_is_never_called_clean(
    tmp_path: Path, missing: int
) -> None:
    checkpoint = write_checkpoint(tmp_path / "run" / "a.safetensors")
    checkpoint.path.write_bytes(checkpoint.data[:-missing])
    with mapping(
        {"path": checkpoint.path, "kind": "private"}, prefix=WITHOUT_CAPABILITIES
    ) as victim:
        checkpoint.path.unlink()
        answer = reef(
            "dump",
            "--pid",
            victim["pid"],
            "--out",
            tmp_path / "out",
            "--json",
            prefix=WITHOUT_CAPABILITIES,
        )
        full = write_checkpoint(tmp_path / "full.safetensors")
        compared = reef(
            "compare", full.path, f"{victim['pid']}:*", "--json", prefix=WITHOUT_CAPABILITIES
        )
    assert (answer.code, answer.json["verdict"]) == (1, "REBUILT_UNVERIFIED")
    assert compared.code == 1


SLOW_WRITER = """
import json, mmap, os, sys, time
fd = os.open(sys.argv[1], os.O_RDWR)
view = mmap.mmap(fd, 0)
os.unlink(sys.argv[1])
generation = 0
print(json.dumps({"pid": os.getpid()}), flush=True)
while True:
    generation = generation % 250 + 1
    for page in range(0, len(view) - 4096, 4096):
        view[page + 2048] = generation
"""


def test_what_a_slow_writer_in_memory_changes_is_never_called_exact() -> None:
    folder = Path(f"/dev/shm/reefkit-torn-{os.getpid()}")
    try:
        checkpoint = write_checkpoint(folder / "a.safetensors", [("t", "U8", (24 << 20,))])
        with running(SLOW_WRITER, str(checkpoint.path)) as victim:
            code, document = dump_json(victim["pid"], folder / "out", "--any-format")
    finally:
        shutil.rmtree(folder)
    assert (code, document["verdict"]) == (1, "CHANGED")


def test_the_command_line_of_a_writer_is_not_recorded(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "run" / "a.safetensors")
    script = """
import json, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
os.unlink(sys.argv[1])
print(json.dumps({"pid": os.getpid()}), flush=True)
sys.stdin.read()
"""
    with running(script, str(checkpoint.path), "--token", "hf_SECRET") as victim:
        code, document = dump_json(victim["pid"], tmp_path / "out")
    assert code == 0
    assert [w["pid"] for w in document["files"][0]["source"]["writers"]] == [victim["pid"]]
    assert "hf_SECRET" not in (tmp_path / "out" / "recovery.json").read_text()


def test_a_second_run_finishes_what_is_partial_and_keeps_what_is_exact(tmp_path: Path) -> None:
    good = write_checkpoint(tmp_path / "run" / "good.safetensors", seed=1)
    cut = write_checkpoint(tmp_path / "run" / "cut.safetensors", seed=2)
    with lost(good, cut) as victim:
        fd = os.open(f"/proc/{victim['pid']}/map_files/{entry(victim['pid'], b'cut')}", os.O_RDWR)
        os.truncate(fd, len(cut.data) - 100)
        first, _ = dump_json(victim["pid"], tmp_path / "out")
        os.pwrite(fd, cut.data[-100:], len(cut.data) - 100)
        os.close(fd)
        again, document = dump_json(victim["pid"], tmp_path / "out")
    record = json.loads((tmp_path / "out" / "recovery.json").read_text())
    assert (first, again) == (1, 0)
    assert [f["sha256"] for f in document["files"]] == [cut.sha256]
    assert {f["sha256"] for f in record["files"]} == {good.sha256, cut.sha256}
    assert record["verdict"] == "FILE_EXACT"


def entry(pid: int, name: bytes) -> str:
    folder = f"/proc/{pid}/map_files"
    return next(e for e in os.listdir(folder) if name in os.readlink(f"{folder}/{e}".encode()))


def test_a_kernel_file_that_is_held_open_is_not_read(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "run" / "a.safetensors")
    script = """
import json, os, sys
held = [os.open(name, os.O_RDONLY) for name in ("/proc/kmsg", sys.argv[1])]
os.unlink(sys.argv[1])
print(json.dumps({"pid": os.getpid()}), flush=True)
sys.stdin.read()
"""
    with running(script, str(checkpoint.path)) as victim:
        done = subprocess.run(
            [sys.executable, "-m", "reefkit.cli", "scan", "--pid", str(victim["pid"])],
            capture_output=True,
            timeout=20,
            check=False,
        )
    assert done.returncode == 0
    assert done.stdout.count(b"\n") == 2


def test_a_leased_file_is_not_opened(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "run" / "a.safetensors")
    script = """
import fcntl, json, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print(json.dumps({"pid": os.getpid()}), flush=True)
sys.stdin.read()
"""
    assert fcntl.F_SETLEASE == 1024
    with running(script, str(checkpoint.path)) as victim:
        answer = reef("scan", "--pid", victim["pid"], "--json")
        time.sleep(0.2)
        assert victim["process"].poll() is None
    assert answer.json["candidates"][0]["blocked_by"]


def test_a_demo_that_is_ended_leaves_nothing_behind(tmp_path: Path) -> None:
    demo = subprocess.Popen(
        [sys.executable, "-m", "reefkit.cli", "demo", "--dir", str(tmp_path)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("*/first")) and time.monotonic() < deadline:
        time.sleep(0.02)
    demo.send_signal(signal.SIGTERM)
    assert demo.wait(60) == 130
    assert list(tmp_path.iterdir()) == []
    mine = [
        pin
        for pin in reef("pins", "--json").json["pins"]
        if any(str(tmp_path) in file["name"] for file in pin["files"])
    ]
    assert mine == []


def test_thousands_of_mappings_of_one_file_are_scanned_at_once(tmp_path: Path) -> None:
    path = tmp_path / "run" / "a.safetensors"
    path.parent.mkdir()
    path.write_bytes(write_header([("t", "U8", (4000 * PAGE,))]) + bytes(4000 * PAGE))
    script = """
import ctypes, json, mmap, os, sys
libc = ctypes.CDLL(None)
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
fd = os.open(sys.argv[1], os.O_RDONLY)
size = os.fstat(fd).st_size
at = libc.mmap(None, size, 3, mmap.MAP_PRIVATE, fd, 0)
os.close(fd)
for page in range(0, 4000, 2):
    libc.mprotect(at + page * 4096, 4096, 1)
print(json.dumps({"pid": os.getpid()}), flush=True)
sys.stdin.read()
"""
    with running(script, str(path), prefix=WITHOUT_CAPABILITIES) as victim:
        path.unlink()
        began = time.monotonic()
        answer = reef("scan", "--pid", victim["pid"], "--json", prefix=WITHOUT_CAPABILITIES)
        seconds = time.monotonic() - began
    assert answer.json["candidates"][0]["tensors"] == 1
    assert seconds < 3


def test_bytes_that_could_be_read_only_once_are_never_called_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = write_checkpoint(tmp_path / "run" / "a.safetensors")

    def fail(self: SecondLook, buffer: memoryview, offset: int) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(SecondLook, "read_into", fail)
    with lost(checkpoint) as victim:
        code = run(recover, ["dump", "--pid", str(victim["pid"]), "--out", str(tmp_path / "out")])
    record = json.loads((tmp_path / "out" / "recovery.json").read_text())
    assert (code, record["verdict"]) == (1, "REBUILT_UNVERIFIED")
    assert record["files"][0]["sha256"] == checkpoint.sha256
