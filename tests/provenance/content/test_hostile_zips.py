"""Hostile zips: each is refused or makes the finding that it should."""

from __future__ import annotations

import io
import shutil
import subprocess
import zipfile
import zlib
from pathlib import Path

import pytest
from hostile_zips import HOSTILE

from reefkit.errors import ReefError, Unusable
from reefkit.provenance.content.members import MemberKind
from reefkit.provenance.content.zip_read import ZipContent
from reefkit.provenance.finding import Finding, FindingKind, Gravity


def looked_at(path: Path) -> tuple[Finding, ...]:
    """Open a zip and read all of it."""
    with ZipContent(path) as content:
        for member in content.members:
            if member.kind is not MemberKind.FILE:
                continue
            try:
                with content.open(member) as file:
                    while file.read(1 << 20):
                        pass
            except ReefError as error:
                assert error.message.endswith(".")
        return content.findings


@pytest.mark.parametrize("name", [name for name, case in HOSTILE.items() if case.kind is not None])
def test_finding_is_grave(name: str, tmp_path: Path) -> None:
    case = HOSTILE[name]
    path = tmp_path / "evidence.zip"
    path.write_bytes(case.make())
    found = looked_at(path)
    grave = {each.kind for each in found if each.gravity is Gravity.FAILED}
    assert case.kind in grave
    said = " ".join(each.diagnosis for each in found if each.kind is case.kind)
    assert case.says in said
    assert said.isprintable()


@pytest.mark.parametrize("name", [name for name, case in HOSTILE.items() if case.kind is None])
def test_refusal_says_why(name: str, tmp_path: Path) -> None:
    case = HOSTILE[name]
    path = tmp_path / "evidence.zip"
    path.write_bytes(case.make())
    with pytest.raises(Unusable) as caught:
        ZipContent(path)
    assert case.says in caught.value.message
    assert caught.value.remedy


def test_zipfile_says_nothing_about_most_of_them() -> None:
    """Otherwise there would be no need for a reader of our own."""
    silent = [name for name, case in HOSTILE.items() if case.kind and _zipfile_reads(case.make())]
    assert len(silent) > 30


def _zipfile_reads(data: bytes) -> bool:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            return file.testzip() is None
    except (
        zipfile.BadZipFile,
        NotImplementedError,
        RuntimeError,
        ValueError,
        EOFError,
        zlib.error,
    ):
        return False


@pytest.mark.skipif(shutil.which("unzip") is None, reason="unzip is not installed")
@pytest.mark.parametrize("name", ["deflate without its last block", "wrong checksum"])
def test_unzip_refuses_it_too(name: str, tmp_path: Path) -> None:
    path = tmp_path / "evidence.zip"
    path.write_bytes(HOSTILE[name].make())
    assert subprocess.run(["unzip", "-tq", path], capture_output=True, check=False).returncode


def test_a_link_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "evidence.zip"
    path.write_bytes(HOSTILE["symbolic link"].make())
    with ZipContent(path) as content:
        (member,) = content.members
        assert member.kind is MemberKind.LINK
        with pytest.raises(Unusable, match="link"):
            content.open(member)


def test_a_bomb_is_not_inflated(tmp_path: Path) -> None:
    path = tmp_path / "evidence.zip"
    path.write_bytes(HOSTILE["bomb"].make())
    with ZipContent(path) as content, pytest.raises(Unusable, match="inflate"):
        content.open(content.members[0])
    assert FindingKind.TOO_LARGE in {each.kind for each in content.findings}
