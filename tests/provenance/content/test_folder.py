"""Folders: everything in them is a member, nothing outside of them is read."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from zips import zipped

from reefkit.errors import NotPermitted, ReefError, Unusable
from reefkit.provenance.content import folder_access
from reefkit.provenance.content.folder import FolderContent
from reefkit.provenance.content.members import Member, MemberKind
from reefkit.provenance.content.open import open_content
from reefkit.provenance.finding import FindingKind


@pytest.fixture(params=["by handle", "by path"])
def access(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Work as POSIX does, and as systems do that have no handles of folders."""
    if request.param == "by path":
        monkeypatch.setattr(os, "supports_dir_fd", set[object]())
        monkeypatch.setattr(os, "supports_fd", set[object]())
        for name in ("_NO_LINK", "_NO_WAIT", "_FOLDER"):
            monkeypatch.setattr(folder_access, name, 0)
        monkeypatch.setattr(folder_access, "_READ_FILE", os.O_RDONLY | os.O_NONBLOCK)
    return str(request.param)


def read(content: FolderContent, name: str) -> bytes:
    member = next(m for m in content.members if m.name == name)
    with content.open(member) as file:
        return file.read()


def test_every_kind_is_a_member(access: str, tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").write_bytes(b"12345")
    (tmp_path / "a" / "empty").mkdir()
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_bytes(b"ref")
    (tmp_path / "to-file").symlink_to("a/b/file")
    (tmp_path / "to-folder").symlink_to("a")
    (tmp_path / "dangling").symlink_to("nowhere")
    os.mkfifo(tmp_path / "fifo")
    server = socket.socket(socket.AF_UNIX)
    here = Path.cwd()
    os.chdir(tmp_path)
    try:
        server.bind("socket")
    finally:
        os.chdir(here)
        server.close()
    content = FolderContent(tmp_path)
    assert content.members == (
        Member(".git/HEAD", MemberKind.FILE, 3),
        Member("a/b/file", MemberKind.FILE, 5),
        Member("a/empty", MemberKind.EMPTY_FOLDER),
        Member("dangling", MemberKind.LINK),
        Member("fifo", MemberKind.SPECIAL),
        Member("socket", MemberKind.SPECIAL),
        Member("to-file", MemberKind.LINK),
        Member("to-folder", MemberKind.LINK),
    )
    assert content.findings == ()
    for member in content.members:
        if member.kind is not MemberKind.FILE:
            with pytest.raises(Unusable, match="not read"):
                content.open(member)


def test_an_empty_folder_has_no_members(access: str, tmp_path: Path) -> None:
    assert FolderContent(tmp_path).members == ()


def test_files_are_read_without_a_buffer(access: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"0123456789")
    content = FolderContent(tmp_path)
    with content.open(content.members[0]) as file:
        buffer = bytearray(4)
        assert file.readinto(buffer) == 4  # type: ignore[attr-defined]
        assert buffer == b"0123" and os.lseek(file.fileno(), 0, os.SEEK_CUR) == 4
        assert file.seek(8) == 8 and file.read() == b"89"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse these names")
def test_odd_names_are_kept_and_sorted_by_their_bytes(access: str, tmp_path: Path) -> None:
    names = [
        b"\xff\xfe",
        b"new\nline",
        b" lead",
        b"trail ",
        "ü".encode(),
        b"-",
        b"\xf0\x9f\x90\xa0",
        b"z",
    ]
    for name in names:
        with open(os.path.join(os.fsencode(tmp_path), name), "wb") as file:
            file.write(name)
    content = FolderContent(tmp_path)
    assert [m.name.encode("utf-8", "surrogateescape") for m in content.members] == sorted(names)
    for member in content.members:
        assert read(content, member.name) == member.name.encode("utf-8", "surrogateescape")


def test_a_link_swapped_in_is_not_followed(access: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"private")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "f").write_bytes(b"public!")
    content = FolderContent(tmp_path / "in")
    (tmp_path / "in" / "f").unlink()
    (tmp_path / "in" / "f").symlink_to(secret)
    with pytest.raises(Unusable, match=r"link|regular"):
        content.open(content.members[0])


def test_a_folder_swapped_for_a_link_leads_nowhere_else(access: str, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_bytes(b"private")
    (tmp_path / "in" / "sub").mkdir(parents=True)
    (tmp_path / "in" / "sub" / "f").write_bytes(b"public!")
    content = FolderContent(tmp_path / "in")
    shutil.move(tmp_path / "in" / "sub", tmp_path / "moved")
    (tmp_path / "in" / "sub").symlink_to(outside)
    try:
        assert read(content, "sub/f") == b"public!"  # the folder that was listed is held open
    except ReefError as error:
        assert "cannot be opened" in error.message


@pytest.mark.parametrize("kind", ["fifo", "folder", "gone"])
def test_what_is_no_file_any_more_is_refused_at_once(
    access: str, tmp_path: Path, kind: str
) -> None:
    (tmp_path / "f").write_bytes(b"x")
    content = FolderContent(tmp_path)
    (tmp_path / "f").unlink()
    if kind == "fifo":
        os.mkfifo(tmp_path / "f")
    elif kind == "folder":
        (tmp_path / "f").mkdir()
    with pytest.raises(Unusable, match="cannot be opened"):
        content.open(content.members[0])


def test_a_listing_that_fails_is_a_finding(
    access: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "locked").mkdir()
    (tmp_path / "locked" / "f").write_bytes(b"x")
    (tmp_path / "open").write_bytes(b"x")
    scandir = os.scandir
    calls: list[object] = []

    def refuse_the_second(path: int | str) -> Iterator[os.DirEntry[str]]:
        calls.append(path)
        if len(calls) == 2:
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse_the_second)
    if access == "by handle":
        monkeypatch.setattr(os, "supports_fd", {refuse_the_second})
    content = FolderContent(tmp_path)
    (finding,) = content.findings
    assert (finding.kind, finding.path) == (FindingKind.UNREADABLE, "locked")
    assert [m.name for m in content.members] == ["open"]


def test_a_file_without_permission_is_not_permitted(
    access: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f").write_bytes(b"x")
    content = FolderContent(tmp_path)

    def refuse(*_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(NotPermitted, match="Permission denied"):
        content.open(content.members[0])


def test_a_folder_without_permission_is_not_permitted(
    access: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> Iterator[os.DirEntry[str]]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "scandir", refuse)
    if access == "by handle":
        monkeypatch.setattr(os, "supports_fd", {refuse})
    with pytest.raises(NotPermitted, match="cannot be listed"):
        FolderContent(tmp_path)


def test_twins_are_findings(access: str, tmp_path: Path) -> None:
    for name in ("README", "readme", "é", "e\u0301", "D/x", "d/y"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    findings = FolderContent(tmp_path).findings
    assert {each.kind for each in findings} == {FindingKind.TWIN_NAMES}
    assert len(findings) == 3


def test_too_deep_and_too_many_are_refused(access: str, tmp_path: Path) -> None:
    deep = tmp_path / "/".join(["d"] * 6)
    deep.mkdir(parents=True)
    assert len(FolderContent(tmp_path, deepest=6).members) == 1
    with pytest.raises(Unusable, match="deep"):
        FolderContent(tmp_path, deepest=5)
    for name in "abc":
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(Unusable, match="more than 3"):
        FolderContent(tmp_path, most=3)


def test_a_deep_folder_is_read(access: str, tmp_path: Path) -> None:
    deep = tmp_path / "/".join(["d"] * 200)
    deep.mkdir(parents=True)
    (deep / "f").write_bytes(b"deep")
    content = FolderContent(tmp_path)
    assert read(content, content.members[0].name) == b"deep"


def test_what_is_no_folder_is_refused(access: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for name in ("none", "file"):
        with pytest.raises(Unusable, match="cannot be listed"):
            FolderContent(tmp_path / name)


def test_no_descriptor_stays_open(access: str, tmp_path: Path) -> None:
    for i in range(100):
        (tmp_path / f"d{i}").mkdir()
        (tmp_path / f"d{i}" / "f").write_bytes(b"x")
    before = len(os.listdir("/dev/fd"))
    content = FolderContent(tmp_path)
    for member in content.members:
        with content.open(member) as file:
            file.read()
    del content
    assert len(os.listdir("/dev/fd")) == before


def test_threads_read_different_folders_at_once(access: str, tmp_path: Path) -> None:
    for i in range(200):
        (tmp_path / f"d{i:03}").mkdir()
        (tmp_path / f"d{i:03}" / "f").write_bytes(b"%03d" % i)
    content = FolderContent(tmp_path)
    names = [member.name for member in content.members]
    with ThreadPoolExecutor(4) as pool:
        data = list(pool.map(partial(read, content), names))
    assert data == [b"%03d" % i for i in range(200)]


def test_twenty_thousand_files_are_listed_fast(tmp_path: Path) -> None:
    (tmp_path / "0").write_bytes(b"")
    for number in range(1, 20_000):
        folder = tmp_path / f"d{number // 100}"
        folder.mkdir(exist_ok=True)
        (folder / f"{number}").hardlink_to(tmp_path / "0")
    taken: list[float] = []
    for _ in range(3):
        start = time.perf_counter()
        assert len(FolderContent(tmp_path).members) == 20_000
        taken.append(time.perf_counter() - start)
    assert min(taken) < 0.5


def test_open_content_tells_folders_from_zips(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_bytes(b"1")
    (tmp_path / "z").write_bytes(zipped({"a": b"1"}))
    for target in (tmp_path / "in", tmp_path / "z"):
        with open_content(target) as content, content.open(content.members[0]) as file:
            assert file.read() == b"1"


@pytest.mark.parametrize("name", ["none", "text", "a\0b"])
def test_open_content_refuses_all_else(tmp_path: Path, name: str) -> None:
    (tmp_path / "text").write_text("hello")
    with pytest.raises(Unusable), open_content(tmp_path / name):
        pass
