"""Where in a model a tensor stands, read from its name, and in which order things are computed.

The names are those of Hugging Face, Megatron-Core, vLLM and of captured activations: a layer is the
number after `layers`, `layer`, `h`, `blocks` or `block`; the families and what belongs to them are
the table below, tried from its top; the order of execution is in `forward_order`.
"""

from __future__ import annotations

import re

from .forward_order import forward_order, has_layer
from .model import Difference, Place
from .patterns import natural

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


def place_of(name: str) -> Place:
    """Read layer, family and node from a tensor's name.

    The node is the last part of the name that is not `weight` or the like, and with it the expert:
    `model.layers.3.mlp.experts.5.up_proj.weight` is layer 3, `moe`, `experts.5.up_proj`.
    """
    layer = _LAYER.search(name)
    tail = name[layer.end() :] if layer else name
    parts = _parts(tail) or _parts(name)
    return Place(int(layer.group(1)) if layer else None, _family(parts), _node(tail, parts))


def order_within(name: str) -> tuple[tuple[int, ...], str]:
    """Give a key that sorts tensors of one artifact as a forward pass computes them."""
    return forward_order(name), name


def order_of(one: Difference) -> tuple[tuple[int, ...], int, tuple[tuple[int, str], ...], str]:
    """Give a key that sorts the differences of one cell, over all ranks, as they came about.

    First by what the names of tensor and artifact say of the order in the model; where they say
    nothing, by the artifacts' places in the cell, which count for one rank only, then their names.
    """
    stem = one.artifact.rsplit(".", 1)[0]
    tensor = one.tensor or ""
    name = tensor if has_layer(tensor) else f"{stem}.{tensor}" if tensor else stem
    steps = forward_order(one.artifact)[:2]
    order = max(steps, forward_order(name)[:2]), forward_order(name)[2:]
    return (*order[0], *order[1]), one.position, natural(one.artifact), tensor


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
