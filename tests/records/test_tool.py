from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import reefkit
from reefkit.records.tool import head_commit, tool_identity

SECOND = "a" * 40


def git(folder: Path, *arguments: str) -> str:
    """Run git with no one's configuration but this."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        **dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"), "Someone"),
        **dict.fromkeys(("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"), "someone@example.org"),
    }
    done = subprocess.run(
        ["git", *arguments], cwd=folder, env=environment, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch", "topic/deep")
    git(folder, "commit", "--quiet", "--allow-empty", "--message", "first")
    return folder


@pytest.fixture
def copied(checkout: Path) -> Path:
    """The package, as far as its identity goes, in a folder of its own under `checkout`."""
    package = checkout / "reefkit"
    source = Path(reefkit.__file__).parent
    for name in ("__init__.py", "records/__init__.py", "records/tool.py"):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source / name, package / name)
    return package


def identity_of(package: Path) -> tuple[dict[str, str | None], set[str]]:
    """Ask a copy of the package in a process of its own; also say which modules that loaded."""
    program = (
        "import json, sys; from reefkit.records.tool import tool_identity;"
        "print(json.dumps([tool_identity(), list(sys.modules)]))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env={**os.environ, "PYTHONPATH": str(package.parent)},
        check=True,
        capture_output=True,
    )
    identity, modules = json.loads(done.stdout)
    return identity, set(modules)


def test_a_loose_ref_is_followed(checkout: Path) -> None:
    assert head_commit(checkout) == git(checkout, "rev-parse", "HEAD")


def test_a_packed_ref_is_found(checkout: Path) -> None:
    git(checkout, "tag", "--annotate", "--message", "peeled lines follow tags", "v1")
    git(checkout, "pack-refs", "--all")
    assert not (checkout / ".git/refs/heads/topic/deep").exists()
    assert head_commit(checkout) == git(checkout, "rev-parse", "HEAD")


def test_a_loose_ref_is_newer_than_a_packed_one(checkout: Path) -> None:
    git(checkout, "pack-refs", "--all")
    git(checkout, "commit", "--quiet", "--allow-empty", "--message", "second")
    assert head_commit(checkout) == git(checkout, "rev-parse", "HEAD")


def test_a_detached_head_is_read(checkout: Path) -> None:
    git(checkout, "checkout", "--quiet", "--detach")
    assert head_commit(checkout) == git(checkout, "rev-parse", "HEAD")


@pytest.mark.parametrize("packed", [False, True])
def test_a_worktree_finds_its_own_branch(checkout: Path, packed: bool) -> None:
    git(checkout, "worktree", "add", "--quiet", "-b", "side", "../side")
    side = checkout.parent / "side"
    git(side, "commit", "--quiet", "--allow-empty", "--message", "aside")
    if packed:
        git(checkout, "pack-refs", "--all")
    assert head_commit(side) == git(side, "rev-parse", "HEAD")
    assert head_commit(side) != head_commit(checkout)


def test_a_submodule_finds_its_own_head(checkout: Path, tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    outer.mkdir()
    git(outer, "init", "--quiet")
    git(outer, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", "../checkout")
    assert head_commit(outer / "checkout") == git(checkout, "rev-parse", "HEAD")


def test_sha256_repositories_are_read(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "--object-format", "sha256")
    git(tmp_path, "commit", "--quiet", "--allow-empty", "--message", "first")
    commit = git(tmp_path, "rev-parse", "HEAD")
    assert len(commit) == 64
    assert head_commit(tmp_path) == commit


def test_no_repository_and_no_commit_give_none(tmp_path: Path) -> None:
    assert head_commit(tmp_path) is None
    git(tmp_path, "init", "--quiet")
    assert head_commit(tmp_path) is None


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"ref:",
        b"ref: refs/heads/none",
        b"ref: refs/heads/../../outside",
        b"ref: ../outside",
        b"ref: /etc/hostname",
        b"ref: refs/heads/loop",
        b"ref: refs/heads",
        SECOND.upper().encode(),
        SECOND[:-1].encode(),
        b"\xff\xfe",
    ],
)
def test_a_head_that_names_no_commit_gives_none(checkout: Path, head: bytes) -> None:
    (checkout / "outside").write_text(SECOND)
    (checkout / ".git/refs/heads/loop").write_text("ref: refs/heads/loop\n")
    (checkout / ".git/HEAD").write_bytes(head)
    assert head_commit(checkout) is None


@pytest.mark.parametrize("pointer", ["", "gitdir: /nowhere", "gitdir: \x00"])
def test_a_git_file_that_leads_nowhere_gives_none(tmp_path: Path, pointer: str) -> None:
    (tmp_path / ".git").write_text(pointer)
    assert head_commit(tmp_path) is None


def test_the_identity_names_the_checkout_that_the_package_is(copied: Path) -> None:
    git(copied, "init", "--quiet")
    git(copied, "add", ".")
    git(copied, "commit", "--quiet", "--message", "package")
    (copied / "_commit.py").write_text(f'COMMIT = "{SECOND}"\n')
    identity, _ = identity_of(copied)
    assert identity == {
        "name": "reefkit",
        "version": reefkit.__version__,
        "commit": git(copied, "rev-parse", "HEAD"),
    }


def test_links_lead_to_the_checkout(copied: Path, tmp_path: Path) -> None:
    git(copied, "init", "--quiet")
    git(copied, "add", ".")
    git(copied, "commit", "--quiet", "--message", "package")
    farm = tmp_path / "farm/reefkit"
    shutil.copytree(copied, farm, copy_function=lambda file, link: os.symlink(file, link))
    shutil.rmtree(farm / ".git")
    identity, _ = identity_of(farm)
    assert identity["commit"] == git(copied, "rev-parse", "HEAD")


def test_a_repository_around_the_package_is_not_its_own(copied: Path) -> None:
    identity, _ = identity_of(copied)
    assert identity["commit"] is None


def test_without_a_checkout_the_build_is_asked(copied: Path) -> None:
    (copied / "_commit.py").write_text(f'COMMIT = "{SECOND}-dirty"\n')
    identity, _ = identity_of(copied)
    assert identity["commit"] == f"{SECOND}-dirty"


def test_asking_is_cheap(copied: Path) -> None:
    _, modules = identity_of(copied)
    assert not modules & {"subprocess", "importlib.metadata", "email"}


def test_the_installed_package_knows_its_name_and_version() -> None:
    identity = tool_identity()
    assert (identity["name"], identity["version"]) == ("reefkit", reefkit.__version__)
