"""`dump` when things go wrong: nothing lost, nothing claimed that is not so, one clear sentence."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from victims import PAGE, dump_json, lost, mapping, reef, running, write_checkpoint

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="map_files needs a capability: run as root"
)

REEF = (sys.executable, "-m", "reefkit.cli")
LARGE = [(f"t{i}", "U8", (8 << 20,)) for i in range(8)]


def test_a_killed_dump_goes_on_where_it_was(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "run" / "a.safetensors", LARGE)
    out = tmp_path / "out"
    with lost(checkpoint) as victim:
        for delay in (0.15, 0.2, 0.25, 0.3):
            dump = subprocess.Popen(
                [*REEF, "dump", "--pid", str(victim["pid"]), "--out", str(out)],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            time.sleep(delay)
            dump.send_signal(signal.SIGKILL)
            dump.wait()
            if (out / "recovery.json").exists():
                shutil.rmtree(out)
        code, document = dump_json(victim["pid"], out)
    assert (code, document["verdict"]) == (0, "FILE_EXACT")
    assert [p.name for p in (out / tmp_path.name / "run").iterdir()] == ["a.safetensors"]
    assert (out / tmp_path.name / "run" / "a.safetensors").read_bytes() == checkpoint.data


def test_a_run_that_ended_before_its_record_is_taken_up(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "run" / "a.safetensors")
    out = tmp_path / "out"
    with lost(checkpoint) as victim:
        crashing = f"""
import os, sys
from reefkit.recover.save.destination import OutputFolder
OutputFolder.write_record = lambda self, document: os._exit(9)
from reefkit.cli import recover, run
sys.exit(run(recover, ["dump", "--pid", "{victim["pid"]}", "--out", {str(out)!r}]))
"""
        assert subprocess.run([sys.executable, "-c", crashing], check=False).returncode == 9
        assert (out / tmp_path.name / "run" / "a.safetensors.rescue.map").exists()
        code, document = dump_json(victim["pid"], out)
    assert (code, document["verdict"]) == (0, "FILE_EXACT")
    assert document["files"][0]["reads"][1]["independent"] is True
    assert [p.name for p in (out / tmp_path.name / "run").iterdir()] == ["a.safetensors"]


def test_what_memory_once_gave_is_kept_when_it_is_gone(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "run" / "a.safetensors", [("t", "U8", (64 * PAGE,))])
    out = tmp_path / "out"
    size = len(checkpoint.data)
    with mapping({"path": checkpoint.path, "kind": "private"}) as victim:
        os.truncate(checkpoint.path, 32 * PAGE)
        checkpoint.path.unlink()
        code, document = dump_json(victim["pid"], out, "--source", "memory")
        (file,) = document["files"]
        assert (code, file["verdict"]) == (1, "PARTIAL")
        assert file["unread"] == [{"offset": 32 * PAGE, "bytes": size - 32 * PAGE}]
        mapfile = out / tmp_path.name / "run" / "a.safetensors.rescue.map"
        assert "0x00020000  " in mapfile.read_text()


def test_one_blocked_file_does_not_keep_the_others(tmp_path: Path) -> None:
    mapped = write_checkpoint(tmp_path / "run" / "mapped.safetensors", seed=1)
    held = write_checkpoint(tmp_path / "run" / "held.safetensors", seed=2)
    with mapping(
        {"path": mapped.path, "kind": "private"},
        {"path": held.path, "kind": "readonly", "offset": 0, "stop": PAGE, "descriptor": True},
    ) as victim:
        shutil.rmtree(tmp_path / "run")
        code, document = dump_json(victim["pid"], tmp_path / "out", "--source", "memory")
    verdicts = {f["name"]: f["verdict"] for f in document["files"]}
    assert code == 1
    assert verdicts == {"mapped.safetensors": "MEMORY_CLEAN", "held.safetensors": "PARTIAL"}


def test_a_file_that_is_written_meanwhile_is_not_called_exact(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "run" / "a.safetensors", LARGE)
    writer = f"""
import os, sys, time
fd = os.open({str(checkpoint.path)!r}, os.O_RDWR)
os.unlink({str(checkpoint.path)!r})
print("{{}}", flush=True)
while True:
    os.pwrite(fd, os.urandom(4096), 4096)
    time.sleep(0.002)
"""
    with running(writer) as victim:
        pid = victim["process"].pid
        code, document = dump_json(pid, tmp_path / "out")
    (file,) = document["files"]
    assert (code, file["verdict"]) == (1, "CHANGED")
    assert file["source"]["writers"][0]["pid"] == pid
    assert not Path(file["path"].removesuffix(".partial")).exists()


def test_an_output_folder_of_another_process_is_left_alone(tmp_path: Path) -> None:
    one = write_checkpoint(tmp_path / "run1" / "a.safetensors", seed=1)
    two = write_checkpoint(tmp_path / "run2" / "b.safetensors", seed=2)
    with lost(one) as first, lost(two) as second:
        assert dump_json(first["pid"], tmp_path / "out")[0] == 0
        record = (tmp_path / "out" / "recovery.json").read_bytes()
        refused = reef("dump", "--pid", second["pid"], "--out", tmp_path / "out")
    assert refused.code == 2
    assert (tmp_path / "out" / "recovery.json").read_bytes() == record


def test_a_second_dump_of_other_files_keeps_the_record_of_the_first(tmp_path: Path) -> None:
    one = write_checkpoint(tmp_path / "run" / "a.safetensors", seed=1)
    two = write_checkpoint(tmp_path / "run" / "b.safetensors", seed=2)
    with lost(one, two) as victim:
        assert dump_json(victim["pid"], tmp_path / "out", "--match", "a.*")[0] == 0
        assert dump_json(victim["pid"], tmp_path / "out", "--match", "b.*")[0] == 0
    record = json.loads((tmp_path / "out" / "recovery.json").read_text())
    folder = f"{tmp_path.name}/run"
    assert [f["path"] for f in record["files"]] == [
        f"{folder}/a.safetensors",
        f"{folder}/b.safetensors",
    ]


@pytest.mark.parametrize(
    "name",
    [
        b"new\nline",
        b"esc\x1b[31mred",
        "bidi\u202egnp".encode(),
        b"real (deleted)",
        b"not-utf8-\xff\xfe",
        b"x" * 250,
        b"y" * 255,
    ],
)
def test_hostile_names_are_kept_on_disk_and_escaped_on_the_terminal(
    tmp_path: Path, name: bytes
) -> None:
    checkpoint = write_checkpoint(tmp_path / "run" / "a.safetensors")
    path = os.fsencode(tmp_path / "run") + b"/" + name
    os.rename(checkpoint.path, path)
    with mapping({"path": os.fsdecode(path), "kind": "private"}) as victim:
        os.unlink(path)
        answer = reef("dump", "--pid", victim["pid"], "--out", tmp_path / "out")
        scan = reef("scan", "--pid", victim["pid"])
    assert answer.code == scan.code == 0
    saved = os.fsencode(tmp_path / "out" / tmp_path.name / "run") + b"/" + name
    assert os.path.exists(saved)
    assert Path(os.fsdecode(saved)).read_bytes() == checkpoint.data
    for text in (answer.out, answer.err, scan.out, scan.err):
        assert text.isascii() or "\u202e" not in text
        assert "\x1b" not in text
    assert len(scan.out.splitlines()) == 2


def test_headers_that_lie_do_not_keep_the_bytes_from_being_saved(tmp_path: Path) -> None:
    many = ", ".join(f'"t{i}": 1' for i in range(1000))
    bodies = {
        "garbage": (50).to_bytes(8, "little") + b'{"' + os.urandom(200),
        "duplicates": b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
        b'"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}',
        "deep": b'{"a":' + b"[" * 100_000,
        "entries": b"{" + many.encode() + b"}",
        "huge": (100_000_000).to_bytes(8, "little") + b'{"a":' + b" " * 1000,
    }
    for name, body in bodies.items():
        framed = body if name in ("garbage", "huge") else len(body).to_bytes(8, "little") + body
        path = tmp_path / name / "x.safetensors"
        path.parent.mkdir()
        path.write_bytes(framed + b"data")
        with mapping({"path": path, "kind": "private"}) as victim:
            path.unlink()
            code, document = dump_json(victim["pid"], tmp_path / "out" / name)
        (file,) = document["files"]
        assert Path(file["path"]).read_bytes() == framed + b"data", name
        assert (code, file["verdict"]) == (0, "FILE_EXACT"), name
        assert file["header"]["problem"], name
