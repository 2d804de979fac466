"""Where in a model a tensor stands, read from its name, and in which order things are computed.

The names are those of Hugging Face, Megatron-Core, vLLM and of captured activations: a layer is the
number after `layers`, `layer`, `h`, `blocks` or `block`; the families and what belongs to them are
the table below, tried from its top; within a layer they are computed in `_ORDER`.
"""

from __future__ import annotations

import re

from .model import Place

_LAYER = re.compile(
    r"(?:^|[._/\-])(?:layers?|h|blocks?|decoder_layers?)[._\-]?(\d{1,6})(?=[._/\-]|$)"
)
_EXPERT = re.compile(r"(?:^|[._/])(?:local_)?experts?[._](\d{1,6})(?=[._/]|$)")
_TRAILING = frozenset(
    "weight bias data grad output out input lora_a lora_b default base_layer scale".split()
)

# The first rule with a word among the parts of the name decides. Norms come first: `q_norm` and
# `post_attention_layernorm` belong to them, whatever they stand beside.
_FAMILIES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("norm", re.compile(r"(^|_)(norm|layernorm|rmsnorm|ln|ln_\d+|ln_f)($|_|\d)|norm$")),
    ("moe", re.compile(r"^(moe|experts?|local_experts|router|shared_experts?\w*|"
                       r"block_sparse_moe|gate|expert_bias)$|^router_|_experts?$|^moe_")),
    ("attention", re.compile(r"^(self_attn|self_attention|attn|attention|linear_attn|mixer|"
                             r"core_attention|cross_attn|q_proj|k_proj|v_proj|o_proj|qkv|"
                             r"qkv_proj|query|key|value|query_key_value|linear_qkv|linear_proj|"
                             r"q_a_proj|q_b_proj|kv_a_proj_with_mqa|kv_b_proj|gdn|"
                             r"in_proj_qkvz|in_proj_ba|conv1d|rotary_emb|rope|sdpa)$|^attn_|_attn$")),
    ("mlp", re.compile(r"^(mlp|ffn|feed_forward|gate_proj|up_proj|down_proj|gate_up_proj|"
                       r"linear_fc1|linear_fc2|fc1|fc2|w1|w2|w3|act|swiglu)$|^mlp_|_mlp$")),
    ("embedding", re.compile(r"^(embed_tokens|embedding|embeddings|word_embeddings|wte|wpe|"
                             r"tok_embeddings|lm_head|output_layer|embed|logits)$")),
)  # fmt: skip

# What is computed first in a layer: a name with one of these words stands where the word does.
_ORDER = (
    "embed_tokens", "embedding", "embeddings", "word_embeddings", "wte", "tok_embeddings",
    "input", "hidden_in", "input_layernorm", "input_norm", "ln_1", "attention_norm",
    "qkv", "qkv_proj", "linear_qkv", "query_key_value", "in_proj_qkvz", "in_proj_ba",
    "q_a_proj", "q_a_layernorm", "q_b_proj", "q_proj", "query", "kv_a_proj_with_mqa",
    "kv_a_layernorm", "kv_b_proj", "k_proj", "key", "v_proj", "value", "conv1d",
    "q_norm", "k_norm", "rotary_emb", "rope", "core_attention", "sdpa", "gdn",
    "o_proj", "linear_proj", "attn_out", "self_attn", "self_attention", "linear_attn",
    "attention", "attn", "mixer",
    "post_attention_layernorm", "pre_mlp_layernorm", "ln_2", "ffn_norm", "post_attention_norm",
    "router", "gate", "topk", "experts", "local_experts",
    "gate_up_proj", "gate_proj", "w1", "linear_fc1", "fc1", "up_proj", "w3", "act", "swiglu",
    "down_proj", "w2", "linear_fc2", "fc2",
    "shared_expert", "shared_experts", "shared_expert_gate", "mlp", "moe", "block_sparse_moe",
    "ffn", "feed_forward", "post_feedforward_layernorm", "hidden_out", "residual",
    "norm", "final_layernorm", "final_norm", "ln_f", "lm_head", "output_layer", "logits",
)  # fmt: skip
_RANK = {word: index for index, word in enumerate(_ORDER)}
_BEFORE_LAYERS = frozenset(
    "embed_tokens embedding embeddings word_embeddings wte wpe tok_embeddings embed".split()
)


def place_of(name: str) -> Place:
    """Read layer, family and node from a tensor's name.

    The node is the last part of the name that is not `weight` or the like, and with it the expert:
    `model.layers.3.mlp.experts.5.up_proj.weight` is layer 3, `moe`, `experts.5.up_proj`.
    """
    layer = _LAYER.search(name)
    tail = name[layer.end() :] if layer else name
    parts = _parts(tail) or _parts(name)
    return Place(int(layer.group(1)) if layer else None, _family(parts), _node(tail, parts))


def order_within(name: str) -> tuple[int, int, int, int, str]:
    """Give a key that sorts tensors of one artifact as a forward pass computes them.

    Embeddings come before the layers, whatever else has no layer after them; then the number of
    the layer, the table's order within it, the number of the expert, the name.
    """
    layer = _LAYER.search(name)
    parts = _parts(name[layer.end() :] if layer else name)
    expert = _EXPERT.search(name)
    stage = 1 if layer else 0 if _BEFORE_LAYERS.intersection(parts) else 2
    known = [_RANK[part] for part in parts if part in _RANK]
    number = int(layer.group(1)) if layer else 0
    # The last word is the most exact one: `self_attn.q_proj` stands where `q_proj` does. Experts
    # are one step, in which each is computed after the other.
    within = _RANK["experts"] if expert else known[-1] if known else len(_ORDER)
    inner = int(expert.group(1)) * (len(_ORDER) + 1) + (known[-1] if known else 0) if expert else 0
    return stage, number, within, inner, name


def _parts(text: str) -> list[str]:
    return [part for part in re.split(r"[./\-:]", text.lower()) if part]


def _family(parts: list[str]) -> str:
    words = [part for part in parts if not part.isdigit()]
    for family, rule in _FAMILIES:
        last = words[-2:] if family == "norm" else words
        if any(rule.search(word) for word in last):
            return family
    return "other"


def _node(tail: str, parts: list[str]) -> str | None:
    kept = [part for part in parts if part not in _TRAILING and not part.isdigit()]
    if not kept:
        return None
    expert = _EXPERT.search(tail)
    if expert is None:
        return kept[-1]
    last = kept[-1] if kept[-1] not in {"experts", "local_experts", "expert"} else None
    return f"experts.{expert.group(1)}" + (f".{last}" if last else "")
