# torch, peft and transformers leave much untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file

BASE = ["--set", "base_model_name_or_path=example/tiny"]
RSLORA = ["--set", "use_rslora=false"]


def scaled_copy(saved: Any, folder: Path, scale: float, dtype: torch.dtype | None = None) -> Path:
    """Do what vLLM does on loading: cast, then multiply every lora_B by alpha / r."""
    tensors = load_file(saved.folder / "adapter_model.safetensors")
    for name, tensor in tensors.items():
        cast = tensor if dtype is None else tensor.to(dtype)
        tensors[name] = cast * scale if "lora_B" in name else cast
    folder.mkdir()
    save_file(tensors, folder / "scaled.safetensors")
    return folder / "scaled.safetensors"


@pytest.mark.parametrize("dtype", [None, torch.bfloat16, torch.float16])
def test_memory_with_scaled_matrices_proves_alpha(
    dtype: torch.dtype | None,
    save: Callable[..., Any],
    load: Callable[..., Any],
    rebuild: Callable[..., Any],
    tmp_path: Path,
) -> None:
    saved = save(lora_alpha=13)
    memory = scaled_copy(saved, tmp_path / "memory", 13 / 4, dtype)

    result = rebuild(saved.folder, "--base", saved.base, *BASE, *RSLORA, "--memory", memory)

    alpha = result.document["fields"]["lora_alpha"]
    assert result.code == 0, result.document
    assert (alpha["value"], alpha["source"]) == (13, "proven")
    assert "3.25" in alpha["from"] and "21 of 21" in alpha["from"]
    assert torch.equal(load(saved), saved.logits)


def test_rslora_follows_where_only_one_reading_gives_a_whole_alpha(
    save: Callable[..., Any], rebuild: Callable[..., Any], tmp_path: Path
) -> None:
    saved = save(r=8, lora_alpha=12, use_rslora=True)
    memory = scaled_copy(saved, tmp_path / "memory", 12 / 8**0.5)

    result = rebuild(saved.folder, "--base", saved.base, *BASE, "--memory", memory)

    fields = result.document["fields"]
    assert result.code == 0, result.document
    assert (fields["use_rslora"]["value"], fields["use_rslora"]["source"]) == (True, "proven")
    assert fields["lora_alpha"]["value"] == 12


def test_rslora_must_be_stated_where_both_readings_are_whole(
    save: Callable[..., Any], rebuild: Callable[..., Any], tmp_path: Path
) -> None:
    saved = save(r=4, lora_alpha=8)
    memory = scaled_copy(saved, tmp_path / "memory", 2.0)

    result = rebuild(saved.folder, "--base", saved.base, *BASE, "--memory", memory)

    assert result.code == 1
    assert {need["field"] for need in result.document["missing"]} == {"use_rslora", "lora_alpha"}


def test_a_stated_alpha_that_memory_refutes_is_an_error(
    save: Callable[..., Any], rebuild: Callable[..., Any], tmp_path: Path
) -> None:
    saved = save()
    memory = scaled_copy(saved, tmp_path / "memory", 3.0)
    told = [saved.folder, "--base", saved.base, *BASE, "--memory", memory]

    wrong = rebuild(*told, *RSLORA, "--set", "lora_alpha=16")
    flipped = rebuild(*told, "--set", "use_rslora=true", "--set", "lora_alpha=12")

    assert (wrong.code, flipped.code) == (1, 1)
    assert wrong.document["conflicts"][0]["field"] == "lora_alpha"
    assert flipped.document["conflicts"][0]["field"] == "lora_alpha"
    assert not (saved.folder / "adapter_config.json").exists()


def test_modules_of_other_scales_get_a_pattern(
    save: Callable[..., Any],
    load: Callable[..., Any],
    rebuild: Callable[..., Any],
    tmp_path: Path,
) -> None:
    saved = save(rank_pattern={"q_proj": 8}, alpha_pattern={"q_proj": 32, "up_proj": 5})
    tensors = load_file(saved.folder / "adapter_model.safetensors")
    for name in tensors:
        if "lora_B" in name:
            alpha = 32 / 8 if "q_proj" in name else 5 / 4 if "up_proj" in name else 12 / 4
            tensors[name] = tensors[name] * alpha
    memory = tmp_path / "scaled.safetensors"
    save_file(tensors, memory)

    result = rebuild(saved.folder, "--base", saved.base, *BASE, *RSLORA, "--memory", memory)

    assert result.code == 0, result.document
    assert result.document["fields"]["alpha_pattern"]["source"] == "proven"
    assert torch.equal(load(saved), saved.logits)


@pytest.mark.parametrize("change", ["unscaled", "another step", "uneven", "no copy"])
def test_memory_that_proves_nothing_is_refused(
    change: str, save: Callable[..., Any], rebuild: Callable[..., Any], tmp_path: Path
) -> None:
    saved = save()
    memory = scaled_copy(saved, tmp_path / "memory", 1.0 if change == "unscaled" else 3.0)
    tensors = load_file(memory)
    name = sorted(tensors)[-1]
    if change == "another step":
        tensors = {n: t * 1.01 if "lora_A" in n else t for n, t in tensors.items()}
    elif change == "uneven":
        tensors[name][0, 0] *= 1.5
    elif change == "no copy":
        tensors = {f"x.{n}": t for n, t in tensors.items()}
    save_file(tensors, memory)

    result = rebuild(saved.folder, "--base", saved.base, *BASE, *RSLORA, "--memory", memory)

    assert result.code == 1, result.document
    assert result.document["code"] == "DoesNotHold"


def merge(saved: Any, bases: Any, folder: Path, dtype: torch.dtype) -> tuple[Path, Path]:
    """Merge with PEFT itself, in a dtype, and save the base in that dtype too."""
    original = json.loads((folder / "original.json").read_text())
    whole = folder / "whole"
    shutil.copytree(saved.folder, whole)
    (whole / "adapter_config.json").write_text(json.dumps(original))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        base = bases.model(saved.base_name).to(dtype)
        base.save_pretrained(folder / "base")
        merged = PeftModel.from_pretrained(base, whole).merge_and_unload()
        merged.save_pretrained(folder / "merged")
    return folder / "base", folder / "merged"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["qwen3", "gpt2", "embedding", "experts", "parameters", "oss"])
def test_a_merged_model_and_its_base_prove_alpha(
    kind: str,
    dtype: torch.dtype,
    save: Callable[..., Any],
    load: Callable[..., Any],
    bases: Any,
    rebuild: Callable[..., Any],
    tmp_path: Path,
) -> None:
    options: dict[str, dict[str, Any]] = {
        "qwen3": {},
        "gpt2": {"base": "gpt2", "target_modules": ["c_attn", "c_proj", "c_fc"]},
        "embedding": {"target_modules": ["embed_tokens", "q_proj"]},
        "experts": {"base": "moe"},
        "parameters": {
            "base": "moe",
            "target_modules": [],
            "target_parameters": ["experts.gate_up_proj", "experts.down_proj"],
        },
        "oss": {
            "base": "oss",
            "target_modules": ["q_proj"],
            "target_parameters": ["experts.gate_up_proj", "experts.down_proj"],
        },
    }
    saved = save(lora_alpha=12, **options[kind])
    base, merged = merge(saved, bases, tmp_path, dtype)

    result = rebuild(saved.folder, "--base", base, *BASE, *RSLORA, "--merged", merged)

    alpha = result.document["fields"]["lora_alpha"]
    assert result.code == 0, result.document
    assert (alpha["value"], alpha["source"]) == (12, "proven")
    assert "cosine" in alpha["from"]
    assert result.document["fields"]["alpha_pattern"]["source"] == "proven"
    assert torch.equal(load(saved), saved.logits)


def test_a_merge_refutes_a_stated_alpha(
    save: Callable[..., Any], bases: Any, rebuild: Callable[..., Any], tmp_path: Path
) -> None:
    saved = save(lora_alpha=12)
    base, merged = merge(saved, bases, tmp_path, torch.float32)
    told = [saved.folder, "--base", base, *BASE, *RSLORA, "--merged", merged]

    assert rebuild(*told, "--set", "lora_alpha=24").code == 1
    assert rebuild(*told, "--set", "lora_alpha=12").code == 0


def test_a_merged_model_that_is_the_base_was_not_merged(
    save: Callable[..., Any], rebuild: Callable[..., Any], tmp_path: Path
) -> None:
    saved = save()
    merged = shutil.copytree(saved.base, tmp_path / "merged")

    result = rebuild(saved.folder, "--base", saved.base, *BASE, *RSLORA, "--merged", merged)

    assert result.code == 1
    assert "was not merged" in result.document["message"]


def test_another_model_is_not_the_merge(
    save: Callable[..., Any], bases: Any, rebuild: Callable[..., Any], tmp_path: Path
) -> None:
    saved = save()
    other = tmp_path / "other"
    model = bases.model("qwen3")
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    model.save_pretrained(other)

    result = rebuild(saved.folder, "--base", saved.base, *BASE, *RSLORA, "--merged", other)

    assert result.code == 1
    assert "not this adapter" in result.document["message"]


@pytest.mark.parametrize(
    "options", [["--merged", "x"], ["--merged", "x", "--memory", "y"], ["--memory", "nowhere"]]
)
def test_a_proof_needs_what_it_compares(
    options: list[str], save: Callable[..., Any], rebuild: Callable[..., Any]
) -> None:
    saved = save(target_modules=["q_proj"])

    assert rebuild(saved.folder, *options).code == 2


_SERVER = """
import mmap, sys
import numpy as np

path = sys.argv[1]
raw = open(path, "rb").read()
start = 8 + int.from_bytes(raw[:8], "little")
import json
header = json.loads(raw[8:start])
file = open(path, "r+b")
view = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE)
for name, entry in header.items():
    if "lora_B" in name:
        begin, end = (start + offset for offset in entry["data_offsets"])
        values = np.frombuffer(view[begin:end], "<f4") * np.float32(3)
        view[begin:end] = values.tobytes()
print("ready", flush=True)
sys.stdin.read()
"""


def test_the_memory_of_a_server_that_scaled_its_mapping_proves_alpha(
    save: Callable[..., Any], rebuild: Callable[..., Any], tmp_path: Path
) -> None:
    saved = save(target_modules=["q_proj"])
    path = saved.folder / "adapter_model.safetensors"
    with subprocess.Popen(
        [sys.executable, "-c", _SERVER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        assert server.stdout is not None and server.stdin is not None
        assert server.stdout.readline() == b"ready\n"
        told = [saved.folder, "--base", saved.base, *BASE, *RSLORA]
        result = rebuild(*told, "--memory", f"{server.pid}:*adapter_model*")
        server.stdin.close()

    assert result.code == 0, result.document
    alpha = result.document["fields"]["lora_alpha"]
    assert (alpha["value"], alpha["source"]) == (12, "proven")


def test_an_adapter_that_only_a_process_holds_needs_a_place_for_its_configuration(
    save: Callable[..., Any], load: Callable[..., Any], rebuild: Callable[..., Any]
) -> None:
    saved = save(target_modules=["q_proj"])
    path = saved.folder / "adapter_model.safetensors"
    program = "import sys; f = open(sys.argv[1], 'rb'); print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None and holder.stdin is not None
        holder.stdout.readline()
        held = path.rename(path.with_name("kept"))
        operand = f"{holder.pid}:*kept*"
        told = [operand, "--base", saved.base, *BASE, *RSLORA, "--set", "lora_alpha=12"]
        nowhere = rebuild(*told)
        placed = rebuild(*told, "--out", saved.folder)
        holder.stdin.close()
    held.rename(path)

    assert nowhere.code == 2
    assert "--out" in nowhere.document["remedy"]
    assert placed.code == 0, placed.document
    assert torch.equal(load(saved), saved.logits)
