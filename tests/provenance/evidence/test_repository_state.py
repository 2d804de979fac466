"""What a run record says of real repositories."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from code_repository import git, repository

from reefkit.provenance.evidence.repository import repository_state


def test_a_clean_repository_names_commit_and_tree(tmp_path: Path) -> None:
    folder = repository(tmp_path / "code")
    found = repository_state(folder)
    assert found.commit == git(folder, "rev-parse", "HEAD")
    assert found.tree == git(folder, "rev-parse", "HEAD^{tree}")
    assert (found.dirty, found.diff_sha256, found.untracked, found.missing) == (
        False, None, 0, None,
    )  # fmt: skip


@pytest.mark.parametrize("how", ["text", "binary", "staged", "deleted", "mode", "added"])
def test_a_tracked_change_is_dirty_and_has_a_digest(tmp_path: Path, how: str) -> None:
    folder = repository(tmp_path / "code")
    if how == "binary":
        (folder / "data.bin").write_bytes(b"\0\1")
    elif how == "deleted":
        (folder / "data.bin").unlink()
    elif how == "mode":
        (folder / "train.py").chmod(0o755)
    elif how == "added":
        (folder / "new.py").write_text("")
        git(folder, "add", "new.py")
    else:
        (folder / "train.py").write_text("print(2)\n")
        if how == "staged":
            git(folder, "add", ".")
    found = repository_state(folder)
    assert found.dirty is True
    assert found.diff_sha256 is not None
    assert found.missing is None
    assert repository_state(folder) == found


def test_another_change_has_another_digest_and_the_same_change_the_same(tmp_path: Path) -> None:
    folder = repository(tmp_path / "code")
    digests: list[str | None] = []
    for content in (b"1", b"2", b"1"):
        (folder / "data.bin").write_bytes(b"\0" + content)
        digests.append(repository_state(folder).diff_sha256)
    assert digests[0] == digests[2] != digests[1]


def test_the_digest_does_not_hang_on_the_configuration(tmp_path: Path) -> None:
    folder = repository(tmp_path / "code")
    (folder / "train.py").write_text("print(2)\n")
    before = repository_state(folder)
    for key, value in (
        ("diff.noprefix", "true"),
        ("diff.algorithm", "patience"),
        ("diff.context", "9"),
        ("color.ui", "always"),
        ("status.short", "true"),
        ("status.relativePaths", "false"),
    ):
        git(folder, "config", key, value)
    assert repository_state(folder) == before


def test_untracked_files_are_counted_and_are_not_dirty(tmp_path: Path) -> None:
    folder = repository(tmp_path / "code")
    (folder / "notes.txt").write_text("x")
    found = repository_state(folder)
    assert (found.dirty, found.untracked) == (False, 1)


def test_a_rewritten_commit_is_another_one_with_the_same_tree(tmp_path: Path) -> None:
    folder = repository(tmp_path / "code")
    before = repository_state(folder)
    git(folder, "commit", "-q", "--amend", "-m", "other words")
    after = repository_state(folder)
    assert after.commit != before.commit
    assert after.tree == before.tree


def test_a_folder_inside_and_a_linked_worktree_are_known(tmp_path: Path) -> None:
    folder = repository(tmp_path / "code")
    inner = folder / "a" / "b"
    inner.mkdir(parents=True)
    (folder / "train.py").write_text("print(3)\n")
    assert repository_state(inner).dirty is True
    git(folder, "worktree", "add", "-q", str(tmp_path / "tree"))
    assert repository_state(tmp_path / "tree").dirty is False


def test_without_a_repository_or_a_commit_the_reason_is_said(tmp_path: Path) -> None:
    assert "no git work tree" in str(repository_state(tmp_path).missing)
    git(tmp_path, "init", "-q")
    assert "no commit yet" in str(repository_state(tmp_path).missing)
    assert repository_state(tmp_path / "absent").missing is not None


def test_without_git_the_reason_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = repository(tmp_path / "code")
    monkeypatch.setenv("PATH", str(tmp_path))
    found = repository_state(folder)
    assert (found.commit, found.dirty, found.missing) == (None, None, "git is not installed")


def test_variables_that_point_elsewhere_are_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = repository(tmp_path / "code")
    other = repository(tmp_path / "other")
    (other / "train.py").write_text("print(9)\n")
    git(other, "commit", "-q", "-am", "second")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git" / "index"))
    found = repository_state(folder)
    monkeypatch.undo()
    assert found.commit == git(folder, "rev-parse", "HEAD")
    assert found.dirty is False


def test_nothing_that_a_repository_configures_is_run(tmp_path: Path) -> None:
    folder = repository(tmp_path / "code")
    trap = tmp_path / "trap.sh"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\ncat\n")
    trap.chmod(0o755)
    hook = folder / ".git" / "hooks" / "post-index-change"
    hook.parent.mkdir(exist_ok=True)
    hook.write_bytes(trap.read_bytes())
    hook.chmod(0o755)
    (folder / ".git" / "info").mkdir(exist_ok=True)
    (folder / ".git" / "info" / "attributes").write_text("*.py diff=x\n")
    for key in (
        "core.fsmonitor",
        "diff.external",
        "diff.x.textconv",
        "diff.x.command",
        "core.pager",
    ):
        git(folder, "config", key, str(trap))
    (folder / "train.py").write_text("print(2)\n")
    assert repository_state(folder).dirty is True
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_a_file_that_git_does_not_look_at_is_not_called_clean(tmp_path: Path, flag: str) -> None:
    folder = repository(tmp_path / "code")
    git(folder, "update-index", flag, "train.py")
    (folder / "train.py").write_text("print(2)\n")
    found = repository_state(folder)
    assert found.dirty is None
    assert "does not look at" in str(found.missing)


def test_the_index_is_not_written(tmp_path: Path) -> None:
    folder = repository(tmp_path / "code")
    index = folder / ".git" / "index"
    os.utime(folder / "train.py", (1, 1))
    before = index.read_bytes()
    assert repository_state(folder).dirty is False
    assert index.read_bytes() == before
