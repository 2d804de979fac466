"""What `dump` saves, and what it claims of it, on real processes."""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
import time
from io import BytesIO
from pathlib import Path

import pytest
from victims import (
    MAPPER,
    PAGE,
    WITHOUT_CAPABILITIES,
    dump_json,
    lost,
    mapping,
    reef,
    running,
    write_checkpoint,
)

from reefkit.recover.formats.safetensors import write_header

MTIME = 1_600_000_000_123_456_789
root_only = pytest.mark.skipif(
    os.geteuid() != 0, reason="map_files needs a capability: run as root"
)


@root_only
def test_a_deleted_file_comes_back_byte_for_byte(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "run" / "step_8" / "adapter_model.safetensors")
    os.chmod(checkpoint.path, 0o640)
    os.utime(checkpoint.path, ns=(MTIME, MTIME))
    with lost(checkpoint) as victim:
        code, document = dump_json(victim["pid"], tmp_path / "out")
    saved = tmp_path / "out" / "run" / "step_8" / "adapter_model.safetensors"
    assert code == 0
    assert saved.read_bytes() == checkpoint.data
    assert (saved.stat().st_mode & 0o7777, saved.stat().st_mtime_ns) == (
        0o640,
        MTIME,
    )
    (file,) = document["files"]
    assert file["path"] == str(saved)
    assert (file["verdict"], file["sha256"]) == ("FILE_EXACT", checkpoint.sha256)
    assert [read["sha256"] for read in file["reads"]] == [checkpoint.sha256] * 2
    record = json.loads((tmp_path / "out" / "recovery.json").read_text())
    assert record["files"][0]["path"] == "run/step_8/adapter_model.safetensors"
    assert record["process"]["pid"] == victim["pid"]
    assert sorted(p.name for p in saved.parent.iterdir()) == [saved.name]


@root_only
def test_the_file_route_gives_the_original_where_memory_was_modified(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "run" / "a.safetensors")
    with lost(checkpoint, dirty=[60_000]) as victim:
        code, document = dump_json(victim["pid"], tmp_path / "file")
        memory_code, memory = dump_json(victim["pid"], tmp_path / "mem", "--source", "memory")
        both_code, both = dump_json(victim["pid"], tmp_path / "both", "--against-memory")
    assert (code, document["files"][0]["sha256"]) == (0, checkpoint.sha256)
    assert (memory_code, memory["verdict"]) == (1, "MEMORY_DIRTY")
    assert both_code == 0
    touched = ["base_model.model.layers.1.q_proj.lora_B.weight"]
    assert memory["files"][0]["dirty_tensors"] == both["files"][0]["dirty_tensors"] == touched
    changed = bytearray(checkpoint.data)
    changed[60_000] ^= 0xFF
    assert memory["files"][0]["sha256"] == hashlib.sha256(changed).hexdigest()
    assert both["files"][0]["reads"][2]["sha256"] is None


@root_only
def test_unmodified_memory_is_proven_clean(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "run" / "a.safetensors")
    with lost(checkpoint) as victim:
        code, document = dump_json(victim["pid"], tmp_path / "out", "--source", "memory")
    assert (code, document["verdict"]) == (0, "MEMORY_CLEAN")
    assert document["files"][0]["sha256"] == checkpoint.sha256


@root_only
def test_one_mapped_page_gives_the_whole_file(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "run" / "a.safetensors")
    with lost(checkpoint, kind="readonly", offset=2 * PAGE, stop=3 * PAGE) as victim:
        code, document = dump_json(victim["pid"], tmp_path / "out")
        memory_code, memory = dump_json(victim["pid"], tmp_path / "mem", "--source", "memory")
    assert (code, document["files"][0]["sha256"]) == (0, checkpoint.sha256)
    assert (memory_code, memory["verdict"]) == (1, "PARTIAL")
    size = len(checkpoint.data)
    assert memory["files"][0]["unread"] == [
        {"offset": 0, "bytes": 2 * PAGE},
        {"offset": 3 * PAGE, "bytes": size - 3 * PAGE},
    ]


@root_only
def test_two_files_of_one_name_keep_their_folders_apart(tmp_path: Path) -> None:
    one = write_checkpoint(tmp_path / "a" / "run" / "step_8" / "adapter_model.safetensors", seed=1)
    two = write_checkpoint(tmp_path / "b" / "run" / "step_8" / "adapter_model.safetensors", seed=2)
    three = write_checkpoint(tmp_path / "c" / "step_9" / "adapter_model.safetensors", seed=3)
    with lost(one, two, three) as victim:
        code, document = dump_json(victim["pid"], tmp_path / "out")
    assert code == 0
    places = {
        str(Path(f["path"]).relative_to(tmp_path / "out")): f["sha256"] for f in document["files"]
    }
    assert set(places.values()) == {one.sha256, two.sha256, three.sha256}
    assert set(places) == {
        "run/step_8/adapter_model.safetensors",
        "run/step_8.2/adapter_model.safetensors",
        "c/step_9/adapter_model.safetensors",
    }


@root_only
def test_a_file_overwritten_by_rename_is_the_one_that_was_mapped(tmp_path: Path) -> None:
    old = write_checkpoint(tmp_path / "run" / "a.safetensors", seed=1)
    with mapping({"path": old.path, "kind": "private"}) as victim:
        new = write_checkpoint(tmp_path / "run" / ".tmpAbCdEf", seed=2)
        os.rename(new.path, old.path)
        scan = reef("scan", "--pid", victim["pid"], "--json").json
        code, document = dump_json(victim["pid"], tmp_path / "out")
    assert [c["state"] for c in scan["candidates"]] == ["replaced"]
    assert (code, document["files"][0]["sha256"]) == (0, old.sha256)


@root_only
def test_a_file_that_lost_its_end_is_partial_and_its_tensors_are_named(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "run" / "a.safetensors")
    size = len(checkpoint.data)
    with mapping({"path": checkpoint.path, "kind": "private"}) as victim:
        os.truncate(checkpoint.path, size - 20_000)
        os.unlink(checkpoint.path)
        code, document = dump_json(victim["pid"], tmp_path / "out")
    (file,) = document["files"]
    assert (code, file["verdict"]) == (1, "PARTIAL")
    assert file["unread"] == [{"offset": size - 20_000, "bytes": 20_000}]
    assert file["header"]["coverage"]["short_by"] == 20_000
    assert file["header"]["coverage"]["absent"] == [
        "base_model.model.layers.3.q_proj.lora_B.weight"
    ]
    assert Path(file["path"]).read_bytes() == checkpoint.data[:-20_000]
    assert file["path"].endswith(".partial")


@root_only
def test_trailing_bytes_are_kept_and_reported(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "run" / "a.safetensors", extra=b"tail" * 3)
    with lost(checkpoint) as victim:
        code, document = dump_json(victim["pid"], tmp_path / "out")
        memory_code, memory = dump_json(victim["pid"], tmp_path / "mem", "--source", "memory")
    assert (code, document["files"][0]["sha256"]) == (0, checkpoint.sha256)
    assert document["files"][0]["header"]["coverage"]["trailing"] == 12
    assert (memory_code, memory["verdict"]) == (0, "MEMORY_CLEAN")


@root_only
def test_the_expected_digest_decides_the_exit_code(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "run" / "a.safetensors")
    with lost(checkpoint) as victim:
        right, good = dump_json(
            victim["pid"], tmp_path / "a", "--expect-sha256", checkpoint.sha256.upper()
        )
        wrong, bad = dump_json(victim["pid"], tmp_path / "b", "--expect-sha256", "0" * 64)
        usage = reef("dump", "--pid", victim["pid"], "--expect-sha256", "abc")
    assert (right, good["files"][0]["matches_expected"]) == (0, True)
    assert (wrong, bad["files"][0]["matches_expected"]) == (1, False)
    assert bad["verdict"] == "FILE_EXACT"
    assert usage.code == 2


@root_only
def test_a_known_digest_verifies_what_memory_alone_cannot_prove(tmp_path: Path) -> None:
    header = write_header([("t", "U8", (8000,))])
    path = tmp_path / "run" / "zeros.safetensors"
    path.parent.mkdir()
    path.write_bytes(header + bytes(8000))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    # With all capabilities the size is known; without any, only the header tells it.
    with mapping({"path": path, "kind": "private"}, prefix=WITHOUT_CAPABILITIES) as victim:
        path.unlink()
        arguments = ("dump", "--pid", victim["pid"], "--json", "--out")
        plain = reef(*arguments, tmp_path / "a", prefix=WITHOUT_CAPABILITIES)
        known = reef(
            *arguments, tmp_path / "b", "--expect-sha256", digest, prefix=WITHOUT_CAPABILITIES
        )
    assert (plain.code, known.code) == (1, 0), plain.err + known.err
    assert plain.json["verdict"] == "REBUILT_UNVERIFIED"
    assert known.json["verdict"] == "REBUILT_VERIFIED"


@root_only
def test_one_file_streams_raw_and_several_as_tar(tmp_path: Path) -> None:
    one = write_checkpoint(tmp_path / "run" / "step_1" / "a.safetensors", seed=1)
    two = write_checkpoint(tmp_path / "run" / "step_2" / "b.safetensors", seed=2)
    with lost(one, two) as victim:
        raw = reef("dump", "--pid", victim["pid"], "--match", "a.safetensors", "--out", "-")
        tar = reef("dump", "--pid", victim["pid"], "--out", "-")
        refused = reef("dump", "--pid", victim["pid"], "--out", "-", "--json")
    assert raw.code == tar.code == 0
    assert os.fsencode(raw.out) == one.data
    assert one.sha256 in raw.err
    with tarfile.open(fileobj=BytesIO(os.fsencode(tar.out))) as archive:
        contents = {m.name: archive.extractfile(m) for m in archive.getmembers()}
        read = {name: file.read() for name, file in contents.items() if file is not None}
    assert read["run/step_1/a.safetensors"] == one.data
    assert read["run/step_2/b.safetensors"] == two.data
    assert json.loads(read["recovery.json"])["verdict"] == "FILE_EXACT"
    assert (refused.code, json.loads(refused.out)["schema"]) == (2, "reefkit.error/1")


@root_only
def test_a_child_that_holds_the_file_is_found(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "run" / "a.safetensors")
    parent = """
import json, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1], sys.argv[2]], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, text=True)
line = json.loads(child.stdout.readline())
print(json.dumps({"pid": __import__("os").getpid(), "child": line["pid"]}), flush=True)
sys.stdin.read()
child.kill()
"""
    plan = json.dumps([{"path": str(checkpoint.path), "kind": "private"}])
    with running(parent, MAPPER, plan) as victim:
        checkpoint.path.unlink()
        with_children = dump_json(victim["pid"], tmp_path / "out")[1]
        alone = reef("dump", "--pid", victim["pid"], "--no-children", "--out", tmp_path / "no")
        victim["process"].stdin.close()
        victim["process"].wait()
    assert with_children["files"][0]["sha256"] == checkpoint.sha256
    assert with_children["files"][0]["source"]["pid"] == victim["child"]
    assert alone.code == 1
    assert "looked at" in alone.err


@root_only
def test_any_format_saves_logs_and_other_deleted_files(tmp_path: Path) -> None:
    log = tmp_path / "run" / "train.log"
    log.parent.mkdir()
    log.write_text("step 8 reward 175.69\n")
    with mapping({"path": log, "kind": "readonly", "descriptor": True}) as victim:
        log.unlink()
        default = reef("dump", "--pid", victim["pid"], "--out", tmp_path / "a")
        code, document = dump_json(victim["pid"], tmp_path / "b", "--any-format")
    assert default.code == 1
    names = {f["name"]: Path(f["path"]) for f in document["files"]}
    assert code == 0
    assert names["train.log"].read_text() == "step 8 reward 175.69\n"


def vitals(pid: int) -> tuple[str, ...]:
    """Resident memory, page faults, tracer and state, once the process has come to rest."""
    while True:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        status = dict(line.split(":\t", 1) for line in lines)
        if status["State"].startswith("S"):
            faults = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[7:11]
            return (status["VmRSS"], status["TracerPid"], *faults)
        time.sleep(0.01)


@root_only
def test_the_target_is_neither_stopped_nor_grown_by_the_file_route(tmp_path: Path) -> None:
    big = [("t", "U8", (32 << 20,))]
    checkpoint = write_checkpoint(tmp_path / "run" / "a.safetensors", big)

    with lost(checkpoint) as victim:
        before = vitals(victim["pid"])
        code, _ = dump_json(victim["pid"], tmp_path / "out")
        assert vitals(victim["pid"]) == before
    assert code == 0
