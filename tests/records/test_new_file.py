"""A new file is there whole, or not at all, and replaces nothing by accident."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from reefkit.errors import DestinationExists, ReefError, Unusable
from reefkit.records.new_file import new_file

root_is_everywhere = pytest.mark.skipif(os.geteuid() != 0, reason="mounts a full disk: run as root")


def write(path: Path, data: bytes, *, force: bool = False) -> None:
    with new_file(path, force=force) as file:
        file.write(data)


def test_it_appears_with_its_content_and_nothing_else_does(tmp_path: Path) -> None:
    write(tmp_path / "a", b"1")
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"a": b"1"}


def test_what_is_there_stays_without_force(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write(path, b"1")
    with pytest.raises(DestinationExists, match="exists already"):
        write(path, b"2")
    assert path.read_bytes() == b"1"
    write(path, b"2", force=True)
    assert path.read_bytes() == b"2"


def test_a_failure_within_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), new_file(tmp_path / "a") as file:
        file.write(bytes(1 // 0))
    assert list(tmp_path.iterdir()) == []


def test_somebody_else_who_was_faster_keeps_the_name(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with pytest.raises(DestinationExists), new_file(path) as file:
        file.write(b"1")
        path.write_bytes(b"other")
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"a": b"other"}


@pytest.mark.parametrize("force", [False, True])
def test_neither_a_link_nor_a_folder_is_replaced(force: bool, tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"1")
    (tmp_path / "link").symlink_to("target")
    (tmp_path / "folder").mkdir()
    for name in ("link", "folder"):
        with pytest.raises(Unusable):
            write(tmp_path / name, b"2", force=force)
    assert (tmp_path / "target").read_bytes() == b"1"


@pytest.mark.parametrize("name", ["none/a", "a\0b", "x" * 300, "file/a", "."])
def test_a_place_that_cannot_be_is_one_sentence(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ReefError):
        write(tmp_path / name, b"1")


@root_is_everywhere
def test_a_full_disk_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    script = (
        f"mount -t tmpfs -o size=64k none {tmp_path} && {sys.executable} -c '\n"
        "import sys\nfrom pathlib import Path\nfrom reefkit.records.new_file import new_file\n"
        "with new_file(Path(sys.argv[1])) as file:\n    file.write(bytes(1 << 20))\n"
        f"' {tmp_path}/a; ls -A {tmp_path}"
    )
    done = subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True)
    assert "no space left" in done.stderr.lower()
    assert done.stdout == ""


def test_after_a_kill_the_next_attempt_cleans_up(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys\nfrom pathlib import Path\n"
        "from reefkit.records.new_file import new_file\n"
        "with new_file(Path(sys.argv[1])) as file:\n"
        "    file.write(b'half'); file.flush(); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "a")], check=False)
    assert not (tmp_path / "a").exists()
    write(tmp_path / "a", b"1")
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
