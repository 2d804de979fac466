"""Runs that were edited, mixed or carried away after they ended are no pass."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gates import LAYERS, Gate, edit, f32, safetensors, simple

from reefkit.provenance.gate.manifest import pin_of

Command = Callable[..., Any]
OTHER = safetensors(LAYERS | {"lm_head.weight": f32(7.0)})


@pytest.fixture
def passed(tmp_path: Path, reef_archive: Command) -> Path:
    out = tmp_path / "repo/runs/a"
    assert reef_archive("gate", simple(tmp_path / "repo").write(), "--out", out).code == 0
    return out


def edit_cell(run: Path, index: int, rank: int = 0, passed: bool = True, **changes: Any) -> None:
    report = json.loads((run / f"rank-{rank}.json").read_bytes())
    report["cells"][index] |= changes
    edit(run / f"rank-{rank}.json", cells=report["cells"], passed=passed)


@pytest.mark.parametrize(
    ("command", "verdict"),
    [
        (["sh", "-c", "cp given/second/* {out}; exit 3"], "FAILED"),
        (["sh", "-c", "cp given/second/* {out}; exit 77"], "FAILED"),
    ],
)
def test_a_report_edited_to_a_pass_is_held_against_the_run_record(
    command: list[str], verdict: str, tmp_path: Path, reef_archive: Command
) -> None:
    gate = simple(tmp_path)
    gate.cells[1]["command"] = command
    out = tmp_path / "runs/a"
    assert reef_archive("gate", gate.write(), "--out", out).code == 1
    sums = hashlib.sha256((tmp_path / "want/second/x.safetensors").read_bytes()).hexdigest()
    artifact = {"name": "x.safetensors", "sha256": sums, "reference_sha256": sums}
    size = (tmp_path / "want/second/x.safetensors").stat().st_size
    edit_cell(
        out, 1, exit_code=0, status="passed", reason=None, compared=1,
        artifacts=[artifact | {"size": size}],
    )  # fmt: skip
    answer = reef_archive("gate", out, "--json")
    assert (answer.code, answer.document["verdict"]) == (1, verdict)
    assert any("run record run.json says" in reason for reason in answer.document["reasons"])


@pytest.mark.parametrize("how", ["absolute", "beside", "inside"])
def test_references_that_a_report_points_to_are_not_followed_out_of_what_was_named(
    how: str, passed: Path, tmp_path: Path, reef_archive: Command
) -> None:
    forged = passed if how == "inside" else passed.parent / "forged"
    for cell in ("first", "second"):
        (forged / "want" / cell).mkdir(parents=True)
        (forged / "want" / cell / "x.safetensors").write_bytes(OTHER)
        (passed / f"cells/{cell}/rank-0/x.safetensors").write_bytes(OTHER)
    shutil.copy(tmp_path / "repo/gate.json", forged / "gate.json")
    sums = hashlib.sha256(OTHER).hexdigest()
    artifact = {"name": "x.safetensors", "sha256": sums, "reference_sha256": sums}
    for index in range(2):
        edit_cell(passed, index, artifacts=[artifact | {"size": len(OTHER)}])
    path = {"absolute": str(forged / "gate.json"), "beside": "../forged/gate.json"}
    edit(passed / "rank-0.json", manifest_path=path.get(how, "gate.json"))
    answer = reef_archive("gate", passed, "--json")
    assert (answer.code, answer.document["verdict"]) == (1, "INCOMPLETE")
    real = reef_archive("gate", passed, "--manifest", tmp_path / "repo/gate.json", "--json")
    assert real.document["verdict"] == "FAILED"


def test_references_found_without_being_named_are_noted(
    passed: Path, reef_archive: Command
) -> None:
    notes = reef_archive("gate", passed, "--json").document["notes"]
    assert any("beside" in note and "gate.json" in note for note in notes)


def test_references_other_than_those_of_the_run_fail(
    passed: Path, tmp_path: Path, reef_archive: Command
) -> None:
    other = safetensors(LAYERS, {"other": "metadata"})  # the same bits in another file
    (tmp_path / "repo/want/first/x.safetensors").write_bytes(other)
    answer = reef_archive("gate", passed, "--json")
    assert (answer.code, answer.document["verdict"]) == (1, "FAILED")
    assert "not the one that it was compared with" in answer.document["cells"][0]["reason"]


def test_references_pinned_by_the_manifest_need_not_be_here(
    tmp_path: Path, reef_archive: Command
) -> None:
    gate = simple(tmp_path / "repo", ("only",))
    data = (tmp_path / "repo/want/only/x.safetensors").read_bytes()
    pins = {"x.safetensors": hashlib.sha256(data).hexdigest()}
    gate.cells[0]["reference"] = {"path": "want/only", "sha256": pins}
    out = tmp_path / "repo/runs/a"
    assert reef_archive("gate", gate.write(), "--out", out).code == 0
    shutil.copytree(out, tmp_path / "moved")
    assert reef_archive("gate", tmp_path / "moved").code == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"reason": "it did not work"},
        {"fallback": True},
        {"exit_code": 1},
        {"exit_code": None},
        {"differences": [{"artifact": "x", "reason": "differs"}]},
    ],
)
def test_a_report_that_contradicts_itself_fails(
    changes: Any, passed: Path, reef_archive: Command
) -> None:
    edit_cell(passed, 0, **changes)
    answer = reef_archive("gate", passed, "--json")
    assert (answer.code, answer.document["verdict"]) == (1, "FAILED")
    assert any("contradicts itself" in reason for reason in answer.document["reasons"])


def test_a_report_that_says_it_did_not_pass_fails(passed: Path, reef_archive: Command) -> None:
    edit(passed / "rank-0.json", passed=False)
    assert reef_archive("gate", passed, "--json").document["verdict"] == "FAILED"


def test_a_commit_amended_during_the_run_is_incomplete(
    tmp_path: Path, reef_archive: Command
) -> None:
    gate = simple(tmp_path, ("only",))
    git = "git -c user.name=t -c user.email=t@example.org commit -q --amend --allow-empty -m z"
    gate.cells[0]["command"] = ["sh", "-c", f"{git}; cp given/only/* {{out}}"]
    manifest, out = gate.write(), tmp_path / "runs/a"
    for answer in (
        reef_archive("gate", manifest, "--out", out, "--json"),
        reef_archive("gate", out, "--json"),
    ):
        assert (answer.code, answer.document["verdict"]) == (1, "INCOMPLETE")
        assert any("repository was changed" in reason for reason in answer.document["reasons"])


@pytest.mark.parametrize(
    ("variables", "code"),
    [
        ({"NCCL_ALGO": ("Ring", "Tree")}, 1),
        ({"OMP_NUM_THREADS": (None, "4")}, 1),
        ({"CUDA_VISIBLE_DEVICES": ("0", "1"), "LOCAL_RANK": ("0", "1")}, 0),
    ],
)
def test_ranks_of_different_environments_are_not_one_run(
    variables: dict[str, tuple[str | None, str]],
    code: int,
    tmp_path: Path,
    reef_archive: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = simple(tmp_path)
    manifest = gate.write(topologies=[{"world_size": 2}])
    flags = ("--out", tmp_path / "runs/a", "--world-size", 2, "--json")

    def run(rank: int) -> Any:
        for name, values in variables.items():
            value = values[rank]
            if value is None:
                monkeypatch.delenv(name, raising=False)
            else:
                monkeypatch.setenv(name, value)
        return reef_archive("gate", manifest, *flags, "--rank", rank)

    run(0)
    answer = run(1)
    assert answer.code == code
    if code:
        assert answer.document["verdict"] == "INCOMPLETE"
        named = f"{next(iter(variables))} (variables)"
        assert any(named in reason for reason in answer.document["reasons"])


def stages(tmp_path: Path, reef_archive: Command, pinned: bool) -> tuple[Path, Path, Path]:
    """Run a stage twice, and a later one after the first; give both runs and the later one."""
    first = simple(tmp_path / "one")
    manifest = first.write()
    for name in ("a", "b"):
        assert reef_archive("gate", manifest, "--out", tmp_path / "one/runs" / name).code == 0
    run = tmp_path / "one/runs/a"
    pin = {"path": "../one/runs/a", "stage": "moe"}
    if pinned:
        pin["sha256"] = hashlib.sha256((run / "chain.json").read_bytes()).hexdigest()
    later = simple(tmp_path / "two").write(stage="chain", predecessor=pin)
    return run, tmp_path / "one/runs/b", later


def test_a_pinned_chain_report_in_another_run_is_refused(
    tmp_path: Path, reef_archive: Command
) -> None:
    run, other, later = stages(tmp_path, reef_archive, pinned=True)
    shutil.copy(run / "chain.json", other / "chain.json")
    answer = reef_archive(
        "gate", later, "--out", tmp_path / "two/runs/a", "--predecessor", other, "--json"
    )
    assert (answer.code, answer.document["code"]) == (2, "PredecessorRefused")
    assert "not of this run: it says another `reports`" in answer.document["message"]


def test_a_predecessor_whose_chain_report_says_failed_is_refused(
    tmp_path: Path, reef_archive: Command
) -> None:
    run, _, later = stages(tmp_path, reef_archive, pinned=False)
    edit(run / "chain.json", passed=False, verdict="FAILED", reasons=["It is bad."])
    answer = reef_archive("gate", later, "--out", tmp_path / "two/runs/a", "--json")
    assert answer.code == 2
    assert "did not pass, says its chain.json (It is bad)" in answer.document["message"]


@pytest.mark.parametrize(("pinned", "verdict"), [(True, "PASSED"), (False, "INCOMPLETE")])
def test_a_predecessor_that_is_gone_counts_only_when_it_is_pinned(
    pinned: bool, verdict: str, tmp_path: Path, reef_archive: Command
) -> None:
    _, _, later = stages(tmp_path, reef_archive, pinned)
    out = tmp_path / "two/runs/a"
    assert reef_archive("gate", later, "--out", out).code == 0
    shutil.rmtree(tmp_path / "one")
    assert reef_archive("gate", out, "--json").document["verdict"] == verdict


@pytest.mark.parametrize(("pinned", "code"), [(True, 0), (False, 2)])
def test_a_predecessor_without_its_references_counts_only_when_it_is_pinned(
    pinned: bool, code: int, tmp_path: Path, reef_archive: Command
) -> None:
    _, _, later = stages(tmp_path, reef_archive, pinned)
    shutil.rmtree(tmp_path / "one/want")
    assert reef_archive("gate", later, "--out", tmp_path / "two/runs/a").code == code


def test_many_cells_and_absent_ranks_are_judged_at_once_and_said_in_one_sentence(
    tmp_path: Path, reef_archive: Command
) -> None:
    cells: list[dict[str, Any]] = [
        {"id": f"c{n}", "command": ["x"], "artifacts": [], "reference": "none"} for n in range(2000)
    ]
    gate = Gate(tmp_path, cells)
    manifest = gate.write(topologies=[{"world_size": 1}, {"world_size": 65536}])
    run = tmp_path / "runs/a"
    run.mkdir(parents=True)
    shutil.copy(manifest, run / "gate-manifest.json")
    topology = dict.fromkeys(("tp", "pp", "ep", "etp", "cp"), 1) | {"world_size": 65536}
    report: dict[str, object] = {
        "schema": "reefkit.gate/1", "stage": "moe", "config_fingerprint": "0" * 64, "rank": 0,
        "topology": topology, "passed": False, "quick": False, "cells": [], "provenance": {},
    }  # fmt: skip
    (run / "rank-0.json").write_text(json.dumps(report))
    assert gate.document["pinned_ids"] == pin_of([cell["id"] for cell in cells])
    start = time.monotonic()
    answer = reef_archive("gate", run, "--json")
    assert answer.code == 1 and time.monotonic() - start < 5
    assert sum("of 65536 gave no report" in each for each in answer.document["reasons"]) == 1


def test_no_cell_passes_while_a_rank_is_absent(tmp_path: Path, reef_archive: Command) -> None:
    manifest = simple(tmp_path).write(topologies=[{"world_size": 2}])
    flags = ("--out", tmp_path / "runs/a", "--world-size", 2, "--rank", 1, "--json")
    answer = reef_archive("gate", manifest, *flags)
    assert [cell["status"] for cell in answer.document["cells"]] == ["missing", "missing"]
    assert answer.document["reasons"] == ["Rank 0 of 2 gave no report."]
