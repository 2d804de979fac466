"""A gate is run, and what it left is judged anew."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gates import LAYERS, Gate, edit, f32, safetensors, simple

Command = Callable[..., Any]


@pytest.fixture
def passed(tmp_path: Path, reef_archive: Command) -> Path:
    manifest = simple(tmp_path / "repo").write()
    out = tmp_path / "repo/runs/a"
    answer = reef_archive("gate", manifest, "--out", out, "--json")
    assert answer.code == 0, answer
    return out


def test_equal_artifacts_pass_and_the_chain_says_so(passed: Path) -> None:
    chain = json.loads((passed / "chain.json").read_bytes())
    assert (chain["schema"], chain["passed"], chain["verdict"]) == (
        "reefkit.chain/1",
        True,
        "PASSED",
    )
    assert [(cell["id"], cell["status"]) for cell in chain["cells"]] == [
        ("first", "passed"),
        ("second", "passed"),
    ]
    assert chain["first_drift"] is None
    report = json.loads((passed / "rank-0.json").read_bytes())
    assert report["schema"] == "reefkit.gate/1"
    assert len(report["provenance"]["commit"]) == 40
    assert report["provenance"]["dirty"] is False
    assert (passed / "run.json").exists()


def test_judging_anew_passes_from_a_folder_and_after_it_was_moved(
    passed: Path, tmp_path: Path, reef_archive: Command
) -> None:
    assert reef_archive("gate", passed).code == 0
    moved = tmp_path / "a" / "b" / "moved"
    shutil.copytree(passed, moved)
    answer = reef_archive("gate", moved, "--json")
    assert (answer.code, answer.document["verdict"]) == (1, "INCOMPLETE")
    assert "its reference is not here" in answer.document["cells"][0]["reason"]
    assert reef_archive("gate", moved, "--manifest", tmp_path / "repo/gate.json").code == 0


def test_the_first_divergence_is_named_by_order_of_execution(
    tmp_path: Path, reef_archive: Command
) -> None:
    gate = simple(tmp_path / "repo", ("same",))
    off = LAYERS | {
        "model.layers.10.mlp.experts.5.up_proj.weight": f32(3.0, 4.5),
        "model.layers.2.self_attn.q_proj.weight": f32(0.0, 1.0, 2.5),
        "lm_head.weight": f32(6.0),
    }
    gate.add("off", "x.safetensors", safetensors(off), safetensors(LAYERS))
    answer = reef_archive("gate", gate.write(), "--out", tmp_path / "repo/runs/a", "--json")
    assert answer.code == 1
    drift = answer.document["first_drift"]
    assert {key: drift[key] for key in ("stage", "cell", "rank", "layer", "family", "node")} == {
        "stage": "moe",
        "cell": "off",
        "rank": 0,
        "layer": 2,
        "family": "attention",
        "node": "q_proj",
    }
    assert drift["tensor"] == "model.layers.2.self_attn.q_proj.weight"
    assert drift["element"] == 2


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"lm_head.weight": f32(-0.0)}, "zeros of other sign"),
        ({"lm_head.weight": ("F32", (1,), b"\x01\x00\xc0\x7f")}, "NaN of other payload"),
        ({"lm_head.weight": ("I32", (1,), b"\0\0\0\0")}, "dtype I32 against F32"),
        ({"lm_head.weight": ("F32", (1, 1), b"\0\0\0\0")}, "shape [1, 1] against [1]"),
        ({"extra": f32(1.0)}, "is extra"),
        (None, "is missing"),
    ],
)
def test_signed_zero_nan_payload_dtype_shape_and_names_count(
    changed: Any, said: str, tmp_path: Path, reef_archive: Command
) -> None:
    nan = changed is not None and "NaN" in said
    base = {"a": f32(1.0), "lm_head.weight": f32(0.0)}
    if nan:
        base["lm_head.weight"] = ("F32", (1,), b"\x00\x00\xc0\x7f")
    given = {"a": base["a"]} if changed is None else base | changed
    gate = Gate(tmp_path / "repo")
    gate.add("cell", "x.safetensors", safetensors(given), safetensors(base))
    answer = reef_archive("gate", gate.write(), "--out", tmp_path / "repo/runs/a", "--json")
    assert answer.code == 1
    assert said in answer.document["cells"][0]["reason"]


def test_tensors_in_another_order_are_equal_and_noted(
    tmp_path: Path, reef_archive: Command
) -> None:
    gate = Gate(tmp_path / "repo")
    gate.add("cell", "x.safetensors", safetensors(LAYERS, {"a": "b"}), safetensors(LAYERS))
    answer = reef_archive("gate", gate.write(), "--out", tmp_path / "repo/runs/a", "--json")
    assert answer.code == 0
    assert any("header or order" in note for note in answer.document["notes"])


def test_a_stored_verdict_that_was_flipped_does_not_help(
    tmp_path: Path, reef_archive: Command
) -> None:
    gate = simple(tmp_path / "repo", ("same",))
    gate.add("off", "x.safetensors", safetensors({"a": f32(1.0)}), safetensors({"a": f32(2.0)}))
    out = tmp_path / "repo/runs/a"
    assert reef_archive("gate", gate.write(), "--out", out).code == 1
    report = json.loads((out / "rank-0.json").read_bytes())
    for cell in report["cells"]:
        cell.update(status="passed", reason=None, differences=[])
    (out / "rank-0.json").write_text(json.dumps(report | {"passed": True}))
    edit(out / "chain.json", passed=True, verdict="PASSED", first_drift=None, reasons=[])
    answer = reef_archive("gate", out, "--json")
    assert answer.code == 1
    assert answer.document["first_drift"]["cell"] == "off"


def test_an_artifact_that_was_changed_fails(passed: Path, reef_archive: Command) -> None:
    artifact = passed / "cells/second/rank-0/x.safetensors"
    data = bytearray(artifact.read_bytes())
    data[-1] ^= 1
    artifact.write_bytes(bytes(data))
    answer = reef_archive("gate", passed, "--json")
    assert answer.code == 1
    assert "was changed after" in answer.document["cells"][1]["reason"]


def test_an_artifact_that_was_added_fails(passed: Path, reef_archive: Command) -> None:
    (passed / "cells/second/rank-0/more.bin").write_bytes(b"x")
    assert "not in its report" in reef_archive("gate", passed, "--json").document["reasons"][0]


def test_an_artifact_that_is_gone_is_incomplete(passed: Path, reef_archive: Command) -> None:
    (passed / "cells/second/rank-0/x.safetensors").unlink()
    answer = reef_archive("gate", passed, "--json")
    assert (answer.code, answer.document["verdict"]) == (1, "INCOMPLETE")


@pytest.mark.parametrize(
    "data", [b"", b"{", b'{"schema": "reefkit.gate/1", "cel', b"[]", b"null", b"{}", b"\xff\xfe",
             b'{"schema": "reefkit.gate/1"}', b"[" * 100_000],
)  # fmt: skip
def test_a_report_that_is_cut_no_object_or_keyless_cannot_be_judged(
    data: bytes, passed: Path, reef_archive: Command
) -> None:
    (passed / "rank-0.json").write_bytes(data)
    answer = reef_archive("gate", passed, "--json")
    assert answer.code == 2
    assert answer.document["message"].count(".") >= 1
    assert "Traceback" not in answer.err + answer.out


def test_a_partial_report_is_no_report(passed: Path, reef_archive: Command) -> None:
    (passed / "rank-0.json").rename(passed / "rank-0.json.partial")
    answer = reef_archive("gate", passed, "--json")
    assert answer.code == 2
    assert "no report" in answer.document["message"]


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("commit", None, "does not say its commit"),
        ("environment", None, "does not say its environment"),
        ("run_sha256", None, "names no run record"),
        ("run_sha256", "0" * 64, "changed afterwards"),
        ("tree", "0" * 40, "another `tree`"),
    ],
)
def test_missing_or_contradicting_provenance_is_never_a_pass(
    key: str, value: Any, said: str, passed: Path, reef_archive: Command
) -> None:
    report = json.loads((passed / "rank-0.json").read_bytes())
    report["provenance"][key] = value
    (passed / "rank-0.json").write_text(json.dumps(report))
    answer = reef_archive("gate", passed, "--json")
    assert answer.code == 1
    assert any(said in reason for reason in answer.document["reasons"])


def test_without_a_repository_it_is_incomplete(tmp_path: Path, reef_archive: Command) -> None:
    gate = simple(tmp_path / "repo")
    manifest = gate.write()
    shutil.rmtree(tmp_path / "repo/.git")
    answer = reef_archive("gate", manifest, "--out", tmp_path / "repo/runs/a", "--json")
    assert (answer.code, answer.document["verdict"]) == (1, "INCOMPLETE")


def test_a_quick_subset_is_incomplete(tmp_path: Path, reef_archive: Command) -> None:
    gate = simple(tmp_path / "repo")
    gate.cells[0]["quick"] = True
    answer = reef_archive(
        "gate", gate.write(), "--out", tmp_path / "repo/runs/a", "--quick", "--json"
    )
    assert (answer.code, answer.document["verdict"]) == (1, "INCOMPLETE")
    assert [cell["status"] for cell in answer.document["cells"]] == ["passed", "skipped"]


def test_a_quick_subset_of_all_cells_is_still_incomplete(
    tmp_path: Path, reef_archive: Command
) -> None:
    gate = simple(tmp_path / "repo", quick=True)
    answer = reef_archive(
        "gate", gate.write(), "--out", tmp_path / "repo/runs/a", "--quick", "--json"
    )
    assert (answer.code, answer.document["verdict"]) == (1, "INCOMPLETE")


@pytest.mark.parametrize("flags", [("--tp", 2), ("--world-size", 2), ("--cp", 3)])
def test_a_topology_that_is_not_accepted_is_refused_before_anything_runs(
    flags: tuple[str, int], tmp_path: Path, reef_archive: Command
) -> None:
    manifest = simple(tmp_path / "repo").write()
    answer = reef_archive("gate", manifest, "--out", tmp_path / "repo/runs/a", *flags, "--json")
    assert answer.code == 2
    assert "does not accept" in answer.document["message"]
    assert not (tmp_path / "repo/runs/a").exists()


def test_a_report_of_another_topology_cannot_be_judged(passed: Path, reef_archive: Command) -> None:
    report = json.loads((passed / "rank-0.json").read_bytes())
    report["topology"]["tp"] = 2
    (passed / "rank-0.json").write_text(json.dumps(report))
    assert reef_archive("gate", passed).code == 2


@pytest.mark.parametrize("pinned", ["pin", "list"])
def test_a_cell_that_vanished_from_the_manifest_fails(
    pinned: str, tmp_path: Path, reef_archive: Command
) -> None:
    gate = simple(tmp_path / "repo")
    manifest = gate.write()
    if pinned == "list":
        manifest = gate.write(pinned_ids=["first", "second"])
    edit(manifest, cells=gate.cells[:1])
    answer = reef_archive("gate", manifest, "--out", tmp_path / "repo/runs/a", "--json")
    assert answer.code == 1
    assert answer.document["code"] == "VanishedCell"
    assert not (tmp_path / "repo/runs/a").exists()


def test_a_run_of_another_manifest_than_the_one_beside_it_fails(
    passed: Path, reef_archive: Command
) -> None:
    document = json.loads((passed / "gate-manifest.json").read_bytes())
    document["cells"] = document["cells"][:1]
    document["pinned_ids"] = ["first"]
    (passed / "gate-manifest.json").write_text(json.dumps(document))
    answer = reef_archive("gate", passed, "--json")
    assert answer.code == 1
    assert any("another manifest" in reason for reason in answer.document["reasons"])


def test_a_finished_run_is_not_run_again_and_not_overwritten(
    passed: Path, tmp_path: Path, reef_archive: Command
) -> None:
    before = (passed / "rank-0.json").read_bytes()
    manifest = tmp_path / "repo/gate.json"
    assert reef_archive("gate", manifest, "--out", passed).code == 0
    assert (passed / "rank-0.json").read_bytes() == before
    Gate(tmp_path / "repo").git("commit", "-q", "--allow-empty", "-m", "y")
    answer = reef_archive("gate", manifest, "--out", passed, "--json")
    assert (answer.code, answer.document["code"]) == (2, "DestinationExists")
    assert reef_archive("gate", manifest, "--out", passed, "--force").code == 0
    assert (passed / "rank-0.json").read_bytes() != before


def test_the_text_says_which_cell_and_why(tmp_path: Path, reef_archive: Command) -> None:
    gate = simple(tmp_path / "repo", ("same",))
    gate.add("off\x5b1]", "x.bin", b"abc", b"abd")
    answer = reef_archive("gate", gate.write(), "--out", tmp_path / "repo/runs/a")
    assert "First divergence: stage moe, cell off[1], rank 0, other, x." in answer.out
    assert answer.out.rstrip().endswith("FAILED: stage moe, 1 of 2 cells did not pass.")
