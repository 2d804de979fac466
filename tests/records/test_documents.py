"""Small files are old or new, never half, and land where they were meant to."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reefkit.records.documents import read_file, to_text, write_atomically

OLD, NEW = b"old" * 1000, b"new" * 2000


class Crash(BaseException):
    """The machine stops here."""


@pytest.fixture
def folder(tmp_path: Path) -> Generator[int, None, None]:
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), json_values))
def test_a_document_is_one_line_of_ascii_after_another_and_reads_back(
    document: dict[str, object],
) -> None:
    text = to_text(document)
    assert json.loads(text) == document
    assert text.endswith("\n")
    assert text.isascii()
    assert text == to_text(dict(reversed(document.items())))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_no_document_holds_what_json_does_not_have(value: float) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        to_text({"a": [{"b": value}]})


def test_a_file_is_replaced_whole(tmp_path: Path, folder: int) -> None:
    write_atomically(folder, "a", OLD)
    write_atomically(folder, "a", NEW)
    assert (tmp_path / "a").read_bytes() == NEW
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644])
def test_a_file_gets_its_mode_and_is_private_if_none_is_given(
    tmp_path: Path, folder: int, mode: int
) -> None:
    (tmp_path / "a").touch(0o666)
    previous = os.umask(0o022)
    try:
        write_atomically(folder, "a", NEW, mode)
        write_atomically(folder, "b", NEW)
    finally:
        os.umask(previous)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == mode
    assert stat.S_IMODE((tmp_path / "b").stat().st_mode) == 0o600


@pytest.mark.parametrize("target", ["outside", "nowhere"])
def test_a_link_is_replaced_and_not_followed(tmp_path: Path, folder: int, target: str) -> None:
    (tmp_path / "outside").write_bytes(OLD)
    (tmp_path / "a").symlink_to(target)
    write_atomically(folder, "a", NEW)
    assert not (tmp_path / "a").is_symlink()
    assert (tmp_path / "a").read_bytes() == NEW
    assert (tmp_path / "outside").read_bytes() == OLD
    assert sorted(os.listdir(tmp_path)) == ["a", "outside"]


def test_another_link_to_the_old_file_keeps_it(tmp_path: Path, folder: int) -> None:
    write_atomically(folder, "a", OLD)
    os.link(tmp_path / "a", tmp_path / "b")
    write_atomically(folder, "a", NEW)
    assert (tmp_path / "b").read_bytes() == OLD


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), Crash()], ids=repr)
@pytest.mark.parametrize("name", ["rename", "fsync"])
@pytest.mark.parametrize("turn", [0, 1])
@pytest.mark.parametrize("existed", [False, True])
def test_a_failure_at_any_step_leaves_the_old_or_the_new_file(
    tmp_path: Path,
    folder: int,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    turn: int,
    existed: bool,
    error: BaseException,
) -> None:
    if existed:
        write_atomically(folder, "a", OLD)
    real = getattr(os, name)
    calls = iter(range(100))

    def failing(*arguments: object, **named: object) -> object:
        if next(calls) == turn:
            raise error
        return real(*arguments, **named)

    monkeypatch.setattr(os, name, failing)
    failed = False
    try:
        write_atomically(folder, "a", NEW)
    except (OSError, Crash) as caught:
        failed = caught is error
    assert failed is not (name == "rename" and turn == 1)  # there is one rename and two fsyncs
    renamed = (name, turn) in (("rename", 1), ("fsync", 1))
    expected = [NEW] if renamed else [OLD] if existed else []
    assert [(tmp_path / entry).read_bytes() for entry in os.listdir(tmp_path)] == expected


def test_the_data_is_on_the_disk_before_the_name_is(
    tmp_path: Path, folder: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    sync, rename = os.fsync, os.rename

    def record_sync(fd: int) -> None:
        kind = "folder" if stat.S_ISDIR(os.fstat(fd).st_mode) else "file"
        steps.append(f"sync {kind} of {os.fstat(fd).st_size if kind == 'file' else '-'}")
        sync(fd)

    def record_rename(*arguments: Any, **folders: Any) -> None:
        steps.append("rename")
        rename(*arguments, **folders)

    monkeypatch.setattr(os, "fsync", record_sync)
    monkeypatch.setattr(os, "rename", record_rename)
    write_atomically(folder, "a", NEW)
    assert steps == [f"sync file of {len(NEW)}", "rename", "sync folder of -"]


# --- reading -------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 99, 100])
def test_a_file_up_to_the_limit_is_read(tmp_path: Path, folder: int, size: int) -> None:
    (tmp_path / "a").write_bytes(b"x" * size)
    assert read_file(folder, "a", 100) == b"x" * size


def test_a_larger_file_is_refused_without_being_read_whole(tmp_path: Path, folder: int) -> None:
    with (tmp_path / "a").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ValueError, match="larger than 100 bytes"):
        read_file(folder, "a", 100)


def test_what_is_not_there_is_none(folder: int) -> None:
    assert read_file(folder, "a", 100) is None


def test_a_link_is_not_followed_when_reading(tmp_path: Path, folder: int) -> None:
    (tmp_path / "target").write_bytes(OLD)
    (tmp_path / "a").symlink_to("target")
    with pytest.raises(OSError, match="symbolic"):
        read_file(folder, "a", 1 << 20)


@pytest.mark.parametrize("writer", [False, True])
def test_a_pipe_gives_nothing_and_does_not_block(tmp_path: Path, folder: int, writer: bool) -> None:
    os.mkfifo(tmp_path / "a")
    ends = [os.open(tmp_path / "a", os.O_RDWR)] if writer else []
    try:
        assert read_file(folder, "a", 100) is None
    finally:
        for fd in ends:
            os.close(fd)


def test_a_folder_is_no_file_and_leaves_no_descriptor_open(tmp_path: Path, folder: int) -> None:
    (tmp_path / "a").mkdir()
    before = os.listdir("/proc/self/fd")
    assert read_file(folder, "a", 100) is None
    assert os.listdir("/proc/self/fd") == before
