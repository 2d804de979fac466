"""The GitHub action, the pre-commit hook and the recipes of docs/ci.md, as they are run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from reefkit.cli import archive

ROOT = Path(__file__).resolve().parents[2]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
STEPS: dict[str, dict[str, Any]] = {step["name"]: step for step in ACTION["runs"]["steps"]}
RECIPES = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/ci.md").read_text("utf-8"), re.S)
HOSTILE = "$(touch pwned) `touch pwned`; touch pwned\n\"'&& touch pwned || ${{ github.token }}"


def given(step: str, **inputs: str) -> dict[str, str]:
    """Give a step's environment as a runner makes it, from the inputs and their defaults."""
    environment = dict(os.environ)
    for name, text in STEPS[step]["env"].items():
        wanted = re.fullmatch(r"\$\{\{ inputs\.([\w-]+) \}\}", text)
        assert wanted, text
        key = wanted[1]
        usual: str = ACTION["inputs"][key].get("default", "")
        environment[name] = inputs.get(key.replace("-", "_")) or usual
    return environment


def run_step(
    step: str, folder: Path, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", STEPS[step]["run"]],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A `reef-archive` that writes down what it was called with."""
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    program = scripts / "reef-archive"
    program.write_text(
        f"#!{sys.executable}\nimport json, sys\n"
        f"open({str(tmp_path / 'argv')!r}, 'w').write(json.dumps(sys.argv[1:]))\n"
    )
    program.chmod(0o755)
    return scripts


def called(recorded: Path, **inputs: str) -> list[str]:
    import json

    environment = {**given("Verify", **inputs), "REEFKIT_SCRIPTS": str(recorded)}
    done = run_step("Verify", recorded.parent, environment)
    assert done.returncode == 0, done.stderr
    argv: list[str] = json.loads((recorded.parent / "argv").read_text())
    return argv


def test_no_input_is_pasted_into_a_script() -> None:
    assert [name for name, step in STEPS.items() if "${{" in step["run"]] == []


def test_every_input_is_used_and_described() -> None:
    used = re.findall(r"inputs\.([\w-]+)", (ROOT / "action.yml").read_text("utf-8"))
    assert set(used) == set(ACTION["inputs"])
    assert all(each["description"] for each in ACTION["inputs"].values())


@pytest.mark.parametrize("name", ["target", "signers", "policy", "require", "at", "git", "sarif"])
def test_a_hostile_input_stays_one_argument(name: str, recorded: Path) -> None:
    inputs = {"target": "evidence", name: HOSTILE}
    argv = called(recorded, **inputs)
    lines = HOSTILE.split("\n") if name == "require" else [HOSTILE]
    assert [line for line in lines if line not in argv] == []
    assert not (recorded.parent / "pwned").exists()


def test_a_target_that_looks_like_an_option_is_none(recorded: Path) -> None:
    assert called(recorded, target="--integrity-only")[-2:] == ["--", "--integrity-only"]


def test_what_the_action_passes_are_options_of_the_command(recorded: Path) -> None:
    argv = called(
        recorded,
        target="e.zip",
        signers="s",
        policy="p",
        require="a\nb\n",
        at="2026-11-30",
        git=".",
        integrity_only="true",
        sarif="out.sarif",
    )
    command = archive.get_command(click.Context(archive), argv[0])
    assert command is not None
    options, _, _ = command.make_parser(click.Context(command)).parse_args(argv[1:])
    assert "--integrity-only" in argv
    assert argv.count("--require") == 2
    assert "e.zip" in str(options.values())


def test_an_action_reports_what_verify_says(tmp_path: Path) -> None:
    folder = tmp_path / "evidence"
    folder.mkdir()
    (folder / "log.txt").write_bytes(b"changed")
    (folder / "SHA256SUMS").write_text(
        "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08  log.txt\n"
    )
    environment = given("Verify", target=str(folder), integrity_only="true")
    done = run_step(
        "Verify", tmp_path, {**environment, "REEFKIT_SCRIPTS": os.path.dirname(sys.executable)}
    )
    assert done.returncode == 1
    assert "::error" in done.stdout


def test_the_recipes_name_a_hook_and_options_that_exist() -> None:
    github, gitlab, hook = (yaml.safe_load(text) for text in RECIPES)
    (_, step) = github["jobs"]["verify"]["steps"]
    assert set(step["with"]) <= set(ACTION["inputs"])
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    (used,) = hook["repos"][0]["hooks"]
    assert used["id"] in {each["id"] for each in hooks}
    command = archive.get_command(click.Context(archive), "verify")
    assert command is not None
    command.make_parser(click.Context(command)).parse_args(list(used["args"]))
    line = gitlab["verify-evidence"]["script"][-1]
    assert line.startswith("reef-archive verify ")
    command.make_parser(click.Context(command)).parse_args(line.split()[2:])
