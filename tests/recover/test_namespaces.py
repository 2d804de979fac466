"""Victims in namespaces and chroots of their own, seen from outside."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from victims import MAPPER, Checkpoint, dump_json, mapping, reef, running, write_checkpoint

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="map_files needs a capability: run as root"
)

# Mounts a private tmpfs over $1, moves the folder $2 there as `run`, and becomes the victim.
ON_PRIVATE_TMPFS = 'mount -t tmpfs none "$1" && cp -r "$2" "$1/run" && shift 2 && exec "$@"'
NAMESPACES = {
    "mount": ("--mount",),
    "pid, mount": ("--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
    "user, pid, mount": (
        *("--user", "--map-root-user"),
        *("--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
    ),
}


@dataclass(frozen=True)
class Guest:
    """A victim in namespaces: its process id there and here, and the file as each sees it."""

    inner_pid: int
    pid: int
    checkpoint: Checkpoint
    from_outside: Path


def children_of(pid: int) -> list[int]:
    return [int(n) for n in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@contextmanager
def guest(folder: Path, names: str) -> Generator[Guest, None, None]:
    """Run a victim that maps a file on a tmpfs that only it sees."""
    source = write_checkpoint(folder / "source" / "a.safetensors", seed=1)
    private = folder / "private"
    private.mkdir()
    inside = private / "run" / "a.safetensors"
    options = NAMESPACES[names]
    prefix = ["unshare", *options, "sh", "-c", ON_PRIVATE_TMPFS, "sh"]
    with mapping(
        {"path": inside, "kind": "private"},
        prefix=[*prefix, str(private), str(source.path.parent)],
    ) as victim:
        leader = victim["process"].pid
        pid = children_of(leader)[0] if "--fork" in options else leader
        yield Guest(
            victim["pid"], pid, Checkpoint(inside, source.data), Path(f"/proc/{pid}/root{inside}")
        )


def scanned(pid: int) -> dict[str, Any]:
    rows: list[dict[str, Any]] = reef("scan", "--pid", pid, "--json").json["candidates"]
    (row,) = rows
    return row


@pytest.mark.parametrize("names", NAMESPACES)
def test_a_file_that_only_the_victim_could_see_is_saved_from_outside(
    names: str, tmp_path: Path
) -> None:
    with guest(tmp_path, names) as victim:
        if "pid" in names:
            assert victim.inner_pid == 1 != victim.pid
        shutil.rmtree(victim.from_outside.parent)
        row = scanned(victim.pid)
        code, document = dump_json(victim.pid, tmp_path / "out")
        record = json.loads((tmp_path / "out" / "recovery.json").read_text())
    (file,) = document["files"]
    assert (row["name"], row["state"]) == (str(victim.checkpoint.path), "deleted")
    assert row["route"] == "map_files"
    assert (code, file["verdict"]) == (0, "FILE_EXACT")
    assert file["sha256"] == victim.checkpoint.sha256
    assert Path(file["path"]).read_bytes() == victim.checkpoint.data
    assert record["process"]["pid"] == victim.pid
    assert record["process"]["namespace_pids"][-1] == victim.inner_pid


def test_the_process_that_made_the_namespaces_leads_to_the_victim(tmp_path: Path) -> None:
    with guest(tmp_path, "pid, mount") as victim:
        shutil.rmtree(victim.from_outside.parent)
        (parent,) = (n for n in children_of(os.getpid()) if victim.pid in children_of(n))
        code, document = dump_json(parent, tmp_path / "out")
    (file,) = document["files"]
    assert (code, file["sha256"]) == (0, victim.checkpoint.sha256)
    assert file["source"]["pid"] == victim.pid


@pytest.mark.parametrize("names", NAMESPACES)
@pytest.mark.parametrize("state", ["live", "replaced", "deleted"])
def test_the_state_is_what_the_victim_would_find_at_the_path(
    names: str, state: str, tmp_path: Path
) -> None:
    with guest(tmp_path, names) as victim:
        # Outside, the path says the opposite.
        if state == "deleted":
            write_checkpoint(victim.checkpoint.path, seed=2)
        if state != "live":
            victim.from_outside.unlink()
        if state == "replaced":
            write_checkpoint(victim.from_outside, seed=3)
        row = scanned(victim.pid)
        missing = reef("dump", "--pid", victim.pid, "--out", tmp_path / "out")
    assert row["state"] == state
    assert missing.code == (1 if state == "live" else 0)


IN_A_CHROOT = f"""
import ctypes, json, mmap, os, sys
os.chroot(sys.argv[2])
os.chdir("/")
{MAPPER}
"""


@contextmanager
def prisoner(
    folder: Path, prefix: Sequence[str] = ()
) -> Generator[tuple[int, Checkpoint], None, None]:
    """Run a victim that maps a file below its own root folder."""
    checkpoint = write_checkpoint(folder / "jail" / "run" / "step_8" / "a.safetensors")
    plan = [{"path": "/run/step_8/a.safetensors", "kind": "private"}]
    with running(IN_A_CHROOT, json.dumps(plan), str(folder / "jail"), prefix=prefix) as victim:
        yield victim["pid"], checkpoint


PRISONS = pytest.mark.parametrize(
    "prefix", [(), ("unshare", "--mount")], ids=["same mounts", "own mounts"]
)


@PRISONS
def test_a_file_in_a_chroot_is_saved(prefix: Sequence[str], tmp_path: Path) -> None:
    with prisoner(tmp_path, prefix) as (pid, checkpoint):
        shutil.rmtree(checkpoint.path.parent)
        code, document = dump_json(pid, tmp_path / "out")
    (file,) = document["files"]
    assert (code, file["verdict"], file["sha256"]) == (0, "FILE_EXACT", checkpoint.sha256)
    assert Path(file["path"]).read_bytes() == checkpoint.data
    assert file["path"].endswith("/run/step_8/a.safetensors")


@PRISONS
@pytest.mark.parametrize("state", ["live", "replaced", "deleted"])
def test_the_state_is_right_in_a_chroot(prefix: Sequence[str], state: str, tmp_path: Path) -> None:
    with prisoner(tmp_path, prefix) as (pid, checkpoint):
        if state != "live":
            checkpoint.path.unlink()
        if state == "replaced":
            write_checkpoint(checkpoint.path, seed=2)
        row = scanned(pid)
    assert row["state"] == state
