"""What `scan` finds, what it says became of it, and that no name acts on the terminal."""

from __future__ import annotations

import fcntl
import io
import json
import os
import shutil
import struct
import subprocess
import tempfile
import zipfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from victims import (
    HOSTILE_NAMES,
    MAPPER,
    WITHOUT_CAPABILITIES,
    Answer,
    lost,
    mapping,
    reef,
    running,
    unsafe_for_a_terminal,
    write_checkpoint,
)

from reefkit.errors import HeaderError
from reefkit.recover.formats.safetensors import write_header
from reefkit.recover.formats.sniff import Kind
from reefkit.recover.scan import Candidate, Scanner
from reefkit.recover.states import State

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="it takes capabilities: run as root")

# Holds each file open, or maps it and closes it, as told: no name needs to end in anything.
HOLDER = """
import json, os, sys
held = [os.open(path, os.O_RDWR) for path in json.loads(sys.argv[1])]
print(json.dumps({"pid": os.getpid()}), flush=True)
sys.stdin.read()
"""
MEMFD = """
import ctypes, json, mmap, os, sys
fd = os.memfd_create("weights")
os.write(fd, bytes.fromhex(sys.argv[1]))
held = mmap.mmap(fd, 0, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
os.close(fd)
print(json.dumps({"pid": os.getpid()}), flush=True)
sys.stdin.read()
"""


@contextmanager
def holding(*paths: Path, prefix: tuple[str, ...] = ()) -> Generator[dict[str, Any], None, None]:
    with running(HOLDER, json.dumps([str(path) for path in paths]), prefix=prefix) as victim:
        yield victim


def found_in(*pids: int, any_format: bool = False) -> list[Candidate]:
    scanner = Scanner(any_format=any_format)
    scanner.look_at_all(pids)
    return list(scanner.result().candidates)


def states(pid: int) -> dict[str, State]:
    return {Path(os.fsdecode(c.name)).name: c.state for c in found_in(pid)}


# --- states --------------------------------------------------------------------------------------


def test_deleted_replaced_and_live_are_told_apart(tmp_path: Path) -> None:
    names = ("gone", "overwritten", "there", "moved", "truncated")
    files = {n: write_checkpoint(tmp_path / f"{n}.safetensors").path for n in names}
    plans = [{"path": path, "kind": "private"} for path in files.values()]
    with mapping(*plans) as victim:
        files["gone"].unlink()
        new = write_checkpoint(tmp_path / ".tmpAbCdEf", seed=1)
        os.rename(new.path, files["overwritten"])
        os.rename(files["moved"], tmp_path / "renamed.safetensors")
        found = states(victim["pid"])
    assert found == {
        "gone.safetensors": State.DELETED,
        "overwritten.safetensors": State.REPLACED,
        "there.safetensors": State.LIVE,
        "renamed.safetensors": State.LIVE,
        "truncated.safetensors": State.LIVE,
    }


def test_a_suffix_that_a_name_really_has_says_nothing(tmp_path: Path) -> None:
    live = write_checkpoint(tmp_path / "live (deleted)", seed=1).path
    gone = write_checkpoint(tmp_path / "gone (deleted)", seed=2).path
    middle = write_checkpoint(tmp_path / "middle (deleted).safetensors", seed=3).path
    beside = write_checkpoint(tmp_path / "beside", seed=4).path
    plans = [{"path": p, "kind": "private"} for p in (live, gone, middle, beside)]
    with mapping(*plans) as victim:
        for path in (gone, middle, beside):
            path.unlink()
        write_checkpoint(tmp_path / "beside (deleted)", seed=5)
        found = states(victim["pid"])
    assert found == {
        "live (deleted)": State.LIVE,
        "gone (deleted)": State.DELETED,
        "middle (deleted).safetensors": State.DELETED,
        "beside": State.DELETED,
    }


def test_a_deleted_folder_that_became_a_file_or_another_is_no_longer_the_path(
    tmp_path: Path,
) -> None:
    one = write_checkpoint(tmp_path / "one" / "a.safetensors", seed=1)
    two = write_checkpoint(tmp_path / "two" / "b.safetensors", seed=2)
    with lost(one, two) as victim:
        (tmp_path / "one").write_text("a file now")
        write_checkpoint(two.path, seed=3)
        assert states(victim["pid"]) == {
            "a.safetensors": State.DELETED,
            "b.safetensors": State.REPLACED,
        }


@root_only
def test_the_path_is_looked_up_in_the_process_own_root(tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.mkdir()
    checkpoint = write_checkpoint(tmp_path / "a.safetensors")
    prefix = (
        *("unshare", "--mount", "sh", "-c"),
        'mount -t tmpfs none "$1" && cp "$2" "$1/a.safetensors" && shift 2 && exec "$@"',
        *("sh", str(private), str(checkpoint.path)),
    )
    plan = {"path": private / "a.safetensors", "kind": "private"}
    with mapping(plan, prefix=prefix) as victim:
        inside = Path(f"/proc/{victim['pid']}/root{private}/a.safetensors")
        before = states(victim["pid"])
        inside.unlink()
        write_checkpoint(private / "a.safetensors")  # outside, where the process does not look
        after = states(victim["pid"])
    assert (before, after) == ({"a.safetensors": State.LIVE}, {"a.safetensors": State.DELETED})


# --- what is a candidate -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "4f8f9cd4f6b6ddb1b2ad9d0a5d2e1f6f0c9a3f54f0e8f6bcd1aa0f9b8c7d6e5f",
        ".tmpAbCdEf",
        ".nfs000000000001",
        "model.bin",
        " ",
    ],
)
def test_content_makes_a_candidate_whatever_the_name(tmp_path: Path, name: str) -> None:
    checkpoint = write_checkpoint(tmp_path / "run" / name)
    with lost(checkpoint) as victim:
        (found,) = found_in(victim["pid"])
    assert found.name == os.fsencode(checkpoint.path)
    assert (found.state, found.kind) == (State.DELETED, Kind.SAFETENSORS)


def test_a_memfd_is_a_candidate(tmp_path: Path) -> None:
    data = write_checkpoint(tmp_path / "a", [("t", "F32", (100,))]).data
    with running(MEMFD, data.hex()) as victim:
        (found,) = found_in(victim["pid"])
    assert (found.name, found.state, found.size) == (b"/memfd:weights", State.DELETED, len(data))


def test_an_unlinked_file_in_shared_memory_is_a_candidate() -> None:
    with tempfile.TemporaryDirectory(prefix="reefkit-", dir="/dev/shm") as folder:
        checkpoint = write_checkpoint(Path(folder) / "run" / "weights")
        with lost(checkpoint) as victim:
            (found,) = found_in(victim["pid"])
    assert (found.name, found.state) == (os.fsencode(checkpoint.path), State.DELETED)


def test_a_file_that_is_only_held_open_is_a_candidate(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "a.safetensors")
    with holding(checkpoint.path) as victim:
        checkpoint.path.unlink()
        (found,) = found_in(victim["pid"])
    assert (found.state, found.route) == (State.DELETED, "fd")
    assert found.holdings[0].mappings == ()
    assert len(found.holdings[0].descriptors) == 1


@root_only
def test_one_mapped_page_away_from_the_header_is_enough(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "blob")
    with mapping({"path": checkpoint.path, "kind": "readonly", "offset": 8192}) as victim:
        checkpoint.path.unlink()
        (found,) = found_in(victim["pid"])
    assert (found.kind, found.size) == (Kind.SAFETENSORS, len(checkpoint.data))


@root_only
@pytest.mark.parametrize(
    "prefix",
    [(), WITHOUT_CAPABILITIES],
    ids=["all capabilities", "no capability"],
)
def test_a_file_held_in_three_processes_is_one_row_with_all_of_them(
    tmp_path: Path, prefix: tuple[str, ...]
) -> None:
    checkpoint = write_checkpoint(tmp_path / "a.safetensors")
    plan = {"path": checkpoint.path, "kind": "private"}
    with (
        mapping(plan, prefix=prefix) as one,
        mapping(plan, plan, prefix=prefix) as two,
        holding(checkpoint.path, prefix=prefix) as three,
    ):
        checkpoint.path.unlink()
        arguments = ("scan", "--name", f"*{tmp_path.name}*")
        shown = reef(*arguments, prefix=prefix)
        (found,) = reef(*arguments, "--json", prefix=prefix).json["candidates"]
    assert found["pids"] == sorted(v["pid"] for v in (one, two, three))
    (row,) = shown.out.splitlines()[1:]
    assert row.split()[1] == "+2"


@root_only
def test_names_of_one_inode_in_one_process_are_one_row(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "a.safetensors")
    os.link(checkpoint.path, tmp_path / "b.safetensors")
    plans = [
        {"path": tmp_path / name, "kind": "private"} for name in ("a.safetensors", "b.safetensors")
    ]
    with mapping(*plans) as victim:
        (found,) = found_in(victim["pid"])
        answer = reef("scan", "--pid", victim["pid"])
    assert found.to_json()["pids"] == [victim["pid"]]
    assert " +" not in answer.out


@root_only
def test_a_process_that_maps_only_a_part_hides_no_file_of_another(tmp_path: Path) -> None:
    # Without capabilities only the memory is read, and the first process has no header there.
    checkpoint = write_checkpoint(tmp_path / "blob")
    part = {"path": checkpoint.path, "kind": "readonly", "offset": 8192}
    whole = {"path": checkpoint.path, "kind": "private"}
    with (
        mapping(part, prefix=WITHOUT_CAPABILITIES) as one,
        mapping(whole, prefix=WITHOUT_CAPABILITIES) as two,
    ):
        checkpoint.path.unlink()
        alone = reef("scan", "--pid", two["pid"], prefix=WITHOUT_CAPABILITIES)
        pattern = f"*{tmp_path.name}*"
        answer = reef("scan", "--name", pattern, "--json", prefix=WITHOUT_CAPABILITIES)
    assert alone.code == 0
    assert one["pid"] < two["pid"]
    assert [c["pid"] for c in answer.json["candidates"]] == [two["pid"]]


# --- columns -------------------------------------------------------------------------------------


def test_the_columns_tell_rank_dtypes_and_tensors(tmp_path: Path) -> None:
    adapter = write_checkpoint(
        tmp_path / "a" / "adapter.safetensors",
        [
            ("layers.0.q_proj.lora_A.weight", "BF16", (32, 64)),
            ("layers.0.q_proj.lora_B.weight", "F32", (64, 32)),
        ],
    )
    mixed = write_checkpoint(
        tmp_path / "b" / "mixed.safetensors",
        [(f"layers.{r}.q_proj.lora_A.weight", "F16", (r, 64)) for r in (16, 8)],
    )
    plain = write_checkpoint(tmp_path / "c" / "plain.safetensors", [("w", "I64", (4,))])
    with lost(adapter, mixed, plain) as victim:
        answer = reef("scan", "--pid", victim["pid"])
        rows = reef("scan", "--pid", victim["pid"], "--json").json["candidates"]
    told = {
        Path(row["name"]).name: (row["tensors"], row["dtypes"], row["rank"], row["ranks"])
        for row in rows
    }
    assert told == {
        "adapter.safetensors": (2, ["BF16", "F32"], 32, [32]),
        "mixed.safetensors": (2, ["F16"], None, [8, 16]),
        "plain.safetensors": (1, ["I64"], None, []),
    }
    headings, *lines = answer.out.splitlines()
    column = headings.index("TENSORS")
    shown = {line.rpartition("/")[2]: line[column:].split()[:3] for line in lines}
    assert shown == {
        "adapter.safetensors": ["2", "BF16,F32", "32"],
        "mixed.safetensors": ["2", "F16", "8,16"],
        "plain.safetensors": ["1", "I64", "-"],
    }
    assert [row["size"] for row in rows] == sorted((row["size"] for row in rows), reverse=True)


@pytest.mark.parametrize(
    ("capabilities", "routes"),
    [
        pytest.param((), {"map_files": None}, marks=root_only),
        pytest.param(WITHOUT_CAPABILITIES, {"memory": "map_files"}, marks=root_only),
    ],
    ids=["all", "none"],
)
def test_the_route_and_what_blocks_a_better_one_are_told(
    tmp_path: Path, capabilities: tuple[str, ...], routes: dict[str, str | None]
) -> None:
    checkpoint = write_checkpoint(tmp_path / "run" / "a.safetensors")
    with mapping(
        {"path": checkpoint.path, "kind": "private"}, prefix=WITHOUT_CAPABILITIES
    ) as victim:
        shutil.rmtree(tmp_path / "run")
        answer = reef("scan", "--pid", victim["pid"], "--json", prefix=capabilities)
    ((route, blocker),) = routes.items()
    (row,) = answer.json["candidates"]
    assert row["route"] == route
    assert (blocker or "") in (row["blocked_by"] or "")
    assert bool(row["blocked_by"]) is bool(blocker)


HEADER = write_header([("t", "U8", (8000,))])
JSON = b'{"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"t":{"dtype":"U8","shape":[0],'
DUPLICATE = JSON + b'"data_offsets":[1,1]}}'
DAMAGED = {
    "cut within the header": HEADER[:40],
    "a duplicate": len(DUPLICATE).to_bytes(8, "little") + DUPLICATE + b"x",
    "an absurd length": (1 << 62).to_bytes(8, "little") + HEADER[8:] + bytes(8000),
    "zeros": bytes(10_000),
    "garbage": bytes(range(1, 256)) * 40,
}


@root_only
@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_header_is_a_candidate_by_its_suffix_and_the_problem_is_told(
    tmp_path: Path, damage: str
) -> None:
    path = tmp_path / "run" / "a.safetensors"
    path.parent.mkdir()
    path.write_bytes(DAMAGED[damage])
    with mapping({"path": path, "kind": "private"}) as victim:
        shutil.rmtree(path.parent)
        (found,) = found_in(victim["pid"])
        answer = reef("scan", "--pid", victim["pid"])
    assert (found.state, found.size) == (State.DELETED, len(DAMAGED[damage]))
    assert answer.code == 0
    assert isinstance(found.problem, HeaderError)
    assert found.problem.message in answer.err


def archive() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as opened:
        opened.writestr("archive/data.pkl", b"content")
    return buffer.getvalue()


def test_any_format_lists_every_deleted_file_with_its_kind(tmp_path: Path) -> None:
    contents = {
        "train.log": (b"step 8 reward 175.69\n", "text"),
        "config.json": (b'{"r": 32}', "json"),
        "model.gguf": (b"GGUF\x03\0\0\0" + bytes(100), "gguf"),
        "model.pt": (archive(), "torch-zip"),
        "model.npy": (b"\x93NUMPY\x01\0" + bytes(100), "npy"),
        "empty": (b"", "empty"),
        "noise": (bytes(range(256)), "other"),
        "live.log": (b"still there\n", "text"),
    }
    for name, (content, _) in contents.items():
        (tmp_path / name).write_bytes(content)
    with holding(*(tmp_path / name for name in contents)) as victim:
        for name in contents:
            if name != "live.log":
                (tmp_path / name).unlink()
        by_default = found_in(victim["pid"])
        found = found_in(victim["pid"], any_format=True)
    kinds = {Path(os.fsdecode(c.name)).name: c.kind.value for c in found}
    kinds = {name: kind for name, kind in kinds.items() if name in contents}
    assert by_default == []
    assert kinds == {name: kind for name, (_, kind) in contents.items() if name != "live.log"}


def test_shared_anonymous_memory_is_no_deleted_file() -> None:
    script = """
import mmap, sys
held = mmap.mmap(-1, 1 << 20)
print("{}", flush=True)
sys.stdin.read()
"""
    with running(script) as victim:
        found = found_in(victim["process"].pid, any_format=True)
    assert [c.name for c in found if c.name.startswith(b"/dev/zero")] == []


# --- what cannot be opened -----------------------------------------------------------------------


@pytest.fixture
def failing_disk(tmp_path: Path) -> Generator[Callable[[], None], None, None]:
    """Mount a filesystem on `tmp_path/disk`; give what makes it fail."""
    image, disk = tmp_path / "image", tmp_path / "disk"
    disk.mkdir()
    with image.open("wb") as file:
        file.truncate(16 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, disk], check=True)

    def fail() -> None:
        os.sync()
        fd = os.open(disk, os.O_RDONLY)
        fcntl.ioctl(fd, 0x8004587D, struct.pack("=I", 1))  # EXT4_IOC_SHUTDOWN, fs/ext4/ext4.h
        os.close(fd)

    try:
        yield fail
    finally:
        subprocess.run(["umount", disk], check=True)


@root_only
@pytest.mark.skipif(shutil.which("mkfs.ext4") is None, reason="mkfs.ext4 is not there")
@pytest.mark.parametrize("command", ["scan", "dump"])
def test_a_file_on_a_failed_disk_keeps_no_other_from_being_found(
    tmp_path: Path, failing_disk: Callable[[], None], command: str
) -> None:
    lost_with_it = write_checkpoint(tmp_path / "disk" / "a.safetensors", seed=1)
    other = write_checkpoint(tmp_path / "run" / "b.safetensors", seed=2)
    plans = [{"path": c.path, "kind": "private"} for c in (lost_with_it, other)]
    with mapping(*plans) as victim:
        other.path.unlink()
        failing_disk()
        arguments = ("--out", tmp_path / "out") if command == "dump" else ()
        answer = reef(command, "--pid", victim["pid"], "--json", *arguments)
    found = answer.json["files" if command == "dump" else "candidates"]
    assert "b.safetensors" in [Path(row["name"]).name for row in found]


FEW_DESCRIPTORS = ("sh", "-c", 'ulimit -Sn 64; exec "$@"', "sh")


@root_only
@pytest.mark.parametrize("command", ["scan", "pin", "compare"])
def test_more_files_than_the_soft_limit_allows_are_held(tmp_path: Path, command: str) -> None:
    names = [f"{i:03}.safetensors" for i in range(100)]
    shards = [write_checkpoint(tmp_path / "run" / name, [("t", "U8", (64,))]) for name in names]
    with lost(*shards) as victim:
        pid = victim["pid"]
        arguments = [f"{pid}:*099.safetensors"] * 2 if command == "compare" else ["--pid", pid]
        try:
            answer = reef(command, *arguments, prefix=FEW_DESCRIPTORS)
        finally:
            reef("unpin", "--pid", pid)
    assert answer.code == 0, answer.err


# --- nothing -------------------------------------------------------------------------------------


def test_nothing_found_says_what_was_looked_at() -> None:
    with running('import sys; print("{}", flush=True); sys.stdin.read()') as victim:
        pid = victim["process"].pid
        answer = reef("scan", "--pid", pid)
        document = reef("scan", "--pid", pid, "--json")
    assert (answer.code, answer.out) == (1, "")
    looked_at = document.json["looked_at"]
    assert (document.code, document.json["candidates"]) == (1, [])
    assert looked_at["processes"] == 1
    assert looked_at["files"] > 1
    assert f"looked at {looked_at['files']} files of 1 process" in answer.err


@root_only
def test_processes_that_may_not_be_looked_into_are_counted() -> None:
    with running('import sys; print("{}", flush=True); sys.stdin.read()') as victim:
        pid = victim["process"].pid
        refused = reef("scan", "--pid", pid, prefix=WITHOUT_CAPABILITIES)
        everything = reef("scan", "--json", prefix=WITHOUT_CAPABILITIES)
    assert refused.code == 2
    assert f"doctor --pid {pid}" in refused.err
    assert pid in [r["pid"] for r in everything.json["looked_at"]["refused"]]


# --- hostile names -------------------------------------------------------------------------------


def assert_harmless(answer: Answer) -> None:
    assert unsafe_for_a_terminal(answer.out + answer.err) == [], answer


@pytest.fixture
def hostile(tmp_path: Path) -> Generator[dict[str, Any], None, None]:
    """A victim with hostile arguments that lost files of every hostile name."""
    paths = [os.fsencode(tmp_path) + b"/run/" + name for name in HOSTILE_NAMES]
    tensor = "t\x1b[31m\u202e\n"
    data = write_checkpoint(tmp_path / "run" / "plain", [(tensor, "U8", (5000,))]).data
    for path in paths:
        with open(path, "wb") as file:
            file.write(data)
    plans = [{"path": os.fsdecode(path), "kind": "private", "dirty": [4999]} for path in paths]
    arguments = json.dumps(plans), "\x1b]0;owned\x07", "\u202e", "a\nb", os.fsdecode(b"\xff\x9b")
    with running(MAPPER, *arguments) as victim:
        shutil.rmtree(tmp_path / "run")
        yield {**victim, "paths": paths}


@root_only
def test_hostile_names_stay_inside_their_row(hostile: dict[str, Any]) -> None:
    answer = reef("scan", "--pid", hostile["pid"])
    assert_harmless(answer)
    rows = answer.out.splitlines()
    assert len(rows) == 1 + len(HOSTILE_NAMES)
    assert len(set(rows)) == len(rows)
    assert all(row.startswith((str(hostile["pid"]), "PID")) for row in rows)


@root_only
def test_hostile_names_reach_json_escaped_and_dump_gets_them_all(
    hostile: dict[str, Any], tmp_path: Path
) -> None:
    scan = reef("scan", "--pid", hostile["pid"], "--json")
    dump = reef("dump", "--pid", hostile["pid"], "--json", "--out", tmp_path / "out")
    assert_harmless(scan)
    assert_harmless(dump)
    shown = {path.decode("utf-8", "backslashreplace") for path in hostile["paths"]}
    assert {row["name"] for row in scan.json["candidates"]} == shown
    assert {f["source"]["path"] for f in dump.json["files"]} == shown
    assert {f["source"]["path_bytes"] for f in dump.json["files"]} == {
        path.hex() for path in hostile["paths"]
    }
    (folder,) = (tmp_path / "out").glob("*/run")
    assert sorted(os.listdir(os.fsencode(folder))) == sorted(HOSTILE_NAMES)


@root_only
def test_json_holds_no_lone_surrogates(hostile: dict[str, Any], tmp_path: Path) -> None:
    # RFC 8259 section 8.2 leaves open what a reader makes of them; many refuse the document.
    for answer in (
        reef("scan", "--pid", hostile["pid"], "--json"),
        reef("dump", "--pid", hostile["pid"], "--json", "--out", tmp_path / "out"),
    ):
        json.dumps(answer.json, ensure_ascii=False).encode()


@root_only
@pytest.mark.parametrize("source", ["file", "memory"])
def test_what_dump_says_of_hostile_names_is_harmless(
    hostile: dict[str, Any], tmp_path: Path, source: str
) -> None:
    out = tmp_path / os.fsdecode(b"out\x1b[31m\n\xff")
    arguments = ("dump", "--pid", hostile["pid"], "--source", source, "--out", out)
    first, again = reef(*arguments), reef(*arguments)
    for answer in (first, again):
        assert_harmless(answer)
    assert first.out.count("sha256") == len(HOSTILE_NAMES)
    assert (again.code, again.out) == (2, "")
    assert "exists already" in again.err


@root_only
@pytest.mark.parametrize(
    "arguments",
    [
        ("dump", "--match", "\x1b[31m\u202e\n*"),
        ("dump", "--out", "/proc/\x1b[31m\n"),
        ("dump", "--\x1b[31m\n\u202e"),
        ("pin", "--match", "\x1b[31m\n"),
        ("\x1b[31m\n\u202e",),
        ("compare", "/nowhere/\x1b[31m\u202e\n\udcff", "/nowhere"),
        ("compare", "PID:*", "PID:*"),
        ("compare", "PID:\x1b[31m\udcff\n", "/nowhere"),
        ("demo", "--dir", "/nowhere/\x1b[31m\n"),
        ("scan", "--pid", "\x1b[31m\n\u202e"),
    ],
    ids=ascii,
)
def test_what_errors_say_of_hostile_names_is_harmless(
    hostile: dict[str, Any], tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    command, *rest = (text.replace("PID", str(hostile["pid"])) for text in arguments)
    if command in ("dump", "pin"):
        rest = ["--pid", str(hostile["pid"]), *rest]
    answer = reef(command, *rest)
    assert_harmless(answer)
    assert answer.code in (1, 2)
    assert answer.err.startswith("Error: ")
    assert len(answer.err.splitlines()) <= 2
    assert "fault of reefkit" not in answer.err


@root_only
def test_hostile_tensor_names_of_a_damaged_header_are_harmless(tmp_path: Path) -> None:
    tensor = json.dumps(
        {"t\x1b[31m\n\u202e": {"dtype": "NONE", "shape": [], "data_offsets": [0, 0]}}
    )
    path = tmp_path / "a.safetensors"
    path.write_bytes(len(tensor).to_bytes(8, "little") + tensor.encode())
    with mapping({"path": path, "kind": "private"}) as victim:
        answer = reef("scan", "--pid", victim["pid"])
    assert_harmless(answer)
    assert "Damaged header" in answer.err
