"""Checkpoints made without torch: tensors as bytes, a base as a config.json, all of it to spoil."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from reefkit.recover.formats.safetensors import DTYPE_BITS, parse_header, write_header

PREFIX = "base_model.model."
QWEN: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": 512,
    "hidden_size": 512,
    "intermediate_size": 768,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "tie_word_embeddings": False,
    "dtype": "bfloat16",
}
MOE: dict[str, Any] = {
    **QWEN,
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "moe_intermediate_size": 256,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "num_hidden_layers": 2,
}
CONFIG: dict[str, Any] = {
    "peft_type": "LORA",
    "task_type": "CAUSAL_LM",
    "r": 8,
    "lora_alpha": 16,
    "bias": "none",
    "use_rslora": False,
    "use_dora": False,
    "lora_bias": False,
    "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
}


class Piece(NamedTuple):
    """A tensor with its bytes."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


def noise(shape: tuple[int, ...], seed: object, dtype: str = "BF16", scale: float = 0.01) -> Piece:
    """Make values of about `scale`, no two tensors alike."""
    import numpy as np

    generator = np.random.default_rng(random.Random(str(seed)).getrandbits(32))
    values = (generator.standard_normal(shape) * scale).astype(np.float32)
    if dtype == "BF16":
        data = (values.view(np.uint32) >> 16).astype("<u2").tobytes()
    elif dtype == "F16":
        data = values.astype("<f2").tobytes()
    elif dtype == "F32":
        data = values.astype("<f4").tobytes()
    else:
        data = generator.integers(1, 60, values.size * DTYPE_BITS[dtype] // 8, "u1").tobytes()
    return Piece(dtype, shape, data)


def modules(base: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """Map the modules of a dense base that adapters target to (inputs, outputs)."""
    hidden, inner = base["hidden_size"], base["intermediate_size"]
    heads = base["num_attention_heads"] * base["head_dim"]
    keys = base["num_key_value_heads"] * base["head_dim"]
    kinds = {
        "self_attn.q_proj": (hidden, heads),
        "self_attn.k_proj": (hidden, keys),
        "self_attn.v_proj": (hidden, keys),
        "self_attn.o_proj": (heads, hidden),
    }
    if "num_experts" not in base:
        kinds |= {
            "mlp.gate_proj": (hidden, inner),
            "mlp.up_proj": (hidden, inner),
            "mlp.down_proj": (inner, hidden),
        }
    return {
        f"model.layers.{layer}.{kind}": size
        for layer in range(base["num_hidden_layers"])
        for kind, size in kinds.items()
    }


def experts(base: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """Map the single experts of a base, as transformers 4 names them, to (inputs, outputs)."""
    hidden, inner = base["hidden_size"], base["moe_intermediate_size"]
    return {
        f"model.layers.{layer}.mlp.experts.{expert}.{kind}": size
        for layer in range(base["num_hidden_layers"])
        for expert in range(base["num_experts"])
        for kind, size in (
            ("gate_proj", (hidden, inner)),
            ("up_proj", (hidden, inner)),
            ("down_proj", (inner, hidden)),
        )
    }


def lora(
    sizes: Mapping[str, tuple[int, int]], r: int = 8, dtype: str = "BF16", scale: float = 0.01
) -> dict[str, Piece]:
    """Make A and B of every module."""
    tensors: dict[str, Piece] = {}
    for name, (inputs, outputs) in sizes.items():
        for part, shape in (("A", (r, inputs)), ("B", (outputs, r))):
            full = f"{PREFIX}{name}.lora_{part}.weight"
            tensors[full] = noise(shape, full, dtype, scale)
    return tensors


def model(base: Mapping[str, Any]) -> dict[str, Piece]:
    """Make a full checkpoint of a dense base."""
    tensors: dict[str, Piece] = {}
    for name, (inputs, outputs) in modules(base).items():
        tensors[f"{name}.weight"] = noise((outputs, inputs), name)
    rows = (base["vocab_size"], base["hidden_size"])
    tensors["model.embed_tokens.weight"] = noise(rows, "embed")
    if not base["tie_word_embeddings"]:
        tensors["lm_head.weight"] = noise(rows, "head")
    norms = {"model.norm": base["hidden_size"]}
    for layer in range(base["num_hidden_layers"]):
        place = f"model.layers.{layer}"
        norms |= {
            f"{place}.input_layernorm": base["hidden_size"],
            f"{place}.post_attention_layernorm": base["hidden_size"],
            f"{place}.self_attn.q_norm": base["head_dim"],
            f"{place}.self_attn.k_norm": base["head_dim"],
        }
    for name, size in norms.items():
        tensors[f"{name}.weight"] = noise((size,), name, scale=0.5)
    return tensors


def write(path: Path, tensors: Mapping[str, Piece], metadata: dict[str, str] | None = None) -> None:
    """Write a file as the library does."""
    raw = write_header(
        [(name, piece.dtype, piece.shape) for name, piece in tensors.items()],
        {"format": "pt"} if metadata is None else metadata,
    )
    ordered = (tensors[tensor.name].data for tensor in parse_header(raw).tensors)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(raw + b"".join(ordered))


def write_sharded(folder: Path, shards: list[dict[str, Piece]], stem: str = "model") -> Path:
    """Write shards with their index, and give the index's path."""
    weight_map: dict[str, str] = {}
    for number, tensors in enumerate(shards, 1):
        name = f"{stem}-{number:05d}-of-{len(shards):05d}.safetensors"
        write(folder / name, tensors)
        weight_map |= dict.fromkeys(tensors, name)
    total = sum(len(piece.data) for tensors in shards for piece in tensors.values())
    index = folder / f"{stem}.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}))
    return index


def split(tensors: Mapping[str, Piece], count: int) -> list[dict[str, Piece]]:
    """Deal tensors out to shards, in order."""
    names = list(tensors)
    size = -(-len(names) // count)
    return [
        {name: tensors[name] for name in names[start : start + size]}
        for start in range(0, len(names), size)
    ]


@dataclass
class Work:
    """A folder with a checkpoint to spoil: change the tensors, then the files after `save`."""

    folder: Path
    base: dict[str, Any] = field(default_factory=lambda: dict(QWEN))
    config: dict[str, Any] | None = field(default_factory=lambda: dict(CONFIG))
    tensors: dict[str, Piece] = field(default_factory=dict[str, Piece])
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    saved: bool = False

    @property
    def path(self) -> Path:
        """Where an adapter lies."""
        return self.folder / "adapter_model.safetensors"

    def save(self) -> bytearray:
        """Write the adapter and its configuration; give the bytes of the file."""
        write(self.path, self.tensors)
        if self.config is not None:
            text = json.dumps(self.config)
            (self.folder / "adapter_config.json").write_text(text)
        self.saved = True
        return bytearray(self.path.read_bytes())

    def rename(self, before: str, after: str) -> None:
        """Replace a part of every name."""
        self.tensors = {n.replace(before, after): piece for n, piece in self.tensors.items()}

    def span(self, name: str) -> tuple[int, int]:
        """Give where a tensor begins and ends in the file."""
        header = parse_header(self.path.read_bytes())
        tensor = next(t for t in header.tensors if t.name == name)
        return header.data_start + tensor.begin, header.data_start + tensor.end
