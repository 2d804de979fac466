from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gates import Gate, f32, safetensors
from safetensors.numpy import load
from safetensors.torch import save

from reefkit.errors import DestinationExists, Unusable
from reefkit.provenance.gate import GateRecorder, Plan, Topology, judge, load_manifest, run_cells


def test_what_is_recorded_is_what_the_libraries_read(tmp_path: Path) -> None:
    recorder = GateRecorder(tmp_path)
    array = np.arange(6, dtype=">i4").reshape(2, 3).T
    recorder.record("a.npy", array)
    recorder.record("b.safetensors", {"x": array, "scalar": np.float32(2).reshape(())})
    recorder.record("deep/raw.bin", b"raw")
    assert np.array_equal(np.load(tmp_path / "a.npy"), array)
    found = load((tmp_path / "b.safetensors").read_bytes())
    assert np.array_equal(found["x"], array) and found["scalar"].shape == ()
    assert (tmp_path / "deep/raw.bin").read_bytes() == b"raw"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.float32, torch.bool])
def test_torch_tensors_are_recorded_bit_for_bit(dtype: torch.dtype, tmp_path: Path) -> None:
    tensor = torch.tensor([[1.0, -0.0, 2.5]]).to(dtype).T
    GateRecorder(tmp_path).record("x.safetensors", {"t": tensor})
    assert (tmp_path / "x.safetensors").read_bytes() == save({"t": tensor.contiguous()})


@pytest.mark.parametrize(
    ("name", "value"),
    [("../x", b""), ("cell.json", b""), ("a.npy", np.array([{}], object)), ("a.txt", 1),
     ("a.safetensors", {"x": "text"}), ("a.npy", torch.zeros(1, dtype=torch.bfloat16))],
)  # fmt: skip
def test_what_has_no_bits_or_no_place_is_refused(name: str, value: Any, tmp_path: Path) -> None:
    with pytest.raises(Unusable):
        GateRecorder(tmp_path).record(name, value)


def test_a_name_is_recorded_once(tmp_path: Path) -> None:
    GateRecorder(tmp_path).record("a", b"1")
    with pytest.raises(DestinationExists):
        GateRecorder(tmp_path).record("a", b"2")


def test_a_job_may_run_its_cells_itself(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    gate.add("cell", "x.safetensors", safetensors({"a": f32(1.0, -0.0)}), explicit_fallback=True)
    manifest = load_manifest(gate.write())

    def cell(recorder: GateRecorder) -> None:
        recorder.record("x.safetensors", {"a": torch.tensor([1.0, -0.0])})
        recorder.says(fallback=False)

    plan = Plan(manifest, tmp_path / "runs/a", Topology(), 0, functions={"cell": cell})
    assert run_cells(plan).passed
    assert judge(tmp_path / "runs/a").passed
