"""A gate with JUnit results, with another Python environment, and reports without a manifest."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gates import simple

Command = Callable[..., Any]
GOOD = '<testsuite tests="1"><testcase classname="a" name="b"/></testsuite>'
SKIPPED = '<testsuite tests="1" skipped="1"><testcase name="b"><skipped/></testcase></testsuite>'
BAD = '<testsuite tests="1" failures="1"><testcase name="b"><failure/></testcase></testsuite>'


@pytest.fixture
def passed(tmp_path: Path, reef_archive: Command) -> Path:
    out = tmp_path / "repo/runs/a"
    assert reef_archive("gate", simple(tmp_path / "repo").write(), "--out", out).code == 0
    return out


@pytest.mark.parametrize(
    ("text", "code", "verdict"),
    [(GOOD, 0, "PASSED"), (SKIPPED, 1, "INCOMPLETE"), (BAD, 1, "FAILED")],
)
def test_junit_results_join_and_skipped_is_not_passed(
    text: str, code: int, verdict: str, passed: Path, tmp_path: Path, reef_archive: Command
) -> None:
    (tmp_path / "junit.xml").write_text(text)
    answer = reef_archive("gate", passed, "--junit", tmp_path / "junit.xml", "--json")
    assert (answer.code, answer.document["verdict"]) == (code, verdict)
    assert answer.document["junit"]["counts"]["tests"] == 1


def test_a_junit_file_that_is_none_cannot_be_judged(
    passed: Path, tmp_path: Path, reef_archive: Command
) -> None:
    (tmp_path / "junit.xml").write_text("<testsuite>")
    assert reef_archive("gate", passed, "--junit", tmp_path / "junit.xml").code == 2


@pytest.mark.parametrize(("test", "code"), [("a::b", 0), ("a::vanished", 1)])
def test_a_test_that_is_demanded_must_be_there(
    test: str, code: int, passed: Path, tmp_path: Path, reef_archive: Command
) -> None:
    (tmp_path / "junit.xml").write_text(GOOD)
    options = ["--junit", tmp_path / "junit.xml", "--test", test]
    assert reef_archive("gate", passed, *options, "--json").code == code
    assert reef_archive("gate", passed, "--test", test).code == 2


def test_reports_of_two_environments_are_merged(tmp_path: Path, reef_archive: Command) -> None:
    gate = simple(tmp_path / "repo")
    for cell, other in zip(gate.cells, ("b", "a"), strict=True):
        script = f"[ $ENVIRONMENT != {other} ] || exit 77; {' '.join(cell['command'])}"
        cell["command"] = ["env", "sh", "-c", script]
    manifest = gate.write()
    for name in ("a", "b"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ENVIRONMENT", name)
            assert reef_archive("gate", manifest, "--out", tmp_path / "repo/runs" / name).code == 1
    answer = reef_archive(
        "gate", tmp_path / "repo/runs/a", "--merge", tmp_path / "repo/runs/b", "--json"
    )
    assert answer.code == 0, answer.document["reasons"]
    assert answer.document["passed_in"] == {"first": ["a"], "second": ["b"]}


def test_a_run_in_a_zip_is_judged_and_compared(
    passed: Path, tmp_path: Path, reef_archive: Command
) -> None:
    package = tmp_path / "evidence.zip"
    with zipfile.ZipFile(package, "w") as made:
        for path in sorted(path for path in passed.rglob("*") if path.is_file()):
            made.write(path, f"deep/{path.relative_to(passed)}")
    assert reef_archive("gate", package, "--manifest", tmp_path / "repo/gate.json").code == 0
    manifest, later = tmp_path / "repo/gate.json", tmp_path / "repo/runs/later"
    assert reef_archive("gate", manifest, "--out", later).code == 0
    options = ["--against", package, "--manifest", manifest, "--json"]
    answer = reef_archive("gate", later, *options)
    assert (answer.code, answer.document["against"]["identical"]) == (0, 2)
    assert reef_archive("gate", passed, *options).code == 1  # the package is this run


def test_the_public_chain_report_is_read_and_is_a_claim(
    tmp_path: Path, reef_archive: Command
) -> None:
    document = {
        "schema": "qwen3-next-chain-v1",
        "passed": False,
        "config_fingerprint": "ab" * 32,
        "first_drift_family": "moe",
        "first_drift_layer": 3,
        "first_drift_cell": "route",
    }
    path = tmp_path / "chain.json"
    path.write_text(json.dumps(document))
    for target in (path, tmp_path):
        answer = reef_archive("gate", target, "--json")
        assert answer.code == 1
        drift = answer.document["first_drift"]
        assert (drift["family"], drift["layer"], drift["cell"]) == ("moe", 3, "route")


def test_our_own_reports_without_a_manifest_are_claims(
    passed: Path, tmp_path: Path, reef_archive: Command
) -> None:
    for name in ("rank-0.json", "chain.json"):
        alone = tmp_path / "alone" / name
        alone.parent.mkdir(exist_ok=True)
        shutil.copy(passed / name, alone)
        answer = reef_archive("gate", alone, "--json")
        assert (answer.code, answer.document["verdict"]) == (1, "INCOMPLETE")
    assert reef_archive("gate", tmp_path / "alone").code == 1


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"{}", b'{"a": 1}', b"\xff"])
def test_a_file_that_is_no_report_cannot_be_judged(
    data: bytes, tmp_path: Path, reef_archive: Command
) -> None:
    path = tmp_path / "rank-0.json"
    path.write_bytes(data)
    assert reef_archive("gate", path).code == 2
    assert reef_archive("gate", tmp_path).code == 2


def test_a_folder_without_reports_cannot_be_judged(tmp_path: Path, reef_archive: Command) -> None:
    assert reef_archive("gate", tmp_path).code == 2
    assert reef_archive("gate", tmp_path / "nowhere").code == 2
