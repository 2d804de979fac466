# torch, peft and transformers leave much untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file

KINDS: dict[str, dict[str, Any]] = {
    "linear": {},
    "narrowed": {"target_modules": ["q_proj", "v_proj"]},
    "dora": {"use_dora": True},
    "rslora": {"use_rslora": True},
    "lora bias": {"base": "qwen2", "lora_bias": True, "target_modules": ["q_proj", "v_proj"]},
    "biases": {"base": "qwen2", "bias": "lora_only"},
    "embeddings": {"target_modules": ["embed_tokens", "q_proj"]},
    "saved head": {"modules_to_save": ["lm_head"]},
    "tokens": {"trainable_token_indices": [3, 17, 5]},
    "parameters": {
        "base": "moe",
        "target_modules": ["q_proj"],
        "target_parameters": ["experts.gate_up_proj", "experts.down_proj"],
    },
    "fused experts": {"base": "moe"},
    "ranks": {"rank_pattern": {"q_proj": 8, r"layers\.1\.mlp\.up_proj": 2}},
    "alphas": {"rank_pattern": {"q_proj": 8}, "alpha_pattern": {"q_proj": 32, "up_proj": 5}},
    "conv1d": {"base": "gpt2", "target_modules": ["c_attn", "c_proj", "c_fc"]},
    "some layers": {"layers_to_transform": [0, 2]},
    "resized vocabulary": {"rows": 70},
    "all biases": {"base": "gpt2", "bias": "all", "target_modules": ["c_attn"]},
    "tied head": {
        "base": "tied",
        "target_modules": ["embed_tokens", "q_proj"],
        "ensure_weight_tying": True,
    },
    "tied head saved": {
        "base": "tied",
        "modules_to_save": ["embed_tokens"],
        "ensure_weight_tying": True,
    },
    "tied tokens": {"base": "tied", "trainable_token_indices": [1, 2]},
    "tokens of two": {"trainable_token_indices": {"embed_tokens": [1, 2], "lm_head": [3]}},
    "saved norms": {"modules_to_save": ["norm"]},
    "saved and resized": {"modules_to_save": ["embed_tokens", "lm_head"], "rows": 70},
    "targeted and resized": {"target_modules": ["embed_tokens", "lm_head"], "rows": 70},
    "pattern": {"target_modules": r".*\.(0|2)\..*(q|v)_proj"},
    "all linear with router": {"base": "moe", "target_modules": "all-linear"},
    "one parameter": {
        "base": "moe",
        "target_modules": [],
        "target_parameters": ["experts.down_proj"],
    },
    "ranks of parameters": {
        "base": "moe",
        "target_modules": ["q_proj"],
        "target_parameters": ["experts.down_proj", "experts.gate_up_proj"],
        "rank_pattern": {"experts.down_proj": 2},
        "alpha_pattern": {"experts.down_proj": 7},
    },
    "dora on conv1d": {"base": "gpt2", "use_dora": True, "target_modules": ["c_attn", "c_fc"]},
    "dora on embeddings": {"use_dora": True, "target_modules": ["embed_tokens", "q_proj"]},
    "kasa": {"kasa_config": {}},
}
_STATED = (
    "lora_alpha",
    "use_rslora",
    "alpha_pattern",
    "trainable_token_indices",
    "kasa_config",
)


def stated(config: dict[str, Any]) -> list[str]:
    fields = {name: config[name] for name in _STATED if config[name] is not None}
    fields["base_model_name_or_path"] = "example/tiny"
    return [word for n, v in fields.items() for word in ("--set", f"{n}={json.dumps(v)}")]


@pytest.mark.parametrize("kind", KINDS)
def test_the_rebuilt_adapter_gives_the_same_logits_bit_for_bit(
    kind: str,
    save: Callable[..., Any],
    load: Callable[..., Any],
    bare: Callable[..., Any],
    rebuild: Callable[..., Any],
) -> None:
    saved = save(**KINDS[kind])

    result = rebuild(saved.folder, "--base", saved.base, *stated(saved.config))

    assert result.code == 0, result.document
    assert result.document["complete"] is True
    assert torch.equal(load(saved), saved.logits)
    assert not torch.equal(bare(saved), saved.logits)


def test_experts_one_by_one_as_transformers_4_names_them(
    save: Callable[..., Any],
    load: Callable[..., Any],
    rebuild: Callable[..., Any],
    bases: Any,
    tmp_path: Path,
) -> None:
    saved = save(base="moe", target_modules=["q_proj"])
    path = saved.folder / "adapter_model.safetensors"
    tensors = load_file(path)
    torch.manual_seed(5)
    for layer in range(2):
        for expert in range(4):
            for leaf, inputs, outputs in (
                ("gate_proj", 32, 24),
                ("up_proj", 32, 24),
                ("down_proj", 24, 32),
            ):
                place = f"base_model.model.model.layers.{layer}.mlp.experts.{expert}.{leaf}"
                tensors[f"{place}.lora_A.weight"] = torch.randn(4, inputs)
                tensors[f"{place}.lora_B.weight"] = torch.randn(outputs, 4)
    save_file(tensors, path)
    names = ["q_proj", "gate_proj", "up_proj", "down_proj"]
    original = shutil.copytree(saved.folder, tmp_path / "whole")
    config = {**saved.config, "target_modules": names}
    (original / "adapter_config.json").write_text(json.dumps(config))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = PeftModel.from_pretrained(bases.model("moe"), original).eval()
        wanted = model(torch.tensor([[3, 17, 42, 63, 5, 9]])).logits

    result = rebuild(saved.folder, "--base", saved.base, *stated(saved.config))

    assert result.code == 0, result.document
    rebuilt = json.loads((saved.folder / "adapter_config.json").read_text())
    assert sorted(rebuilt["target_modules"]) == sorted(names)
    assert torch.equal(load(saved), wanted)
    assert not torch.equal(wanted, saved.logits)
