"""What a cell may do, and what becomes of it."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gates import LAYERS, Gate, f32, safetensors, simple

Command = Callable[..., Any]
SH = ["sh", "-c"]


def npy(array: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    return stream.getvalue()


def one(gate: Gate, reef_archive: Command, *more: object, **changes: Any) -> dict[str, Any]:
    """Run a gate of one cell and give what became of it, with the exit code and the verdict."""
    gate.cells[-1] |= changes
    answer = reef_archive("gate", gate.write(), "--out", gate.root / "runs/a", "--json", *more)
    document = answer.document
    again = reef_archive("gate", gate.root / "runs/a", "--json")
    assert (again.code, again.document["cells"]) == (answer.code, document["cells"])
    cell: dict[str, Any] = document["cells"][-1]
    drift = document["first_drift"]
    return {**cell, "code": answer.code, "verdict": document["verdict"], "drift": drift}


@pytest.mark.parametrize(
    ("command", "verdict", "status", "said"),
    [
        (["no-such-command"], "INCOMPLETE", "unavailable", "cannot be started"),
        ([*SH, "exit 77"], "INCOMPLETE", "unavailable", "exited with 77"),
        ([*SH, 'echo \'{"status": "unavailable", "reason": "no GPU"}\' > {out}/cell.json'],
         "INCOMPLETE", "unavailable", "no GPU"),
        ([*SH, "exit 3"], "FAILED", "failed", "exited with 3"),
        ([*SH, "kill -9 $$"], "FAILED", "failed", "killed by signal 9"),
        (["true"], "FAILED", "failed", "was not written"),
        ([*SH, "echo '{' > {out}/cell.json"], "FAILED", "failed", "not valid JSON"),
        ([*SH, "ln -s /etc/passwd {out}/x.safetensors"], "FAILED", "failed", "is a link"),
        ([*SH, "cp given/cell/* {out}; touch {out}/$(printf '\\377')"],
         "FAILED", "failed", "UTF-8"),
        ([*SH, "sleep 60 & sleep 60"], "FAILED", "failed", "longer than 1 s"),
    ],
)  # fmt: skip
def test_a_cell_that_goes_wrong_is_no_pass_and_says_why(
    command: list[str], verdict: str, status: str, said: str, tmp_path: Path, reef_archive: Command
) -> None:
    gate = simple(tmp_path, ("cell",))
    found = one(gate, reef_archive, command=command, timeout_s=1)
    assert (found["code"], found["verdict"], found["status"]) == (1, verdict, status)
    assert said in found["reason"]


@pytest.mark.parametrize(
    ("said", "passes"),
    [(None, False), ({}, False), ({"fallback": True}, False), ({"fallback": "no"}, False),
     ({"fallback": False}, True)],
)  # fmt: skip
def test_that_nothing_fell_back_must_be_said(
    said: Any, passes: bool, tmp_path: Path, reef_archive: Command
) -> None:
    gate = simple(tmp_path, ("cell",), explicit_fallback=True)
    if said is not None:
        (tmp_path / "given/cell/cell.json").write_text(json.dumps(said))
    assert one(gate, reef_archive)["code"] == (0 if passes else 1)


def test_a_fallback_is_no_pass_even_where_nobody_asked(
    tmp_path: Path, reef_archive: Command
) -> None:
    gate = simple(tmp_path, ("cell",))
    (tmp_path / "given/cell/cell.json").write_text('{"fallback": true}')
    assert "fell back" in one(gate, reef_archive)["reason"]


@pytest.mark.parametrize(
    ("given", "want", "said", "element"),
    [
        (np.array([0.0, -0.0], "<f4"), np.array([0.0, 0.0], "<f4"), "zeros of other sign", 1),
        (np.zeros(2, "<f4"), np.zeros(2, "<i4"), "dtype <f4 against <i4", None),
        (np.zeros(2, "<f4"), np.zeros((2, 1), "<f4"), "shape [2] against [2, 1]", None),
        (np.arange(6.0).reshape(2, 3), np.asfortranarray(np.arange(6.0).reshape(2, 3)),
         "column-major", None),
    ],
)  # fmt: skip
def test_arrays_of_numpy_are_compared_by_their_bits(
    given: Any, want: Any, said: str, element: int | None, tmp_path: Path, reef_archive: Command
) -> None:
    gate = Gate(tmp_path)
    gate.add("cell", "layers.3.q_proj.npy", npy(given), npy(want))
    found = one(gate, reef_archive)
    assert found["code"] == 1
    assert said in found["reason"]
    drift = found["drift"]
    assert (drift["layer"], drift["node"], drift["tensor"]) == (3, "q_proj", "layers.3.q_proj")
    assert drift["element"] == element


@pytest.mark.parametrize(
    "given",
    [b"\x93NUMPY\x01\x00\xff\xff{", b"\x93NUMPY\x09\x00\x02\x00{}",
     b"\x93NUMPY\x01\x00\x02\x00{}", b"\x93NUMPY\x01\x00\x06\x00(((((("],
)  # fmt: skip
def test_a_broken_array_is_a_failure_with_a_reason(
    given: bytes, tmp_path: Path, reef_archive: Command
) -> None:
    gate = Gate(tmp_path)
    gate.add("cell", "a.npy", given, npy(np.zeros(2)))
    assert "cannot be read: its NumPy header" in one(gate, reef_archive)["reason"]


def test_a_pickled_array_is_never_loaded(tmp_path: Path, reef_archive: Command) -> None:
    stream = io.BytesIO()
    np.save(stream, np.array([{}], object), allow_pickle=True)
    gate = Gate(tmp_path)
    gate.add("cell", "a.npy", stream.getvalue(), npy(np.zeros(2)))
    assert "dtype is not a plain one" in one(gate, reef_archive)["reason"]


def test_json_names_the_first_key_that_differs(tmp_path: Path, reef_archive: Command) -> None:
    gate = Gate(tmp_path)
    gate.add("cell", "a.json", b'{"a": 1, "b": [0.0, {"c": 2}]}', b'{"a": 1, "b": [-0.0, 3]}')
    assert one(gate, reef_archive)["drift"]["tensor"] == "b[0]"


def test_raw_bytes_name_the_first_byte(tmp_path: Path, reef_archive: Command) -> None:
    gate = Gate(tmp_path)
    gate.add("cell", "a.bin", b"abcd", b"abXdYZ")
    found = one(gate, reef_archive)
    assert found["drift"]["element"] == 2
    assert "3 of 6 differ" in found["reason"]


def test_a_large_tensor_is_compared_in_blocks(tmp_path: Path, reef_archive: Command) -> None:
    array = np.zeros(2_000_003, "<f4")
    other = array.copy()
    other[[1_000_001, 2_000_002]] = 1
    gate = Gate(tmp_path)
    gate.add("cell", "a.npy", npy(array), npy(other))
    found = one(gate, reef_archive)
    assert found["drift"]["element"] == 1_000_001
    assert "2 of 2,000,003 differ" in found["reason"]


@pytest.mark.parametrize("side", ["given", "want"])
def test_with_patterns_an_artifact_on_one_side_only_is_a_failure(
    side: str, tmp_path: Path, reef_archive: Command
) -> None:
    gate = Gate(tmp_path)
    for number in (1, 2, 10):
        gate.add("cell", f"layer-{number}.bin", b"x")
        gate.cells[:] = gate.cells[-1:]
    (tmp_path / side / "cell/layer-11.bin").write_bytes(b"x")
    found = one(gate, reef_archive, artifacts=["layer-*.bin"])
    assert found["code"] == 1
    assert found["drift"]["artifact"] == "layer-11.bin"
    assert found["drift"]["layer"] == 11


def test_artifacts_are_gone_through_by_number(tmp_path: Path, reef_archive: Command) -> None:
    gate = Gate(tmp_path)
    for number in (10, 9, 2):
        gate.add("cell", f"layer-{number}.bin", b"x", b"y" if number > 2 else None)
        gate.cells[:] = gate.cells[-1:]
    assert one(gate, reef_archive, artifacts=["layer-*.bin"])["drift"]["layer"] == 9


def test_a_reference_may_be_a_file_a_digest_or_an_earlier_cell(
    tmp_path: Path, reef_archive: Command
) -> None:
    import hashlib

    data = safetensors(LAYERS)
    gate = simple(tmp_path, ("a", "b", "c", "d"))
    gate.cells[0]["reference"] = "want/a/x.safetensors"
    gate.cells[1]["reference"] = {"sha256": {"x.safetensors": hashlib.sha256(data).hexdigest()}}
    gate.cells[2]["reference"] = {"cell": "a"}
    found = one(gate, reef_archive, reference="none")
    assert (found["code"], found["compared"]) == (0, 0)


def test_an_earlier_cell_that_differs_is_named_with_its_tensor(
    tmp_path: Path, reef_archive: Command
) -> None:
    gate = Gate(tmp_path)
    gate.add("a", "x.safetensors", safetensors(LAYERS))
    gate.add("b", "x.safetensors", safetensors(LAYERS | {"lm_head.weight": f32(7.0)}))
    found = one(gate, reef_archive, reference={"cell": "a"})
    assert (found["code"], found["drift"]["node"]) == (1, "lm_head")


def test_a_digest_that_does_not_fit_fails_without_the_file(
    tmp_path: Path, reef_archive: Command
) -> None:
    gate = simple(tmp_path, ("a",))
    found = one(gate, reef_archive, reference={"sha256": {"x.safetensors": "0" * 64}})
    assert (found["code"], found["verdict"]) == (1, "FAILED")


def test_a_reference_that_is_not_there_is_no_pass(tmp_path: Path, reef_archive: Command) -> None:
    gate = simple(tmp_path, ("a",))
    assert "is not here" in one(gate, reef_archive, reference="nowhere")["reason"]


def test_a_reference_other_than_the_pinned_one_fails(tmp_path: Path, reef_archive: Command) -> None:
    gate = simple(tmp_path, ("a",))
    reference = {"path": "want/a", "sha256": {"x.safetensors": "0" * 64}}
    assert "not the one pinned" in one(gate, reef_archive, reference=reference)["reason"]


def test_hints_of_the_cell_stand_for_what_names_do_not_say(
    tmp_path: Path, reef_archive: Command
) -> None:
    gate = Gate(tmp_path)
    gate.add("cell", "out.bin", b"a", b"b", layer=7, family="moe", node="router")
    drift = one(gate, reef_archive)["drift"]
    assert (drift["layer"], drift["family"], drift["node"]) == (7, "moe", "router")


def test_what_the_command_prints_is_kept_beside_the_artifacts_and_bounded(
    tmp_path: Path, reef_archive: Command
) -> None:
    gate = simple(tmp_path, ("cell",))
    script = "cp given/cell/* {out}; head -c 20000000 /dev/zero; echo end; echo no >&2"
    assert one(gate, reef_archive, command=[*SH, script])["code"] == 0
    folder = tmp_path / "runs/a/cells/cell"
    out = (folder / "rank-0.stdout.txt").read_bytes()
    assert len(out) < 10 << 20
    assert out.endswith(b"\0end\n")
    assert b"bytes were left out here" in out
    assert (folder / "rank-0.stderr.txt").read_bytes() == b"no\n"


def test_a_command_has_placeholders_environment_and_no_shell(
    tmp_path: Path, reef_archive: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASSED_ON", "yes")
    gate = Gate(tmp_path)
    gate.add("cell", "said.txt", b"0 1 0 1 cell yes {other} $HOME\n")
    script = (
        "echo {rank} {world_size} $RANK $WORLD_SIZE $REEFKIT_GATE_CELL $PASSED_ON '{other}' "
        '"$1" > {out}/said.txt'
    )
    assert one(gate, reef_archive, command=[*SH, script, "sh", "$HOME"])["code"] == 0


def test_a_timeout_ends_the_whole_group(tmp_path: Path, reef_archive: Command) -> None:
    gate = simple(tmp_path, ("cell",))
    script = "sleep 300 & echo $! > {manifest_dir}/runs/child; wait"
    (tmp_path / "runs").mkdir()
    assert one(gate, reef_archive, command=[*SH, script], timeout_s=1)["status"] == "failed"
    child = int((tmp_path / "runs/child").read_text())
    end = time.monotonic() + 5
    while _runs(child) and time.monotonic() < end:
        time.sleep(0.02)
    assert not _runs(child)


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_the_tree_may_be_dirty_but_it_is_said(tmp_path: Path, reef_archive: Command) -> None:
    gate = simple(tmp_path, ("cell",))
    manifest = gate.write()
    (tmp_path / "given/cell/x.safetensors").touch()
    (tmp_path / ".gitignore").write_text("runs/\nmore\n")
    answer = reef_archive("gate", manifest, "--out", tmp_path / "runs/a", "--json")
    assert (answer.code, answer.document["dirty"]) == (0, True)
    assert any("no later stage" in note for note in answer.document["notes"])


def test_a_cell_may_be_written_in_python_with_the_recorder(
    tmp_path: Path, reef_archive: Command
) -> None:
    gate = Gate(tmp_path)
    gate.add("cell", "x.safetensors", safetensors({"a": f32(1.0, -0.0)}), explicit_fallback=True)
    (tmp_path / "cell.py").write_text(
        "import numpy as np\n"
        "from reefkit.provenance.gate import GateRecorder\n"
        "recorder = GateRecorder.from_environment()\n"
        "recorder.record('x.safetensors', {'a': np.array([1.0, -0.0], np.float32)})\n"
        "recorder.says(fallback=False)\n"
    )
    assert one(gate, reef_archive, command=["{python}", "cell.py"])["code"] == 0
