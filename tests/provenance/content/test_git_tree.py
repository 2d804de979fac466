"""Commits as content: bytes of the objects themselves, and nothing of the repository runs."""

from __future__ import annotations

import os
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from reefkit.errors import Unusable
from reefkit.provenance.content import git_tree
from reefkit.provenance.content.git_tree import GitContent
from reefkit.provenance.content.members import Member, MemberKind
from reefkit.provenance.finding import FindingKind

Git = Callable[..., str]
IDENTITY = ("-c", "user.name=R", "-c", "user.email=r@example.org", "-c", "commit.gpgsign=false")


@pytest.fixture
def git(tmp_path: Path) -> Git:
    def call(*arguments: str, stdin: bytes = b"") -> str:
        done = subprocess.run(
            ["git", *IDENTITY, *arguments],
            cwd=tmp_path / "repo",
            input=stdin,
            capture_output=True,
            check=True,
        )
        return done.stdout.decode().strip()

    (tmp_path / "repo").mkdir()
    call("init", "-q", "-b", "main")
    return call


@pytest.fixture
def repo(git: Git, tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    (folder / "evidence" / "sub").mkdir(parents=True)
    (folder / "evidence" / "report.txt").write_bytes(b"line\r\nline\n")
    (folder / "evidence" / "sub" / "ü.bin").write_bytes(bytes(range(256)))
    (folder / "evidence" / "empty").write_bytes(b"")
    (folder / "evidence" / "link").symlink_to("/etc/passwd")
    (folder / "top").write_bytes(b"top")
    git("add", ".")
    git("commit", "-qm", "one")
    return folder


def read_all(content: GitContent) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for member in content.members:
        if member.kind is MemberKind.FILE:
            with content.open(member) as file:
                found[member.name] = file.read()
    return found


def test_blobs_are_read_as_committed(repo: Path) -> None:
    (repo / "evidence" / "report.txt").write_bytes(b"changed in the checkout")
    (repo / ".gitattributes").write_text("* text eol=crlf\n")
    with GitContent(repo, "main", "evidence") as content:
        assert content.members == (
            Member("empty", MemberKind.FILE, 0),
            Member("link", MemberKind.LINK),
            Member("report.txt", MemberKind.FILE, 11),
            Member("sub/ü.bin", MemberKind.FILE, 256),
        )
        assert read_all(content) == {
            "empty": b"",
            "report.txt": b"line\r\nline\n",
            "sub/ü.bin": bytes(range(256)),
        }
        with content.open(content.members[2]) as file:
            assert file.seek(6) == 6 and file.read(4) == b"line"
        with pytest.raises(Unusable, match="link"), content.open(content.members[1]):
            pass


@pytest.mark.parametrize("path", ["", "/", "evidence/sub/", "evidence/sub"])
def test_the_whole_tree_and_parts_of_it(repo: Path, path: str) -> None:
    with GitContent(repo, "HEAD", path) as content:
        assert len(content.members) == (1 if "sub" in path else 5)
        assert len(content.commit) == 40


def test_a_commit_id_and_a_tag_are_revisions(repo: Path, git: Git) -> None:
    git("tag", "-am", "note", "v1")
    commit = git("rev-parse", "HEAD")
    for revision in (commit, commit[:12], "v1", "main~0"):
        with GitContent(repo, revision) as content:
            assert content.commit == commit


@pytest.mark.parametrize(
    "revision",
    [
        "--upload-pack=touch x",
        "-n",
        "",
        "main:top",
        "a\0b",
        "main\n",
        "x" * 2000,
        "nowhere",
        "^main",
    ],
)
def test_hostile_and_unknown_revisions_are_refused(repo: Path, revision: str) -> None:
    with pytest.raises(Unusable) as caught:
        GitContent(repo, revision)
    assert caught.value.remedy and caught.value.message.isprintable()


@pytest.mark.parametrize("path", ["none", "top", "../repo", "..", "./evidence", "a\0b", "-r"])
def test_paths_that_are_no_folder_of_the_commit_are_refused(repo: Path, path: str) -> None:
    with pytest.raises(Unusable, match="There is no folder"):
        GitContent(repo, "main", path)


def test_what_is_no_repository_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unusable):
        GitContent(tmp_path, "main")
    with pytest.raises(Unusable, match="no folder"):
        GitContent(tmp_path / "none", "main")


def test_without_git_it_is_said(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(Unusable, match="git is not installed"):
        GitContent(repo, "main")


def test_the_environment_points_at_no_other_repository(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other"))
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(tmp_path / "other"))
    with GitContent(repo, "main", "evidence") as content:
        assert len(read_all(content)) == 3


def test_the_configuration_of_the_repository_runs_nothing(
    repo: Path, git: Git, tmp_path: Path
) -> None:
    mark = tmp_path / "ran"
    script = tmp_path / "run.sh"
    script.write_text(f"#!/bin/sh\ntouch {mark}\ncat\n")
    script.chmod(0o755)
    for key in (
        "core.fsmonitor",
        "core.pager",
        "core.sshCommand",
        "diff.x.textconv",
        "filter.x.smudge",
        "core.editor",
        "alias.cat-file",
    ):
        git("config", key, f"!{script}" if key.startswith("alias") else str(script))
    (repo / ".gitattributes").write_text("* diff=x filter=x\n")
    with GitContent(repo, "main", "evidence") as content:
        assert len(read_all(content)) == 3
    assert not mark.exists()


def test_objects_are_not_fetched_where_they_are_missing(
    repo: Path, git: Git, tmp_path: Path
) -> None:
    mark = tmp_path / "ran"
    blob = git("rev-parse", "main:evidence/report.txt")
    git("config", "remote.origin.url", f"ext::sh -c touch% {mark}")
    git("config", "remote.origin.promisor", "true")
    git("config", "extensions.partialClone", "origin")
    git("config", "core.repositoryformatversion", "1")
    git("config", "protocol.ext.allow", "always")
    (repo / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    with GitContent(repo, "main", "evidence") as content, pytest.raises(Unusable):
        read_all(content)
    assert not mark.exists()


def test_a_replacement_is_not_taken_for_the_object(repo: Path, git: Git) -> None:
    blob = git("rev-parse", "main:evidence/report.txt")
    other = git("hash-object", "-w", "--stdin", stdin=b"forged")
    git("replace", blob, other)
    with GitContent(repo, "main", "evidence") as content:
        assert read_all(content)["report.txt"] == b"line\r\nline\n"


def test_bytes_that_are_not_those_of_the_id_are_refused(repo: Path, git: Git) -> None:
    blob = git("rev-parse", "main:evidence/report.txt")
    path = repo / ".git" / "objects" / blob[:2] / blob[2:]
    path.chmod(0o644)
    path.write_bytes(zlib.compress(b"blob 11\0line\r\nlime\n"))
    with GitContent(repo, "main", "evidence") as content:
        with pytest.raises(Unusable, match=r"object id|has not"):
            read_all(content)
        with content.open(content.members[3]) as file:  # the next one is read all the same
            assert file.read() == bytes(range(256))


def test_submodules_are_special_and_twins_are_found(repo: Path, git: Git) -> None:
    commit = git("rev-parse", "HEAD")
    blob = git("rev-parse", "main:top")
    listing = f"160000 commit {commit}\tsub\n100644 blob {blob}\ta\n100644 blob {blob}\tA\n"
    tree = git("mktree", stdin=listing.encode())
    made = git("commit-tree", tree, "-m", "x")
    with GitContent(repo, made) as content:
        kinds = {m.name: m.kind for m in content.members}
        assert kinds["sub"] is MemberKind.SPECIAL
        assert [each.kind for each in content.findings] == [FindingKind.TWIN_NAMES]


def test_trees_that_grow_beyond_all_bounds_are_refused(
    repo: Path, git: Git, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git_tree, "LONGEST_LISTING", 1 << 20)
    tree = git("mktree", stdin=f"100644 blob {git('rev-parse', 'main:top')}\tf\n".encode())
    for _ in range(9):
        tree = git(
            "mktree",
            stdin=b"".join(b"040000 tree %s\t%d\n" % (tree.encode(), i) for i in range(10)),
        )
    commit = git("commit-tree", tree, "-m", "bomb")
    with pytest.raises(Unusable, match="too many files"):
        GitContent(repo, commit)


def test_a_repository_of_sha256_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "sha256"
    folder.mkdir()
    run = ["git", *IDENTITY]
    subprocess.run([*run, "init", "-q", "--object-format=sha256"], cwd=folder, check=True)
    (folder / "a").write_bytes(b"alpha")
    subprocess.run([*run, "add", "."], cwd=folder, check=True)
    subprocess.run([*run, "commit", "-qm", "x"], cwd=folder, check=True)
    with GitContent(folder, "HEAD") as content:
        assert len(content.commit) == 64
        assert read_all(content) == {"a": b"alpha"}


def test_large_blobs_do_not_stay_in_memory(repo: Path, git: Git) -> None:
    data = os.urandom(1 << 20) * 20
    (repo / "big").write_bytes(data)
    git("add", "big")
    git("commit", "-qm", "big")
    with GitContent(repo, "main") as content:
        assert read_all(content)["big"] == data
