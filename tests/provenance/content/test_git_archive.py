"""Zips that `git archive` makes: a commit id as the comment, and other habits."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from zip_builder import Piece, build
from zips import contents

from reefkit.provenance.content.inner import inner_folder
from reefkit.provenance.content.zip_end import read_end
from reefkit.provenance.content.zip_read import ZipContent
from reefkit.provenance.content.zip_source import ZipSource
from reefkit.provenance.finding import FindingKind

FILES = {"SHA256SUMS": b"x" * 70, "a/run.sh": b"echo\n" * 900, "a/b/ü.bin": bytes(range(256))}


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    done = subprocess.run(
        ["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.mark.parametrize("form", ["sha1", "sha256"])
@pytest.mark.parametrize("prefix", ["", "evidence-1.0/"])
def test_git_archive_makes_notes_only(form: str, prefix: str, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", f"--object-format={form}", "r")
    repository = tmp_path / "r"
    for name, data in FILES.items():
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / name).write_bytes(data)
    (repository / "a" / "run.sh").chmod(0o755)
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "c")
    commit = git(repository, "rev-parse", "HEAD")
    git(repository, "archive", "--format=zip", f"--prefix={prefix}", "-o", "../z.zip", "HEAD")
    with ZipContent(tmp_path / "z.zip") as content:
        seen = inner_folder(content, FILES.__contains__) if prefix else content
        assert seen is not None and contents(seen) == FILES
        assert {each.kind for each in seen.findings} == {FindingKind.DIALECT}
        assert any(commit in each.diagnosis for each in seen.findings)


@pytest.mark.parametrize(
    "comment", [b"a" * 39, b"A" * 40, b"g" * 40, b"a" * 41, b"a" * 63, b"a" * 65, b"a" * 39 + b"\n"]
)
def test_other_comments_are_hidden_bytes(comment: bytes, tmp_path: Path) -> None:
    path = tmp_path / "z.zip"
    path.write_bytes(build([Piece(b"a")], comment=comment))
    assert [each.kind for each in read_end(ZipSource(path)).findings] == [FindingKind.HIDDEN_BYTES]


@pytest.mark.parametrize(("said", "rest"), [(41, b""), (40, b"x"), (39, b"")])
def test_a_commit_of_another_length_than_stated_is_hidden(
    said: int, rest: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "z.zip"
    path.write_bytes(build([Piece(b"a")], comment=b"a" * 40, suffix=rest, end={"comment": said}))
    kinds = [each.kind for each in read_end(ZipSource(path)).findings]
    assert FindingKind.HIDDEN_BYTES in kinds
