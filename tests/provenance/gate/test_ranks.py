"""Several ranks, interrupted runs, stages after one another, and two runs of the same."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gates import LAYERS, Gate, edit, f32, safetensors, simple

from reefkit.provenance.gate import Topology

Command = Callable[..., Any]
TWO = [{"world_size": 2, "tp": 2}]
CLI = [sys.executable, "-c", "from reefkit.cli import archive_main; archive_main()", "gate"]


# A shell's background job ignores SIGINT, and so would whatever these tests start there.
FOREGROUND = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
"""


def start(*arguments: object, **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", FOREGROUND, *CLI, *map(str, arguments)],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def two_ranks(root: Path, *, differs: bool = False) -> Path:
    """Make a gate for two ranks; with `differs`, rank 1 parts in an earlier layer than rank 0."""
    gate = Gate(root)
    for rank, name in (
        (0, "model.layers.10.mlp.experts.5.up_proj.weight"),
        (1, "model.embed_tokens.weight"),
    ):
        given = LAYERS | ({name: f32(9.0, 9.0)} if differs else {})
        gate.add("cell", f"r{rank}/x.safetensors", safetensors(given), safetensors(LAYERS))
        gate.cells[:] = gate.cells[-1:]
    gate.cells[0] |= {
        "command": ["cp", "given/cell/r{rank}/x.safetensors", "{out}"],
        "artifacts": ["x.safetensors"],
        "reference": "want/cell/r{rank}",
    }
    return gate.write(topologies=TWO)


def test_ranks_write_their_reports_at_the_same_time_and_the_last_one_the_chain(
    tmp_path: Path, reef_archive: Command
) -> None:
    manifest = two_ranks(tmp_path)
    out = tmp_path / "runs/a"
    ranks = [
        start(manifest, "--out", out, "--tp", 2, "--wait", 60, RANK=str(rank), WORLD_SIZE="2")
        for rank in range(2)
    ]
    said = [rank.communicate() for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], said
    chain = json.loads((out / "chain.json").read_bytes())
    assert (chain["passed"], chain["ranks"], chain["topology"]["tp"]) == (True, [0, 1], 2)
    assert reef_archive("gate", out).code == 0
    assert not list(out.glob("*.partial")) and not list(out.glob(".*"))


def run_both(manifest: Path, out: Path, reef_archive: Command) -> Any:
    flags = ("--out", out, "--tp", 2, "--world-size", 2, "--json")
    reef_archive("gate", manifest, *flags, "--rank", 0)
    return reef_archive("gate", manifest, *flags, "--rank", 1)


def test_the_first_divergence_is_by_layer_before_rank(
    tmp_path: Path, reef_archive: Command
) -> None:
    answer = run_both(two_ranks(tmp_path, differs=True), tmp_path / "runs/a", reef_archive)
    drift = answer.document["first_drift"]
    assert (drift["rank"], drift["family"], drift["layer"]) == (1, "embedding", None)


def test_a_missing_rank_is_incomplete_and_there_is_no_chain(
    tmp_path: Path, reef_archive: Command
) -> None:
    manifest, out = two_ranks(tmp_path), tmp_path / "runs/a"
    answer = reef_archive(
        "gate", manifest, "--out", out, "--tp", 2, "--rank", 0, "--world-size", 2, "--json"
    )
    assert (answer.code, answer.document["verdict"]) == (1, "INCOMPLETE")
    assert not (out / "chain.json").exists()
    assert any("Rank 1 of 2 gave no report" in reason for reason in answer.document["reasons"])


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        ({"rank": 0}, 2, "says that it is of rank 0"),
        ({"topology": Topology(world_size=2).to_json()}, 2, ""),
        ({"config_fingerprint": "0" * 64}, 1, "another configuration"),
        ({"stage": "other"}, 1, "another stage"),
        ({"cells": []}, 1, "no report has it"),
    ],
)
def test_ranks_that_contradict_one_another_are_no_pass(
    change: Any, code: int, said: str, tmp_path: Path, reef_archive: Command
) -> None:
    out = tmp_path / "runs/a"
    assert run_both(two_ranks(tmp_path), out, reef_archive).code == 0
    edit(out / "rank-1.json", **change)
    answer = reef_archive("gate", out, "--json")
    assert answer.code == code
    assert said in answer.out


def test_ranks_of_different_commits_are_no_pass(tmp_path: Path, reef_archive: Command) -> None:
    manifest, out = two_ranks(tmp_path), tmp_path / "runs/a"
    flags = ("--out", out, "--tp", 2, "--world-size", 2, "--json")
    reef_archive("gate", manifest, *flags, "--rank", 0)
    Gate(tmp_path).git("commit", "-q", "--allow-empty", "-m", "y")
    answer = reef_archive("gate", manifest, *flags, "--rank", 1)
    assert answer.code == 1
    assert any("different commits" in reason for reason in answer.document["reasons"])


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_killed_run_continues_where_it_was(
    number: signal.Signals, tmp_path: Path, reef_archive: Command
) -> None:
    gate = simple(tmp_path, ("first", "second"))
    gate.cells[0]["command"] = ["sh", "-c", "echo x >> runs/count; cp given/first/* {out}"]
    gate.cells[1]["command"] = [
        "sh", "-c", "touch runs/second; test -e runs/go || sleep 60; cp given/second/* {out}",
    ]  # fmt: skip
    manifest, out = gate.write(), tmp_path / "runs/a"
    (tmp_path / "runs").mkdir()
    process = start(manifest, "--out", out)
    end = time.monotonic() + 30
    while not (tmp_path / "runs/second").exists() and time.monotonic() < end:
        time.sleep(0.02)
    process.send_signal(number)
    process.communicate()
    assert process.returncode != 0
    assert reef_archive("gate", out).code == 2  # a partial report is none
    (tmp_path / "runs/go").touch()
    assert reef_archive("gate", manifest, "--out", out).code == 0
    assert (tmp_path / "runs/count").read_text() == "x\n"
    assert reef_archive("gate", out).code == 0


@pytest.mark.parametrize("what", ["artifact", "commit", "manifest", "dirty"])
def test_what_an_interrupted_run_ended_is_dropped_when_anything_is_other(
    what: str, tmp_path: Path, reef_archive: Command
) -> None:
    gate = simple(tmp_path, ("first", "second"))
    gate.cells[0]["command"] = ["sh", "-c", "echo x >> runs/count; cp given/first/* {out}"]
    manifest, out = gate.write(), tmp_path / "runs/a"
    (tmp_path / "runs").mkdir()
    reef_archive("gate", manifest, "--out", out)
    (out / "rank-0.json").rename(out / "rank-0.json.partial")
    partial = json.loads((out / "rank-0.json.partial").read_bytes())
    edit(out / "rank-0.json.partial", cells=partial["cells"][:1])
    if what == "artifact":
        (out / "cells/first/rank-0/x.safetensors").write_bytes(b"x")
    elif what == "commit":
        gate.git("commit", "-q", "--allow-empty", "-m", "y")
    elif what == "dirty":
        (tmp_path / ".gitignore").write_text("runs/\nmore\n")
    else:
        gate.write(config={"other": 1})
    answer = reef_archive(
        "gate", manifest, "--out", out, *(["--force"] if what == "manifest" else [])
    )
    assert answer.code == 0
    assert (tmp_path / "runs/count").read_text() == "x\nx\n"


def stages(tmp_path: Path, reef_archive: Command, **pin: Any) -> tuple[Path, Path]:
    """Make a passed stage and the manifest of the next one; give the latter, and the run."""
    first = simple(tmp_path / "one")
    run = tmp_path / "one/runs/a"
    assert reef_archive("gate", first.write(), "--out", run).code == 0
    second = simple(tmp_path / "two")
    predecessor = {"path": "../one/runs/a", "stage": "moe"} | pin
    return second.write(stage="chain", predecessor=predecessor), run


def test_a_later_stage_runs_after_one_that_passed(tmp_path: Path, reef_archive: Command) -> None:
    manifest, _ = stages(tmp_path, reef_archive)
    out = tmp_path / "two/runs/a"
    answer = reef_archive("gate", manifest, "--out", out, "--json")
    assert answer.code == 0
    assert answer.document["predecessor"]["stage"] == "moe"
    assert json.loads((out / "run.json").read_bytes())["predecessor"]["id"]
    assert reef_archive("gate", out).code == 0
    shutil.rmtree(tmp_path / "one")
    again = reef_archive("gate", out, "--json")
    assert (again.code, again.document["verdict"]) == (1, "INCOMPLETE")
    assert any("is not here to be judged" in reason for reason in again.document["reasons"])
    (out / "predecessor.json").unlink()
    assert reef_archive("gate", out, "--json").document["verdict"] == "INCOMPLETE"


def _tamper(run: Path) -> None:
    (run / "cells/first/rank-0/x.safetensors").write_bytes(b"x")


def _lose_chain(run: Path) -> None:
    (run / "chain.json").unlink()


def _cut_chain(run: Path) -> None:
    (run / "chain.json").write_bytes(b'{"schema": "reefkit.chain/1"')


def _cut_report(run: Path) -> None:
    (run / "rank-0.json").write_bytes(b"{}")


@pytest.mark.parametrize(
    ("pin", "damage", "said"),
    [
        ({}, _tamper, "did not pass"),
        ({}, shutil.rmtree, "is missing"),
        ({}, _lose_chain, "has no chain.json"),
        ({}, _cut_chain, "cannot be judged"),
        ({}, _cut_report, "cannot be judged"),
        ({"stage": "other"}, None, "is of stage `moe`"),
        ({"config_fingerprint": "0" * 64}, None, "another configuration"),
        ({"commit": "0" * 40}, None, "ran at commit"),
        ({"commit": "same"}, None, "ran at commit"),
        ({"sha256": "0" * 64}, None, "another chain report"),
        ({"path": "../one/runs/a/chain.json"}, None, "must pin by its SHA-256"),
    ],
)
def test_a_later_stage_refuses_before_running(
    pin: Any, damage: Any, said: str, tmp_path: Path, reef_archive: Command
) -> None:
    manifest, run = stages(tmp_path, reef_archive, **pin)
    if damage is not None:
        damage(run)
    out = tmp_path / "two/runs/a"
    answer = reef_archive("gate", manifest, "--out", out, "--json")
    assert (answer.code, answer.document["code"]) == (2, "PredecessorRefused")
    assert said in answer.document["message"]
    assert not out.exists()


def test_a_dirty_predecessor_is_refused(tmp_path: Path, reef_archive: Command) -> None:
    first = simple(tmp_path / "one")
    manifest = first.write()
    (tmp_path / "one/.gitignore").write_text("runs/\nmore\n")
    run = tmp_path / "one/runs/a"
    assert reef_archive("gate", manifest, "--out", run).code == 0
    second = simple(tmp_path / "two").write(predecessor={"path": "../one/runs/a", "stage": "moe"})
    answer = reef_archive("gate", second, "--out", tmp_path / "two/runs/a", "--json")
    assert answer.code == 2
    assert "from a tree with changes" in answer.document["message"]


def test_a_quick_predecessor_is_refused(tmp_path: Path, reef_archive: Command) -> None:
    first = simple(tmp_path / "one", quick=True)
    assert reef_archive("gate", first.write(), "--out", tmp_path / "one/r", "--quick").code == 1
    second = simple(tmp_path / "two").write(predecessor={"path": "../one/r", "stage": "moe"})
    assert reef_archive("gate", second, "--out", tmp_path / "two/runs/a").code == 2


def test_a_chain_report_alone_counts_when_its_digest_is_pinned(
    tmp_path: Path, reef_archive: Command
) -> None:
    import hashlib

    first = simple(tmp_path / "one")
    assert reef_archive("gate", first.write(), "--out", tmp_path / "one/r").code == 0
    chain = (tmp_path / "one/r/chain.json").read_bytes()
    (tmp_path / "chain.json").write_bytes(chain)
    pin = {"path": "../chain.json", "stage": "moe", "sha256": hashlib.sha256(chain).hexdigest()}
    second = simple(tmp_path / "two").write(predecessor=pin)
    assert reef_archive("gate", second, "--out", tmp_path / "two/runs/a").code == 0


def test_two_runs_of_the_same_are_bitwise_identical(tmp_path: Path, reef_archive: Command) -> None:
    manifest = simple(tmp_path).write()
    for name in ("a", "b"):
        assert reef_archive("gate", manifest, "--out", tmp_path / "runs" / name).code == 0
    a, b = tmp_path / "runs/a", tmp_path / "runs/b"
    answer = reef_archive("gate", a, "--against", b)
    assert answer.code == 0
    assert "All 2 artifacts bitwise identical to the earlier run." in answer.out


@pytest.mark.parametrize("side", ["a", "b"])
def test_what_one_of_two_runs_lacks_is_no_pass(
    side: str, tmp_path: Path, reef_archive: Command
) -> None:
    manifest = simple(tmp_path).write()
    for name in ("a", "b"):
        reef_archive("gate", manifest, "--out", tmp_path / "runs" / name)
    (tmp_path / f"runs/{side}/cells/second/rank-0/x.safetensors").unlink()
    answer = reef_archive("gate", tmp_path / "runs/a", "--against", tmp_path / "runs/b", "--json")
    assert answer.code == 1
    assert answer.document["against"]["identical"] == 1
    assert answer.document["first_drift"]["cell"] == "second"


def test_the_first_difference_of_two_runs_is_named(tmp_path: Path, reef_archive: Command) -> None:
    gate = simple(tmp_path)
    for cell in gate.cells:
        cell["reference"] = "none"
    manifest = gate.write()
    assert reef_archive("gate", manifest, "--out", tmp_path / "runs/a").code == 0
    off = safetensors(LAYERS | {"model.layers.2.self_attn.q_proj.weight": f32(-0.0, 1.0, 2.0)})
    (tmp_path / "given/second/x.safetensors").write_bytes(off)
    gate.commit()
    out = tmp_path / "runs/b"
    answer = reef_archive(
        "gate", manifest, "--out", out, "--against", tmp_path / "runs/a", "--json"
    )
    assert answer.code == 1
    drift = answer.document["first_drift"]
    assert (drift["cell"], drift["layer"], drift["element"]) == ("second", 2, 0)
    assert "zeros of other sign" in drift["reason"]


def test_against_something_without_artifacts_is_no_pass(
    tmp_path: Path, reef_archive: Command
) -> None:
    manifest = simple(tmp_path).write()
    reef_archive("gate", manifest, "--out", tmp_path / "runs/a")
    (tmp_path / "empty").mkdir()
    assert reef_archive("gate", tmp_path / "runs/a", "--against", tmp_path / "empty").code == 1


def test_a_chain_report_is_written_where_asked(tmp_path: Path, reef_archive: Command) -> None:
    manifest = simple(tmp_path).write()
    reef_archive("gate", manifest, "--out", tmp_path / "runs/a")
    wanted = tmp_path / "chain.json"
    assert reef_archive("gate", tmp_path / "runs/a", "--out", wanted).code == 0
    assert json.loads(wanted.read_bytes())["passed"] is True
    assert reef_archive("gate", tmp_path / "runs/a", "--out", wanted).code == 2


@pytest.mark.parametrize("environment", [{"RANK": "x"}, {"RANK": "2", "WORLD_SIZE": "2"}])
def test_a_rank_that_makes_no_sense_is_refused(
    environment: dict[str, str],
    tmp_path: Path,
    reef_archive: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, text in environment.items():
        monkeypatch.setenv(name, text)
    assert reef_archive("gate", simple(tmp_path).write(), "--out", tmp_path / "r").code == 2
