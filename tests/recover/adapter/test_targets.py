from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    GptOssConfig,
    GptOssForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.pytorch_utils import Conv1D

from reefkit.errors import Unusable
from reefkit.recover.adapter.targets import selects, targeted_modules, targeted_parameters
from reefkit.recover.base.model import Base, BaseSource, ExpertParameter, Module, ModuleKind


def model(name: str) -> Any:
    torch.set_num_threads(1)
    with torch.device("meta"):
        if name == "gpt2":
            config = GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=64)
            return GPT2LMHeadModel(config)
        sizes: dict[str, Any] = {
            "vocab_size": 64,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 8,
        }
        if name == "gpt_oss":
            return GptOssForCausalLM(GptOssConfig(**sizes, num_local_experts=4))
        return Qwen3ForCausalLM(Qwen3Config(**sizes))


def modules(whole: Any) -> Iterator[Module]:
    for name, module in whole.named_modules():
        if isinstance(module, torch.nn.Linear):
            yield Module(name, ModuleKind.LINEAR, module.in_features, module.out_features)
        elif isinstance(module, torch.nn.Embedding):
            sizes = module.num_embeddings, module.embedding_dim
            yield Module(name, ModuleKind.EMBEDDING, *sizes)
        elif isinstance(module, Conv1D):
            inputs, outputs = module.weight.shape
            yield Module(name, ModuleKind.CONV1D, inputs, outputs)


@lru_cache
def base(name: str) -> Base:
    """Describe a base by the very model that PEFT is asked about."""
    whole = model(name)
    found = {module.name: module for module in modules(whole)}
    parameters = {
        n: ExpertParameter(n, p.shape[0], p.shape[2], p.shape[1])
        for n, p in whole.named_parameters()
        if p.ndim == 3
    }
    return Base(name, BaseSource.CONFIG, None, {}, found, parameters, output_embedding="lm_head")


@pytest.mark.parametrize("name", ["qwen3", "gpt_oss"])
@pytest.mark.parametrize(
    "options",
    [
        {"target_modules": ["q_proj", "v_proj"]},
        {"target_modules": "all-linear"},
        {"target_modules": "ALL-LINEAR", "exclude_modules": ["o_proj"]},
        {"target_modules": "all-linear", "exclude_modules": r".*\.(1|2)\..*"},
        {"target_modules": ["q_proj"], "layers_to_transform": [0, 2]},
        {"target_modules": ["q_proj"], "layers_to_transform": 1, "layers_pattern": "layers"},
        {"target_modules": ["1.self_attn.k_proj", "model.layers.2.self_attn.q_proj"]},
        {"target_modules": r".*layers\.[02]\..*\.(k|o)_proj"},
        {"target_modules": ["q_proj"], "exclude_modules": r".*\.1\..*"},
        {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]},
        {"target_modules": ["q_proj", "lm_head"], "exclude_modules": ["1.self_attn.q_proj"]},
        {"target_modules": ["embed_tokens", "proj", "k_proj"]},
    ],
    ids=str,
)
def test_the_same_modules_are_targeted_as_by_peft(name: str, options: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted: Any = get_peft_model(model(name), LoraConfig(**options)).base_model

    found = targeted_modules(options, base(name))

    assert {module.name for module in found} == set(wanted.targeted_module_names)


@pytest.mark.parametrize(
    "names",
    [
        ["experts.down_proj"],
        ["2.mlp.experts.gate_up_proj", "down_proj"],
        ["down_proj", "gate_up_proj"],
        ["model.layers.1.mlp.experts.down_proj", "rts.gate_up_proj"],
    ],
    ids=str,
)
def test_the_same_parameters_are_targeted_as_by_peft(names: list[str]) -> None:
    config: dict[str, Any] = {"target_modules": ["q_proj"], "target_parameters": names}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted: Any = get_peft_model(model("gpt_oss"), LoraConfig(**config)).base_model

    found = targeted_parameters(config, base("gpt_oss"))

    assert {parameter.name for parameter in found} == set(wanted.targeted_parameter_names)


@pytest.mark.parametrize("targets", [["c_attn"], "all-linear", ["c_proj", "wte"], r".*\.c_fc"])
def test_conv1d_is_targeted_as_by_peft(targets: list[str] | str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = LoraConfig(target_modules=targets)
        tuned: Any = get_peft_model(model("gpt2"), config).base_model

    found = targeted_modules({"target_modules": targets}, base("gpt2"))

    assert {module.name for module in found} == set(tuned.targeted_module_names)


@pytest.mark.parametrize(
    "config",
    [
        {"target_modules": [1]},
        {"target_modules": 7},
        {"target_modules": ["a"], "layers_to_transform": ["1"]},
        {"target_modules": ["a"], "layers_to_transform": 1, "layers_pattern": "("},
        {"target_modules": ["a"], "modules_to_save": ["("]},
        {"target_modules": "("},
    ],
    ids=str,
)
def test_what_peft_cannot_use_is_refused(config: dict[str, object]) -> None:
    with pytest.raises(Unusable):
        selects(config)("a")
