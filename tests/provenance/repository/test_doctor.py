"""`reef-archive doctor` on real repositories: what git, hooks and editors do to evidence."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reefkit.errors import Unusable
from reefkit.provenance.repository.doctor import examine, mend
from reefkit.provenance.repository.places import places

SUMS = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08  log.txt\n"
CONFIGURATION = """
exclude: ^vendor/
repos:
  - repo: https://example.org/hooks
    rev: v1
    hooks:
      - id: end-of-file-fixer
      - id: trailing-whitespace
        exclude: ^docs/evidence/
      - id: black
      - id: check-yaml
"""


def git(root: Path, *arguments: str) -> str:
    environment = {name: text for name, text in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org", *arguments]
    environment["GIT_CONFIG_GLOBAL"] = os.devnull
    return subprocess.run(
        command, cwd=root, env=environment, check=True, capture_output=True, text=True
    ).stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "a project"
    evidence = root / "docs/evidence"
    evidence.mkdir(parents=True)
    (evidence / "SHA256SUMS").write_text(SUMS)
    (evidence / "log.txt").write_text("step 8 reward 175.69")
    (root / "main.py").write_text("print()\n")
    git(root, "init", "--quiet")
    git(root, "add", ".")
    return root


def effects(root: Path) -> list[str]:
    return [hazard.effect for hazard in examine(root).hazards]


def test_a_clone_with_autocrlf_really_breaks_the_evidence_until_the_line_is_there(
    repository: Path, tmp_path: Path
) -> None:
    log = repository / "docs/evidence/log.txt"
    log.write_text("one\ntwo\n")
    git(repository, "commit", "--quiet", "--all", "--message", "evidence")

    def clone(name: str) -> bytes:
        git(tmp_path, "-c", "core.autocrlf=true", "clone", "--quiet", str(repository), name)
        return (tmp_path / name / "docs/evidence/log.txt").read_bytes()

    assert any("line endings" in effect for effect in effects(repository))
    assert clone("before") == b"one\r\ntwo\r\n"
    assert mend(examine(repository)) == (
        "/docs/evidence/** -text -ident -filter -working-tree-encoding "
        "-export-subst -export-ignore",
    )
    git(repository, "add", ".gitattributes")
    git(repository, "commit", "--quiet", "--message", "attributes")
    assert clone("after") == b"one\ntwo\n"
    assert effects(repository) == []


@pytest.mark.parametrize(
    ("line", "effect"),
    [
        ("* ident", "`ident`"),
        ("docs/** working-tree-encoding=UTF-16", "`working-tree-encoding`"),
        ("docs/** export-subst", "`export-subst`"),
        ("docs/** export-ignore", "`export-ignore`"),
        ("*.txt filter=strip", "the filter `strip`"),
        ("* text=auto", "line endings"),
    ],
)
def test_each_attribute_that_changes_bytes_is_found_and_undone(
    line: str, effect: str, repository: Path
) -> None:
    (repository / ".gitattributes").write_text(line)
    assert any(effect in each for each in effects(repository))
    mend(examine(repository))
    assert (repository / ".gitattributes").read_text().startswith(line + "\n")
    assert effects(repository) == []


def test_large_file_storage_gives_back_the_very_bytes(repository: Path) -> None:
    (repository / ".gitattributes").write_text("docs/** -text filter=lfs diff=lfs\n")
    assert effects(repository) == []


def test_hooks_that_edit_are_named_where_they_reach_evidence(repository: Path) -> None:
    mend(examine(repository))
    (repository / ".pre-commit-config.yaml").write_text(CONFIGURATION)
    (hazard,) = examine(repository).hazards
    assert "end-of-file-fixer" in hazard.effect
    assert hazard.line == "exclude: (?:^vendor/)|^docs/evidence/"
    (repository / ".pre-commit-config.yaml").write_text(
        CONFIGURATION.replace("exclude: ^vendor/", hazard.line)
    )
    assert effects(repository) == []


@pytest.mark.parametrize("text", ["[", "- a\n", "repos: [{hooks: [{id: black, files: '('}]}]\n"])
def test_an_unreadable_hook_configuration_is_said(text: str, repository: Path) -> None:
    (repository / "docs/evidence/x.py").touch()
    (repository / ".pre-commit-config.yaml").write_text(text)
    with pytest.raises(Unusable, match=r"\.pre-commit-config\.yaml"):
        examine(repository)


def test_editors_are_told_to_leave_evidence_alone(repository: Path) -> None:
    mend(examine(repository))
    config = repository / ".editorconfig"
    config.write_text("root = true\n[*]\ninsert_final_newline = true\nindent_size = 4\n")
    (hazard,) = examine(repository).hazards
    assert hazard.line == "[docs/evidence/**] insert_final_newline = unset"
    config.write_text(config.read_text() + "[docs/evidence/**]\ninsert_final_newline = unset\n")
    assert effects(repository) == []


def test_evidence_is_the_outermost_folder_with_sums() -> None:
    found = places(["a/SHA256SUMS", "a/b/SHA256SUMS", "a/b/x", "ab/y", "SHA256SUMS", "c/z"])
    assert [(place.folder, len(place.files)) for place in found] == [("a", 3)]


def test_odd_names_of_folders_are_quoted_for_git(repository: Path) -> None:
    odd = repository / "runs/a[1] *?"
    odd.mkdir(parents=True)
    (odd / "SHA256SUMS").write_text(SUMS)
    (odd / "log.txt").touch()
    mend(examine(repository))
    assert effects(repository) == []


def test_the_environment_of_a_hook_does_not_mislead_it(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    assert [place.folder for place in examine(repository).places] == ["docs/evidence"]


def test_outside_of_a_repository_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="no git repository"):
        examine(tmp_path)


def test_the_command_mends_and_says_so(repository: Path, reef_archive: Callable[..., Any]) -> None:
    before = reef_archive("doctor", repository, "--json")
    mended = reef_archive("doctor", repository, "--fix", "--json")
    after = reef_archive("doctor", repository)

    assert (before.code, before.document["ok"]) == (1, False)
    assert (mended.code, len(mended.document["written"])) == (0, 1)
    assert (after.code, "Nothing here changes evidence: 2 files" in after.out) == (0, True)
