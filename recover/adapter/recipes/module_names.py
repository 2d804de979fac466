"""The names that Hugging Face models give to what other frameworks call otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ....records.strict_json import Json
from . import values

# Megatron-Bridge, LoRA and CanonicalLoRA, and its DeepSeek mappings for latent attention.
MEGATRON: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "linear_qkv": ("q_proj", "k_proj", "v_proj"),
        "linear_q": ("q_proj",),
        "linear_k": ("k_proj",),
        "linear_v": ("v_proj",),
        "linear_proj": ("o_proj",),
        "linear_fc1": ("gate_proj", "up_proj"),
        "linear_fc1_gate": ("gate_proj",),
        "linear_fc1_up": ("up_proj",),
        "linear_fc2": ("down_proj",),
        "linear_q_proj": ("q_proj",),
        "linear_q_down_proj": ("q_a_proj",),
        "linear_q_up_proj": ("q_b_proj",),
        "linear_kv_down_proj": ("kv_a_proj_with_mqa",),
        "linear_kv_up_proj": ("kv_b_proj",),
        "output_layer": ("lm_head",),
        "word_embeddings": ("embed_tokens",),
    }
)
# torchtune's builders (convert_weights.py) and torchtitan's Llama, which follow Meta's names.
META: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "output_proj": ("o_proj",),
        "wq": ("q_proj",),
        "wk": ("k_proj",),
        "wv": ("v_proj",),
        "wo": ("o_proj",),
        "w1": ("gate_proj",),
        "w2": ("down_proj",),
        "w3": ("up_proj",),
        "output": ("lm_head",),
        "tok_embeddings": ("embed_tokens",),
    }
)


def megatron(value: Json) -> Json:
    """Read Megatron's module names. Raises Unfit for wildcards, which name parts of a model."""
    return _renamed(value, MEGATRON)


def meta(value: Json) -> Json:
    """Read torchtune's or torchtitan's module names."""
    return _renamed(value, META)


class Untranslatable(Exception):
    """Names that have no counterpart without the model at hand."""


def _renamed(value: Json, table: Mapping[str, tuple[str, ...]]) -> Json:
    found = values.words(value)
    if found is None or found == "all-linear":
        return found
    if not isinstance(found, list):
        raise Untranslatable
    renamed: list[Json] = []
    for name in map(str, found):
        if "*" in name or "." in name:
            raise Untranslatable
        renamed += [new for new in table.get(name, (name,)) if new not in renamed]
    return renamed
