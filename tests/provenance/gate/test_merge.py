"""Merging what a gate came to in several Python environments."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from gates import LAYERS, Gate, safetensors

from reefkit.errors import Unusable
from reefkit.provenance.gate.chain import Findings, fold_cells, judge_cells
from reefkit.provenance.gate.merge import Judged, judge_environment, merge
from reefkit.provenance.gate.model import (
    ArtifactRecord,
    CellResult,
    CellStatus,
    ChainReport,
    Drift,
    GateVerdict,
    Provenance,
    RankReport,
    Topology,
)

FINGERPRINT = "f" * 64
PASSED, FAILED, UNAVAILABLE = CellStatus.PASSED, CellStatus.FAILED, CellStatus.UNAVAILABLE


def environment(
    name: str,
    cells: dict[str, CellStatus],
    *,
    artifact: str = "a" * 64,
    world: int = 2,
    also: list[str] | None = None,
) -> Judged:
    """Make an environment as its judge would give it; `also` are reasons beside the cells'."""
    results = tuple(
        CellResult(
            cell,
            status,
            None if status is PASSED else f"{status.value} there",
            (ArtifactRecord("out.npy", artifact, 8),) if status is PASSED else (),
            compared=int(status is PASSED),
        )
        for cell, status in cells.items()
    )
    topology = Topology(tp=world, world_size=world)
    who = Provenance("e", "c" * 40, "d" * 40, False, {"python": name})
    reports = {
        rank: RankReport(
            "moe", FINGERPRINT, rank, topology, results,
            replace(who, execution_id=f"{name}-{rank}"), "9" * 64,
        )
        for rank in range(world)
    }  # fmt: skip
    findings = Findings(incomplete=list(also or []))
    by_rank = {rank: {cell.id: cell for cell in results} for rank in reports}
    folded = fold_cells(list(cells), range(world), by_rank)
    judge_cells(folded, world, findings)
    chain = ChainReport(
        "moe", FINGERPRINT, folded, findings.verdict, findings.reasons, topology=topology,
        ranks=tuple(reports), commit=who.commit, tree=who.tree, dirty=False,
        reports={f"rank-{rank}.json": "8" * 64 for rank in reports},
    )  # fmt: skip
    return Judged(name, chain, reports)


def test_what_each_environment_lacks_the_other_has() -> None:
    merged = merge(
        [
            environment("vllm", {"a": PASSED, "b": UNAVAILABLE}),
            environment("sglang", {"a": UNAVAILABLE, "b": PASSED}),
        ]
    )
    assert merged.chain.verdict is GateVerdict.PASSED
    assert merged.chain.reasons == ()
    assert merged.sources == {"a": ("vllm",), "b": ("sglang",)}
    assert any("passed in vllm; in sglang it was unavailable" in n for n in merged.chain.notes)
    document = json.loads(json.dumps(merged.to_json()))
    assert document["passed"] is True
    assert [cell["environments"] for cell in document["cells"]] == [["vllm"], ["sglang"]]
    assert document["environments"]["vllm"]["cells"] == {"a": "passed", "b": "unavailable"}
    assert document["environments"]["sglang"]["runs"]["1"]["environment"] == {"python": "sglang"}
    assert sorted(document["reports"])[0] == "sglang/rank-0.json"


def test_equal_artifacts_agree_and_different_ones_conflict() -> None:
    one = environment("one", {"a": PASSED})
    assert merge([one, environment("two", {"a": PASSED})]).sources == {"a": ("one", "two")}
    merged = merge([one, environment("two", {"a": PASSED}, artifact="b" * 64)])
    assert merged.chain.verdict is GateVerdict.FAILED
    assert "with different artifacts: out.npy on rank 0" in merged.chain.reasons[0]
    assert merged.sources == {"a": ()}


@pytest.mark.parametrize(("one", "two"), list(product(CellStatus, CellStatus)))
def test_a_failure_anywhere_fails_and_only_a_pass_passes(one: CellStatus, two: CellStatus) -> None:
    merged = merge([environment("x", {"a": one}), environment("y", {"a": two})])
    if FAILED in (one, two):
        assert merged.chain.verdict is GateVerdict.FAILED
    elif PASSED in (one, two):
        assert merged.chain.verdict is GateVerdict.PASSED
    else:
        assert merged.chain.verdict is GateVerdict.INCOMPLETE
    assert merged.chain.passed == (not merged.chain.reasons)


def test_a_copy_is_no_other_environment() -> None:
    for status in CellStatus:
        one = environment("x", {"a": status, "b": PASSED})
        merged = merge([one, replace(one, name="y")])
        wanted = GateVerdict.FAILED if status is FAILED else GateVerdict.INCOMPLETE
        assert merged.chain.verdict is wanted
        assert any("same execution" in reason for reason in merged.chain.reasons)


@pytest.mark.parametrize(
    ("one", "other", "passes"),
    [
        ({None}, {None}, True), ({"a"}, {"a"}, True), ({"a"}, {"b"}, False),
        ({"a"}, {None}, False), ({""}, {""}, False), ({"a", "b"}, {"a"}, False),
    ],
)  # fmt: skip
def test_environments_ran_with_the_same_changes(
    one: set[str | None], other: set[str | None], passes: bool
) -> None:
    merged = merge(
        [
            replace(environment("x", {"a": PASSED}), changes=frozenset(one)),
            replace(environment("y", {"a": PASSED}), changes=frozenset(other)),
        ]
    )
    assert merged.chain.passed is passes


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("config_fingerprint", "0" * 64, "configuration"),
        ("commit", "0" * 40, "commit"),
        ("commit", None, "commit"),
        ("tree", "0" * 40, "tree"),
        ("topology", Topology(world_size=2), "topology"),
        ("stage", "other", "stage"),
    ],
)
def test_another_identity_is_never_merged_into_a_pass(name: str, value: object, what: str) -> None:
    one = environment("x", {"a": PASSED})
    two = environment("y", {"a": PASSED})
    changes: dict[str, Any] = {name: value}
    other = replace(two, chain=replace(two.chain, **changes))
    merged = merge([one, other])
    assert merged.chain.verdict is GateVerdict.FAILED
    assert f"have not the same {what}" in merged.chain.reasons[0]


def test_another_manifest_or_other_cells_fail() -> None:
    one = environment("x", {"a": PASSED})
    other = environment("y", {"a": PASSED})
    reports = {rank: replace(r, manifest_sha256="1" * 64) for rank, r in other.reports.items()}
    assert not merge([one, replace(other, reports=reports)]).chain.passed
    merged = merge([one, environment("y", {"a": PASSED, "b": PASSED})])
    assert merged.chain.verdict is GateVerdict.FAILED
    assert [cell.id for cell in merged.chain.cells] == ["a", "b"]


def test_what_speaks_against_an_environment_stays() -> None:
    merged = merge(
        [
            environment("x", {"a": PASSED}, also=["Rank 1 of 2 gave no report."]),
            environment("y", {"a": PASSED}),
        ]
    )
    assert merged.chain.verdict is GateVerdict.INCOMPLETE
    assert merged.chain.reasons == ("x: Rank 1 of 2 gave no report.",)


def test_a_chain_that_does_not_pass_without_a_reason_is_no_pass() -> None:
    one = environment("x", {"a": PASSED})
    for verdict in (GateVerdict.FAILED, GateVerdict.INCOMPLETE):
        silent = replace(one, chain=replace(one.chain, verdict=verdict))
        assert merge([silent, environment("y", {"a": PASSED})]).chain.verdict is verdict


def test_the_first_divergence_is_that_of_the_earliest_cell() -> None:
    drift = Drift("moe", "b", 0, 3, "mlp", None, "t")
    one = environment("x", {"a": PASSED, "b": FAILED})
    two = environment("y", {"a": FAILED, "b": PASSED})
    merged = merge(
        [
            replace(one, chain=replace(one.chain, first_drift=drift)),
            replace(two, chain=replace(two.chain, first_drift=replace(drift, cell="a"))),
        ]
    )
    assert merged.chain.first_drift is not None
    assert merged.chain.first_drift.cell == "a"


def test_dirty_anywhere_is_dirty() -> None:
    one = environment("x", {"a": PASSED})
    two = replace(one, name="y", chain=replace(one.chain, dirty=True))
    assert merge([one, two]).chain.dirty is True
    three = replace(one, name="z", chain=replace(one.chain, dirty=None))
    assert merge([one, three]).chain.dirty is None


@pytest.mark.parametrize("names", [["x"], ["x", "x"], ["x", ""], ["x", "a/b"], ["x", "\x1b[0m"]])
def test_one_environment_or_bad_names_are_refused(names: list[str]) -> None:
    with pytest.raises(Unusable):
        merge([environment(name, {"a": PASSED}) for name in names])


def test_real_runs_in_two_environments_are_merged_and_a_changed_artifact_is_seen(
    tmp_path: Path, reef_archive: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(tmp_path / "repo")
    for cell in ("vllm", "sglang"):
        command = f'test "$ENGINE" = {cell} || exit 77; cp -r given/{cell}/. "$REEFKIT_GATE_OUT"'
        gate.add(cell, "x.safetensors", safetensors(LAYERS), command=["sh", "-c", command])
    manifest, engines = gate.write(), ("vllm", "sglang")
    for engine in engines:
        monkeypatch.setenv("ENGINE", engine)
        assert reef_archive("gate", manifest, "--out", tmp_path / "repo/runs" / engine).code == 1

    def merged() -> Any:
        return merge(
            [judge_environment(each, tmp_path / "repo/runs" / each) for each in ("vllm", "sglang")]
        )

    found = merged()
    assert found.chain.reasons == ()
    assert found.chain.verdict is GateVerdict.PASSED
    assert found.sources == {"vllm": ("vllm",), "sglang": ("sglang",)}
    artifact = next((tmp_path / "repo/runs/sglang").glob("cells/sglang/rank-0/x.safetensors"))
    artifact.chmod(0o644)
    artifact.write_bytes(artifact.read_bytes()[:-1] + b"\x01")
    assert merged().chain.verdict is GateVerdict.FAILED
