"""What could make a run look like more than it is: its own past, its own references, its copies."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gates import LAYERS, Gate, edit, f32, safetensors, simple
from hypothesis import given, settings
from hypothesis import strategies as st

from reefkit.errors import Unusable
from reefkit.provenance.gate.tensor_bits import compare_bits

Command = Callable[..., Any]
SH = ["sh", "-c"]
CLI = [sys.executable, "-c", "from reefkit.cli import archive_main; archive_main()", "gate"]


def counting(root: Path, cells: tuple[str, ...] = ("first", "second")) -> Gate:
    """Make a gate whose cells write a letter into `runs/count` for every time that they run."""
    gate = simple(root, cells)
    for cell in gate.cells:
        script = f"echo {cell['id']} >> runs/count; cp given/{cell['id']}/* {{out}}"
        cell["command"] = [*SH, script]
    (root / "runs").mkdir()
    return gate


def count(root: Path) -> int:
    return len((root / "runs/count").read_text().split())


def test_a_finished_run_of_another_environment_is_refused(
    tmp_path: Path, reef_archive: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest, out = counting(tmp_path).write(), tmp_path / "runs/a"
    assert reef_archive("gate", manifest, "--out", out).code == 0
    monkeypatch.setenv("NCCL_ALGO", "Ring")
    answer = reef_archive("gate", manifest, "--out", out, "--json")
    assert (answer.code, answer.document["code"]) == (2, "DestinationExists")
    assert "another environment: variables.NCCL_ALGO" in answer.document["message"]
    assert "--force" in answer.document["remedy"]
    assert count(tmp_path) == 2
    assert reef_archive("gate", manifest, "--out", out, "--force").code == 0
    assert count(tmp_path) == 4


def test_where_a_rank_runs_is_no_other_environment_and_that_nothing_ran_is_said(
    tmp_path: Path, reef_archive: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest, out = counting(tmp_path).write(), tmp_path / "runs/a"
    first = reef_archive("gate", manifest, "--out", out, "--json")
    assert not any("Nothing was run" in note for note in first.document["notes"])
    monkeypatch.setenv("LOCAL_RANK", "3")
    answer = reef_archive("gate", manifest, "--out", out, "--json")
    assert answer.code == 0
    assert answer.document["notes"][0].startswith("Nothing was run: all 2 cells")
    assert count(tmp_path) == 2
    assert "Note: Nothing was run" in reef_archive("gate", manifest, "--out", out).out


def test_a_killed_run_of_another_environment_is_not_continued_and_its_mark_is_kept(
    tmp_path: Path, reef_archive: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest, out = counting(tmp_path).write(), tmp_path / "runs/a"
    reef_archive("gate", manifest, "--out", out)
    (out / "rank-0.json").rename(out / "rank-0.json.partial")
    partial = json.loads((out / "rank-0.json.partial").read_bytes())
    edit(out / "rank-0.json.partial", cells=partial["cells"][:1])
    (out / "run.json").unlink()
    (out / "run.json.started").write_text('{"killed": 1}')
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert reef_archive("gate", manifest, "--out", out).code == 0
    assert count(tmp_path) == 4
    (mark,) = out.glob("run-earlier-0-*")
    assert mark.read_text() == '{"killed": 1}'


@pytest.mark.parametrize("link", [False, True])
def test_a_reference_inside_of_the_run_is_refused_before_anything_runs(
    link: bool, tmp_path: Path, reef_archive: Command
) -> None:
    gate = counting(tmp_path, ("cell",))
    inside = "runs/a/cells/cell/rank-{rank}"
    if link:
        (tmp_path / "linked").symlink_to(tmp_path / "runs/a/cells/cell/rank-0")
    gate.cells[0]["reference"] = "linked" if link else inside
    answer = reef_archive("gate", gate.write(), "--out", tmp_path / "runs/a", "--json")
    assert answer.code == 2
    assert "no reference of its own" in answer.document["message"]
    assert not (tmp_path / "runs/a").exists()


@pytest.mark.parametrize(
    "script",
    [
        "cp given/b/* {out}; cp given/b/* want/b/",
        "cp given/b/* {out}; rm -r want/b; cp -r given/b want/b",
        "cp given/b/* {out}; rm want/b/y.safetensors",
    ],
)
@pytest.mark.parametrize("cell", [0, 1])
def test_a_reference_that_is_written_while_cells_run_fails(
    script: str, cell: int, tmp_path: Path, reef_archive: Command
) -> None:
    gate = Gate(tmp_path)
    off = safetensors(LAYERS | {"lm_head.weight": f32(7.0)})
    gate.add("a", "x.safetensors", b"a")
    gate.add("b", "x.safetensors", off, safetensors(LAYERS), artifacts=["*.safetensors"])
    gate.cells[1]["command"] = [*SH, "cp given/b/* {out}"]
    gate.cells[cell]["command"] = [*SH, script.replace("{out}", "{out}/" if cell else "/dev/null")]
    if cell == 0:
        gate.cells[0] |= {"reference": "none", "command": [
            *SH, script.replace("cp given/b/* {out};", "cp given/a/* {out};")]}  # fmt: skip
    if "y.safe" in script:
        (tmp_path / "want/b/x.safetensors").write_bytes(off)
        (tmp_path / "want/b/y.safetensors").write_bytes(b"y")
    answer = reef_archive("gate", gate.write(), "--out", tmp_path / "runs/a", "--json")
    assert (answer.code, answer.document["verdict"]) == (1, "FAILED")
    report = json.loads((tmp_path / "runs/a/rank-0.json").read_bytes())
    assert "was written or changed while the run lasted" in report["cells"][1]["reason"]


@pytest.mark.parametrize(
    "script",
    [
        "rm -r {out}",
        "rm -r {out}; echo x > {out}",
        "rm -r {out}; ln -s /tmp {out}",
        "rm -r {out}/..",
        "mkdir {out}/../rank-0; touch {out}/../rank-0/x",
    ],
)
def test_a_cell_that_spoils_its_own_folder_fails_alone(
    script: str, tmp_path: Path, reef_archive: Command
) -> None:
    gate = counting(tmp_path)
    gate.cells[0]["command"] = [*SH, script]
    answer = reef_archive("gate", gate.write(), "--out", tmp_path / "runs/a", "--json")
    assert (answer.code, answer.document["verdict"]) == (1, "FAILED"), answer
    assert [cell["status"] for cell in answer.document["cells"]] == ["failed", "passed"]
    assert count(tmp_path) == 1


def test_a_second_process_of_a_rank_is_refused_before_its_cells_run(
    tmp_path: Path, reef_archive: Command
) -> None:
    gate = counting(tmp_path, ("cell",))
    gate.cells[0]["command"][-1] += "; touch runs/began; until test -e runs/go; do sleep 0.02; done"
    manifest, out = gate.write(), tmp_path / "runs/a"
    first = subprocess.Popen([*CLI, str(manifest), "--out", str(out)], stdout=subprocess.DEVNULL)
    end = time.monotonic() + 30
    while not (tmp_path / "runs/began").exists() and time.monotonic() < end:
        time.sleep(0.02)
    answer = reef_archive("gate", manifest, "--out", out, "--json")
    (tmp_path / "runs/go").touch()
    assert first.wait(30) == 0
    assert answer.code == 2
    assert "Another process runs rank 0" in answer.document["message"]
    assert count(tmp_path) == 1
    assert not list(out.glob(".*"))


def runs(root: Path, reef_archive: Command) -> tuple[Path, Path, Path]:
    """Make two runs of one gate; give the manifest and both."""
    manifest = simple(root).write()
    for name in ("a", "b"):
        assert reef_archive("gate", manifest, "--out", root / "runs" / name).code == 0
    return manifest, root / "runs/a", root / "runs/b"


def test_a_run_is_not_held_against_itself_or_its_copy(
    tmp_path: Path, reef_archive: Command
) -> None:
    _, a, _ = runs(tmp_path, reef_archive)
    copy = shutil.copytree(a, tmp_path / "runs/copy")
    for other in (a, copy):
        answer = reef_archive("gate", a, "--against", other, "--json")
        assert (answer.code, answer.document["verdict"]) == (1, "INCOMPLETE")
        assert "this run itself, or a copy" in answer.document["reasons"][-1]
    merged = reef_archive("gate", a, "--merge", copy, "--json")
    assert (merged.code, merged.document["verdict"]) == (1, "INCOMPLETE")
    assert any("a copy of the other" in reason for reason in merged.document["reasons"])


@pytest.mark.parametrize("what", ["failed", "bare", "no reports"])
def test_an_earlier_run_that_is_no_pass_does_not_count(
    what: str, tmp_path: Path, reef_archive: Command
) -> None:
    _, a, b = runs(tmp_path, reef_archive)
    if what == "failed":
        report = json.loads((b / "rank-0.json").read_bytes())
        report["cells"][1] |= {"status": "failed", "reason": "it was slow"}
        (b / "rank-0.json").write_text(json.dumps(report))
    for path in list(b.glob("*.json")) if what != "failed" else list[Path]():
        if what == "bare" or not path.name.startswith("gate-manifest"):
            path.unlink()
    answer = reef_archive("gate", a, "--against", b, "--json")
    assert (answer.code, answer.document["verdict"]) == (1, "INCOMPLETE")
    assert answer.document["against"]["all_identical"] is True
    said = "is no pass itself" if what == "failed" else "no report of any rank"
    assert said in answer.document["reasons"][-1]


def test_runs_with_different_changes_to_tracked_files_do_not_merge(
    tmp_path: Path, reef_archive: Command
) -> None:
    manifest = simple(tmp_path).write()
    for name in ("a", "b", "c"):
        (tmp_path / ".gitignore").write_text("runs/\n" + ("c" if name == "b" else name))
        assert reef_archive("gate", manifest, "--out", tmp_path / "runs" / name).code == 0
        (tmp_path / ".gitignore").write_text("runs/\nmore" if name != "b" else "runs/\nb")
    a, b, c = (tmp_path / "runs" / name for name in "abc")
    answer = reef_archive("gate", a, "--merge", b, "--json")
    assert (answer.code, answer.document["verdict"]) == (1, "FAILED")
    assert any("different changes" in reason for reason in answer.document["reasons"])
    same = reef_archive("gate", b, "--merge", c, "--json")
    assert (same.code, same.document["verdict"]) == (0, "PASSED"), same.document["reasons"]


def test_a_report_is_not_written_into_what_is_judged(tmp_path: Path, reef_archive: Command) -> None:
    _, a, b = runs(tmp_path, reef_archive)
    before = (a / "rank-0.json").read_bytes()
    for out in (a / "rank-0.json", a / "cells/first/rank-0/more.json", a, b / "chain.json"):
        answer = reef_archive("gate", a, "--against", b, "--out", out, "--force", "--json")
        assert answer.code == 2, out
        assert "into what is read" in answer.document["message"]
    assert (a / "rank-0.json").read_bytes() == before
    assert reef_archive("gate", a).code == 0


def test_names_are_escaped_once_and_tests_are_no_artifacts(
    tmp_path: Path, reef_archive: Command
) -> None:
    gate = Gate(tmp_path / "bad")
    gate.root.mkdir()
    gate.add("c", "x.bin", safetensors({"\x1b[1m": f32(1.0)}), safetensors({"\x1b[1m": f32(2.0)}))
    said = reef_archive("gate", gate.write(), "--out", tmp_path / "run").out
    assert "tensor `\\x1b[1m`" in said and "\\\\x1b" not in said
    junit = tmp_path / "j.xml"
    junit.write_text('<testsuite tests="1"><testcase name="t"/></testsuite>')
    good = simple(tmp_path / "good", ("one",)).write()
    answer = reef_archive("gate", good, "--out", tmp_path / "good/runs/a", "--junit", junit)
    assert answer.code == 0
    assert "1 artifact bitwise equal, 1 test passed." in answer.out


def test_pipeline_ranks_are_ordered_by_layer(tmp_path: Path, reef_archive: Command) -> None:
    gate = Gate(tmp_path)
    for rank, layers in ((0, (0, 1)), (1, (3,))):
        for layer in layers:
            gate.add("cell", f"r{rank}/layer-{layer}.bin", b"x" if layer else b"y", b"y")
    gate.cells[:] = [gate.cells[-1] | {
        "command": ["cp", "-r", "given/cell/r{rank}/.", "{out}"],
        "artifacts": ["layer-*.bin"], "reference": "want/cell/r{rank}",
    }]  # fmt: skip
    manifest = gate.write(topologies=[{"world_size": 2, "pp": 2}])
    for rank in (0, 1):
        answer = reef_archive(
            "gate", manifest, "--out", tmp_path / "runs/a", "--pp", 2, "--world-size", 2,
            "--rank", rank, "--json",
        )  # fmt: skip
    drift = answer.document["first_drift"]
    assert (drift["rank"], drift["layer"]) == (0, 1)


class Held:
    """Bytes to be read at offsets."""

    doubt: str | None = None

    def __init__(self, data: bytes) -> None:
        self.data, self.size, self.label = data, len(data), "x.npy"

    def read(self, offset: int, length: int) -> bytes:
        return self.data[offset : offset + length]


def header(text: bytes) -> Held:
    return Held(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text)


GOOD = header(b"{'descr': '<f4', 'fortran_order': False, 'shape': (0,)}")


@pytest.mark.parametrize(
    "text",
    [b"{[]:1}", b"{{}:1}", b"{1:2,[1]:3}", b"{[]}", b"1" * 400 + b"+1j", b"-" * 60_000 + b"1",
     b"(" * 300, b"{'a':" * 150, b"\0", b"'\\x", b"9" * 5000],
)  # fmt: skip
def test_a_hostile_header_of_an_array_is_a_difference(text: bytes) -> None:
    (found,) = compare_bits("x.npy", header(text), GOOD).differences
    assert found.reason.startswith("cannot be read: its ")
    (found,) = compare_bits("x.npy", GOOD, header(text)).differences
    assert found.reason.startswith("the reference cannot be read: its ")


@given(st.one_of(st.binary(max_size=40), st.text("{}[]():,'\"1j+-.e\\ abN", max_size=40)))
@settings(max_examples=200, deadline=None)
def test_any_header_of_an_array_is_read_or_a_difference(text: bytes | str) -> None:
    data = text if isinstance(text, bytes) else text.encode()
    try:
        found = compare_bits("x.npy", header(data), GOOD)
    except Unusable:
        return
    assert found.differences
