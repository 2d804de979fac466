from __future__ import annotations

import random

import pytest

from reefkit.provenance.gate.model import Place
from reefkit.provenance.gate.place_in_model import order_within, place_of


@pytest.mark.parametrize(
    ("name", "layer", "family", "node"),
    [
        ("model.embed_tokens.weight", None, "embedding", "embed_tokens"),
        ("model.layers.3.self_attn.q_proj.weight", 3, "attention", "q_proj"),
        ("model.layers.3.self_attn.q_norm.weight", 3, "norm", "q_norm"),
        ("model.layers.3.input_layernorm.weight", 3, "norm", "input_layernorm"),
        ("model.layers.3.mlp.up_proj.weight", 3, "mlp", "up_proj"),
        ("model.layers.3.mlp.experts.12.up_proj.weight", 3, "moe", "experts.12.up_proj"),
        ("model.layers.3.mlp.gate.weight", 3, "moe", "gate"),
        ("model.layers.3.mlp.shared_expert.down_proj.weight", 3, "moe", "down_proj"),
        ("model.layers.3.block_sparse_moe.experts.0.w1.weight", 3, "moe", "experts.0.w1"),
        ("model.layers.7.linear_attn.in_proj_qkvz.weight", 7, "attention", "in_proj_qkvz"),
        ("decoder.layers.4.self_attention.linear_qkv.weight", 4, "attention", "linear_qkv"),
        ("decoder.layers.4.mlp.experts.local_experts.2.linear_fc1.weight", 4, "moe",
         "experts.2.linear_fc1"),
        ("transformer.h.11.attn.c_attn", 11, "attention", "c_attn"),
        ("layer_12.hidden_out", 12, "other", "hidden_out"),
        ("layer-9", 9, "other", "layer"),
        ("model.norm.weight", None, "norm", "norm"),
        ("lm_head.weight", None, "embedding", "lm_head"),
        ("layers.0.q_proj.lora_A.weight", 0, "attention", "q_proj"),
        ("", None, "other", None),
        ("weight", None, "other", None),
        ("layers.99999999999999999999.q_proj", None, "attention", "q_proj"),
    ],
)  # fmt: skip
def test_layer_family_and_node_are_read_from_the_name(
    name: str, layer: int | None, family: str, node: str | None
) -> None:
    assert place_of(name) == Place(layer, family, node)


def test_tensors_are_ordered_as_a_forward_pass_computes_them() -> None:
    wanted = [
        "model.embed_tokens.weight",
        "model.layers.2.input_layernorm.weight",
        "model.layers.2.self_attn.q_proj.weight",
        "model.layers.2.self_attn.k_proj.weight",
        "model.layers.2.self_attn.q_norm.weight",
        "model.layers.2.self_attn.o_proj.weight",
        "model.layers.2.post_attention_layernorm.weight",
        "model.layers.2.mlp.gate.weight",
        "model.layers.2.mlp.experts.9.gate_proj.weight",
        "model.layers.2.mlp.experts.9.down_proj.weight",
        "model.layers.2.mlp.experts.10.gate_proj.weight",
        "model.layers.10.input_layernorm.weight",
        "model.norm.weight",
        "lm_head.weight",
    ]
    shuffled = list(wanted)
    random.Random(1).shuffle(shuffled)
    assert sorted(shuffled, key=order_within) == wanted
