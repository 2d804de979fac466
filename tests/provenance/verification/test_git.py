"""Evidence and the repository of the code it was made with, in real repositories."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from code_repository import git, repository
from signed_evidence import put
from verifiable import FILES, Told, digest, key, listed, package, tell, trust, zipped

from reefkit.errors import Unusable
from reefkit.provenance.finding import FindingKind as Kind
from reefkit.provenance.verification.named_commits import named_commits

ABSENT = "0123456789" * 4


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return repository(tmp_path / "repo")


def ids(repo: Path) -> tuple[str, str]:
    return git(repo, "rev-parse", "HEAD"), git(repo, "rev-parse", "HEAD^{tree}")


def told_of(tmp_path: Path, repo: Path, document: object, name: str = "run.json") -> Told:
    folder = listed(tmp_path / "e", {name: json.dumps(document).encode()})
    return tell(folder, integrity_only=True, repository=repo)


def run(commit: str, tree: str | None = None) -> dict[str, object]:
    return {"schema": "reefkit.run/1", "commit": commit, "tree": tree}


def test_a_commit_with_its_tree_is_found(tmp_path: Path, repo: Path) -> None:
    told = told_of(tmp_path, repo, run(*ids(repo)))
    assert (told.verdict, told.kinds) == ("VERIFIED", {"unsigned", "claimed"})


def test_a_commit_with_another_tree_is_refused(tmp_path: Path, repo: Path) -> None:
    told = told_of(tmp_path, repo, run(ids(repo)[0], ABSENT))
    assert (told.verdict, Kind.TREE_DIFFERS.value in told.kinds) == ("FAILED", True)


def test_a_commit_that_is_nowhere_is_missing(tmp_path: Path, repo: Path) -> None:
    told = told_of(tmp_path, repo, run(ABSENT, ABSENT))
    assert (told.verdict, Kind.COMMIT_MISSING.value in told.kinds) == ("FAILED", True)


def test_a_rewritten_commit_whose_tree_is_there_is_noted(tmp_path: Path, repo: Path) -> None:
    commit, tree = ids(repo)
    git(repo, "commit", "-q", "--amend", "-m", "rewritten")
    git(repo, "reflog", "expire", "--expire=now", "--all")
    git(repo, "gc", "-q", "--prune=now")
    told = told_of(tmp_path, repo, run(commit, tree))
    assert (told.verdict, Kind.REWRITTEN_COMMIT.value in told.kinds) == ("VERIFIED", True)
    assert git(repo, "rev-parse", "HEAD") in told.said_of("run.json")


def test_a_replaced_commit_does_not_lend_its_tree(tmp_path: Path, repo: Path) -> None:
    commit, tree = ids(repo)
    put(repo, {"train.py": b"evil\n"})
    git(repo, "commit", "-q", "-a", "-m", "evil")
    evil, evil_tree = ids(repo)
    git(repo, "replace", commit, evil)
    assert told_of(tmp_path, repo, run(commit, tree)).verdict == "VERIFIED"
    assert told_of(tmp_path, repo, run(commit, evil_tree)).verdict == "FAILED"


def test_a_shallow_clone_is_said_to_be_one(tmp_path: Path, repo: Path) -> None:
    commit, tree = ids(repo)
    put(repo, {"train.py": b"print(2)\n"})
    git(repo, "commit", "-q", "-a", "-m", "second")
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{repo}", "shallow")
    told = told_of(tmp_path, tmp_path / "shallow", run(commit, tree))
    assert "fetch-depth" in told.said_of("run.json")


@pytest.mark.parametrize(
    "document",
    [
        {"rl_kernel_commit": ABSENT, "tracked_tree_dirty": False},
        {"schema_version": "ws1-c10-c11-v5", "git_sha": ABSENT},
        {"schema": "h3-down-evidence-summary-v1", "provenance": {"git_commit": ABSENT}},
        {"schema": "reefkit.gate/1", "provenance": {"commit": ABSENT, "tree": ABSENT}},
    ],
)
def test_commits_of_public_schemas_are_looked_up(
    document: dict[str, object], tmp_path: Path, repo: Path
) -> None:
    told = told_of(tmp_path, repo, document, "report.json")
    assert Kind.COMMIT_MISSING.value in told.kinds


def test_files_of_a_revision_are_hashed_as_blobs(tmp_path: Path, repo: Path) -> None:
    commit, _ = ids(repo)
    files = {"train.py": digest(b"print(1)\n"), "data.bin": digest(bytes(range(256)))}
    put(repo, {"train.py": b"print(1)\r\n"})  # as a checkout may have it
    assert told_of(tmp_path, repo, {"revision": commit, "files": files}, "s.json").verdict == (
        "VERIFIED"
    )
    files["train.py"] = digest(b"print(1)\r\n")
    told = told_of(tmp_path, repo, {"revision": commit, "files": files}, "s.json")
    assert (told.verdict, Kind.MISMATCH.value in told.kinds) == ("FAILED", True)
    files = {"gone.py": digest(b"")}
    told = told_of(tmp_path, repo, {"revision": commit, "files": files}, "s.json")
    assert told.verdict == "INCOMPLETE"


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a\nb"])
def test_paths_that_no_repository_holds_are_refused(path: str, tmp_path: Path, repo: Path) -> None:
    document = {"revision": ids(repo)[0], "files": {path: digest(b"")}}
    assert told_of(tmp_path, repo, document, "s.json").verdict == "FAILED"


def test_evidence_that_names_no_commit_was_not_checked_against_git(
    tmp_path: Path, repo: Path
) -> None:
    told = tell(listed(tmp_path / "e"), integrity_only=True, repository=repo)
    assert (told.verdict, Kind.NOT_CHECKED.value in told.kinds) == ("INCOMPLETE", True)


@pytest.fixture
def committed(repo: Path) -> Path:
    package(repo / "docs/e")
    zipped(repo / "docs/e.zip", {path.name: path.read_bytes() for path in [repo / "train.py"]})
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "evidence")
    return repo


def test_a_checkout_with_crlf_does_not_matter(tmp_path: Path, committed: Path) -> None:
    for name in FILES:
        path = committed / "docs/e" / name
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    signers = trust(tmp_path, key())
    assert tell(committed / "docs/e", signers).verdict == "FAILED"
    assert tell(committed / "docs/e", signers, repository=committed).verdict == "VERIFIED"


@pytest.mark.parametrize("target", ["HEAD:docs/e", "main:docs/e/", "HEAD:docs/e/SHA256SUMS"])
def test_a_revision_is_verified_without_a_checkout(
    target: str, tmp_path: Path, committed: Path
) -> None:
    git(committed, "rm", "-q", "-r", "--cached", "docs")
    told = tell(target, trust(tmp_path, key()), repository=committed)
    assert (told.verdict, told.result.checked) == ("VERIFIED", len(FILES))


def test_what_was_committed_wrong_is_found(tmp_path: Path, committed: Path) -> None:
    put(committed, {"docs/e/a.bin": b"evil"})
    git(committed, "commit", "-q", "-a", "-m", "evil")
    signers = trust(tmp_path, key())
    assert tell("HEAD:docs/e", signers, repository=committed).verdict == "FAILED"
    assert tell("HEAD~1:docs/e", signers, repository=committed).verdict == "VERIFIED"


@pytest.mark.parametrize(
    "target", ["nowhere:docs/e", "HEAD:docs/gone", "--help:x", "HEAD:../x", "nothing"]
)
def test_what_is_not_there_cannot_be_judged(target: str, committed: Path) -> None:
    with pytest.raises(Unusable):
        tell(target, integrity_only=True, repository=committed)


def test_a_zip_in_a_revision_is_opened(tmp_path: Path, repo: Path) -> None:
    files = {p.name: p.read_bytes() for p in package(tmp_path / "e", {"a": b"x"}).iterdir()}
    zipped(repo / "e.zip", files)
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "zip")
    (repo / "e.zip").unlink()
    assert tell("HEAD:e.zip", trust(tmp_path, key()), repository=repo).verdict == "VERIFIED"


def test_no_repository_cannot_be_asked(tmp_path: Path) -> None:
    with pytest.raises(Unusable):
        tell(listed(tmp_path / "e"), repository=tmp_path)


def test_a_repository_runs_nothing(tmp_path: Path, committed: Path) -> None:
    canary = tmp_path / "canary"
    script = tmp_path / "run"
    script.write_text(f"#!/bin/sh\ntouch {canary}\n")
    script.chmod(0o755)
    for name in ("core.fsmonitor", "core.sshCommand", "core.pager", "diff.external"):
        git(committed, "config", name, str(script))
    git(committed, "config", "alias.cat-file", f"!{script}")
    told = tell(committed / "docs/e", trust(tmp_path, key()), repository=committed)
    assert told.verdict == "VERIFIED" and not canary.exists()


def test_the_environment_points_git_nowhere_else(
    tmp_path: Path, committed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    told = tell("HEAD:docs/e", trust(tmp_path, key()), repository=committed)
    assert told.verdict == "VERIFIED"


def test_ids_that_are_none_are_not_asked_about() -> None:
    for commit in ("HEAD", "main", ABSENT[:12], ABSENT.upper() + "A", 7, None, ["x"]):
        document = json.dumps({"commit": commit, "tree": commit, "git_sha": commit})
        assert not list(named_commits(document.encode(), "run.json"))


def test_the_command_takes_a_revision(
    tmp_path: Path, committed: Path, reef_archive: Callable[..., Any]
) -> None:
    answer = reef_archive(
        "verify", "HEAD:docs/e", "--git", committed, "--signers", trust(tmp_path, key()), "--json"
    )
    assert (answer.code, answer.document["verdict"]) == (0, "VERIFIED")


def test_a_partial_clone_fetches_nothing(tmp_path: Path, committed: Path) -> None:
    git(committed, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "-q", "--bare", "--filter=blob:none", f"file://{committed}", "partial")
    committed.rename(tmp_path / "gone")
    done = subprocess.run(
        ["git", "cat-file", "-e", "HEAD:docs/e/a.bin"], cwd=tmp_path / "partial", check=False,
        capture_output=True,
    )  # fmt: skip
    assert done.returncode != 0
    try:
        verdict = tell("HEAD:docs/e", integrity_only=True, repository=tmp_path / "partial").verdict
    except Unusable:
        return
    assert verdict in ("INCOMPLETE", "FAILED")
