"""Adapters and full checkpoints as PEFT and transformers write them, on models of a few layers."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

_DENSE = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_EXPERTS = {"moe_intermediate_size": 24, "num_experts": 4, "num_experts_per_tok": 2}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen3": ("Qwen3", {**_DENSE, "tie_word_embeddings": False}),
    "tied": ("Qwen3", {**_DENSE, "tie_word_embeddings": True}),
    "llama": ("Llama", {**_DENSE, "attention_bias": True, "tie_word_embeddings": False}),
    "gpt2": (
        "GPT2",
        {"vocab_size": 96, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64,
         "bos_token_id": 1, "eos_token_id": 2},
    ),
    "gemma3": ("Gemma3Text", {**_DENSE, "query_pre_attn_scalar": 8, "sliding_window": 16}),
    "phi3": ("Phi3", {k: v for k, v in _DENSE.items() if k != "head_dim"}),
    "moe": ("Qwen3Moe", {**_DENSE, **_EXPERTS, "decoder_sparse_step": 1}),
    "mixtral": (
        "Mixtral",
        {**_DENSE, "intermediate_size": 24, "num_local_experts": 4, "num_experts_per_tok": 2},
    ),
    "gpt_oss": (
        "GptOss",
        {**_DENSE, "intermediate_size": 24, "num_local_experts": 4, "num_experts_per_tok": 2},
    ),
    "deepseek": (
        "DeepseekV3",
        {"vocab_size": 96, "hidden_size": 32, "intermediate_size": 48, "moe_intermediate_size": 16,
         "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 4,
         "n_shared_experts": 1, "n_routed_experts": 8, "kv_lora_rank": 8, "q_lora_rank": 12,
         "qk_rope_head_dim": 4, "v_head_dim": 8, "qk_nope_head_dim": 8, "n_group": 2,
         "topk_group": 1, "num_experts_per_tok": 2, "first_k_dense_replace": 1},
    ),
    "next": (
        "Qwen3Next",
        {**_DENSE, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16,
         "num_experts": 4, "num_experts_per_tok": 2, "linear_num_value_heads": 4,
         "linear_num_key_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
         "decoder_sparse_step": 1,
         "layer_types": ["linear_attention", "linear_attention", "full_attention"]},
    ),
    "gemma3-vision": (
        "Gemma3",
        {"text_config": {**_DENSE, "query_pre_attn_scalar": 8, "sliding_window": 16},
         "vision_config": {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
                           "num_attention_heads": 2, "image_size": 28, "patch_size": 14},
         "mm_tokens_per_image": 4},
    ),
}  # fmt: skip
_HEADS = {"GPT2": "GPT2LMHeadModel", "Gemma3": "Gemma3ForConditionalGeneration"}
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
SEVEN = [*ATTENTION, "gate_proj", "up_proj", "down_proj"]


@dataclass(frozen=True)
class Case:
    """One correct adapter: its base, PEFT's settings, and how its tensors are changed after."""

    model: str
    lora: Mapping[str, Any]
    dtype: str = "bfloat16"
    resized: int | None = None
    trained: bool = True
    converted: bool = False
    classifier: bool = False
    variant: str | None = None


ADAPTERS: dict[str, Case] = {
    "bf16": Case("qwen3", {"target_modules": SEVEN}),
    "f16": Case("qwen3", {"target_modules": SEVEN}, "float16"),
    "f32": Case("qwen3", {"target_modules": SEVEN}, "float32"),
    "tied": Case("tied", {"target_modules": SEVEN}),
    "all-linear": Case("qwen3", {"target_modules": "all-linear"}),
    "regex": Case("qwen3", {"target_modules": r".*\.layers\.\d+\.self_attn\.(q|v)_proj"}),
    "dora": Case("qwen3", {"target_modules": SEVEN, "use_dora": True}),
    "lora-bias": Case("qwen3", {"target_modules": SEVEN, "lora_bias": True}),
    "bias-lora-only": Case("llama", {"target_modules": ATTENTION, "bias": "lora_only"}),
    "bias-all": Case("llama", {"target_modules": ["q_proj"], "bias": "all"}),
    "bias-all-gpt2": Case("gpt2", {"target_modules": ["c_attn"], "bias": "all"}),
    "rslora": Case("qwen3", {"target_modules": SEVEN, "use_rslora": True}),
    "rank-pattern": Case(
        "qwen3",
        {"target_modules": SEVEN, "rank_pattern": {"q_proj": 8, r"^model\.layers\.1\.mlp.*": 2}},
    ),
    "some-layers": Case("qwen3", {"target_modules": SEVEN, "layers_to_transform": [0, 2]}),
    "excluded": Case(
        "qwen3", {"target_modules": SEVEN, "exclude_modules": r".*layers\.1\..*up_proj"}
    ),
    "modules-to-save": Case("qwen3", {"target_modules": SEVEN, "modules_to_save": ["lm_head"]}),
    "modules-to-save-norm": Case(
        "qwen3", {"target_modules": ["q_proj"], "modules_to_save": ["norm"]}
    ),
    "modules-to-save-tied": Case(
        "tied", {"target_modules": SEVEN, "modules_to_save": ["lm_head", "embed_tokens"]}
    ),
    "embeddings": Case("qwen3", {"target_modules": [*SEVEN, "embed_tokens", "lm_head"]}),
    "embeddings-tied": Case(
        "tied", {"target_modules": ["q_proj", "embed_tokens"], "ensure_weight_tying": True}
    ),
    "embedding-dora": Case("qwen3", {"target_modules": ["embed_tokens", "q_proj"],
                                     "use_dora": True}),
    "trainable-tokens": Case(
        "tied", {"target_modules": SEVEN, "trainable_token_indices": [3, 5, 8]}
    ),
    "trainable-tokens-two": Case(
        "qwen3",
        {"target_modules": ["q_proj"],
         "trainable_token_indices": {"embed_tokens": [3, 5], "lm_head": [4]}},
    ),
    "resized-vocabulary": Case(
        "qwen3",
        {"target_modules": SEVEN, "modules_to_save": ["embed_tokens", "lm_head"]},
        resized=100,
    ),
    "layer-replication": Case(
        "qwen3", {"target_modules": SEVEN, "layer_replication": [[0, 2], [1, 3]]}
    ),
    "step-0": Case("qwen3", {"target_modules": SEVEN}, trained=False),
    "pissa-converted": Case(
        "qwen3",
        {"target_modules": SEVEN, "init_lora_weights": "pissa"},
        "float32",
        converted=True,
    ),
    "gpt2": Case("gpt2", {"target_modules": ["c_attn", "c_proj", "c_fc"]}),
    "gemma3": Case("gemma3", {"target_modules": "all-linear"}),
    "phi3-fused": Case("phi3", {"target_modules": ["qkv_proj", "o_proj", "gate_up_proj",
                                                   "down_proj"]}),
    "moe-fused": Case("moe", {"target_modules": SEVEN}),
    "moe-all-linear": Case("moe", {"target_modules": "all-linear"}),
    "moe-parameters": Case(
        "moe", {"target_modules": ATTENTION, "target_parameters": ["mlp.experts.gate_up_proj"]}
    ),
    "mixtral": Case("mixtral", {"target_modules": ["q_proj", "w1", "w2", "w3"]}),
    "gpt-oss": Case(
        "gpt_oss",
        {"target_modules": ATTENTION,
         "target_parameters": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]},
    ),
    "olora": Case("qwen3", {"target_modules": SEVEN, "init_lora_weights": "olora"}),
    "invoked": Case("qwen3", {"target_modules": ["q_proj"], "alora_invocation_tokens": [1, 2]}),
    "kasa": Case("qwen3", {"target_modules": ["q_proj"]}, variant="Kasa"),
    "velora": Case("qwen3", {"target_modules": ["q_proj"]}, variant="Velora"),
    "monteclora": Case("qwen3", {"target_modules": ["q_proj"]}, variant="Monteclora"),
    "block-diagonal": Case("qwen3", {"target_modules": ["q_proj", "o_proj"]}, variant="BdLora"),
    "classifier": Case(
        "qwen3", {"target_modules": SEVEN, "task_type": "SEQ_CLS"}, classifier=True
    ),
    "deepseek": Case("deepseek", {"target_modules": "all-linear"}),
    "qwen3-next": Case("next", {"target_modules": "all-linear"}),
    "gemma3-vision": Case(
        "gemma3-vision", {"target_modules": ["q_proj", "v_proj"], "modules_to_save": ["norm"]}
    ),
}  # fmt: skip


@cache
def _libraries() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import peft
        import torch
        import transformers

        torch.set_num_threads(1)
        transformers.logging.set_verbosity_error()
    return peft, torch, transformers


def model(name: str, *, classifier: bool = False) -> Any:
    """Make a model with seeded weights."""
    _, torch, transformers = _libraries()
    family, settings = MODELS[name]
    torch.manual_seed(len(name))
    config = getattr(transformers, f"{family}Config")(**settings)
    head = f"{family}ForSequenceClassification" if classifier else _head(name)
    return getattr(transformers, head)(config).to(torch.bfloat16)


def save_base(name: str, folder: Path) -> Path:
    """Write the config.json of a model that `model` makes, and give its path."""
    config = model(name).config
    config.architectures = [_head(name)]
    config.save_pretrained(folder)
    return folder / "config.json"


def _head(name: str) -> str:
    family = MODELS[name][0]
    return _HEADS.get(family, f"{family.removesuffix('Text')}ForCausalLM")


def _variant(name: str) -> dict[str, Any]:
    """Give the settings of a variant of LoRA."""
    from peft.tuners.lora import config

    if name == "BdLora":
        halves = config.BdLoraConfig(
            nblocks=2, target_modules_bd_a=["o_proj"], target_modules_bd_b=["q_proj"]
        )
        return {"use_bdlora": halves}
    return {f"{name.lower()}_config": getattr(config, f"{name}Config")()}


def save_full(name: str, folder: Path, *, shard_size: str = "5GB") -> Path:
    """Write a full checkpoint as transformers does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model(name).save_pretrained(folder, max_shard_size=shard_size)
    return folder


def save_adapter(case: Case, folder: Path) -> Path:
    """Write an adapter as PEFT does, with values as after some steps unless `trained` is off."""
    peft, torch, _ = _libraries()
    from safetensors import torch as library

    files: Any = library  # its functions have no types
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        base = model(case.model, classifier=case.classifier)
        if case.converted:
            base = base.float()
        if case.resized is not None:
            base.resize_token_embeddings(case.resized)
        settings = {"r": 4, "lora_alpha": 8, "task_type": "CAUSAL_LM", **case.lora}
        settings |= _variant(case.variant) if case.variant else {}
        wrapped = peft.get_peft_model(base, peft.LoraConfig(**settings))
        if case.converted:
            _save_converted(wrapped, folder)
        else:
            wrapped.save_pretrained(folder)
    path = folder / "adapter_model.safetensors"
    generator = torch.Generator().manual_seed(7)
    tensors = files.load_file(path)
    if case.trained:
        for name, tensor in tensors.items():
            if "lora_" in name or name.endswith("bias"):
                noise = torch.randn(tensor.shape, generator=generator) * 0.01
                tensors[name] = tensor.float() + noise
    dtype = getattr(torch, case.dtype)
    tensors = {name: tensor.to(dtype).contiguous() for name, tensor in tensors.items()}
    files.save_file(tensors, path, metadata={"format": "pt"})
    return folder


def _save_converted(wrapped: Any, folder: Path) -> None:
    """Convert a PiSSA adapter to plain LoRA, which doubles its rank."""
    _, torch, _ = _libraries()
    initial = folder / "initial"
    wrapped.peft_config["default"].init_lora_weights = True
    wrapped.save_pretrained(initial)
    wrapped.peft_config["default"].init_lora_weights = "pissa"
    with torch.no_grad():
        for name, parameter in wrapped.named_parameters():
            if "lora_" in name:
                parameter += 0.01
    wrapped.save_pretrained(folder, path_initial_model_for_weight_conversion=str(initial))
    for path in initial.iterdir():
        path.unlink()
    initial.rmdir()
