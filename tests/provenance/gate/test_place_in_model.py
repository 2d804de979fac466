from __future__ import annotations

import random

import pytest

from reefkit.provenance.gate.model import Difference, Place
from reefkit.provenance.gate.place_in_model import order_of, order_within, place_of


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


ORDERS = {
    "multi-token prediction": [
        "model.layers.47.mlp.down_proj.weight", "model.norm.weight", "lm_head.weight",
        "mtp.pre_fc_norm_hidden.weight", "mtp.fc.weight", "mtp.layers.0.input_layernorm.weight",
        "mtp.layers.0.self_attn.q_proj.weight", "mtp.norm.weight",
    ],
    "qwen3-next": [
        "model.layers.0.input_layernorm.weight", "model.layers.0.linear_attn.in_proj_qkvz.weight",
        "model.layers.0.linear_attn.conv1d.weight", "model.layers.0.linear_attn.norm.weight",
        "model.layers.0.linear_attn.out_proj.weight",
        "model.layers.0.post_attention_layernorm.weight", "model.layers.0.mlp.gate.weight",
        "model.layers.0.mlp.experts.0.gate_proj.weight",
        "model.layers.0.mlp.experts.0.down_proj.weight",
        "model.layers.0.mlp.shared_expert.gate_proj.weight",
        "model.layers.0.mlp.shared_expert.down_proj.weight",
        "model.layers.0.mlp.shared_expert_gate.weight", "model.layers.1.self_attn.q_proj.weight",
    ],
    "gemma": [
        "model.layers.3.input_layernorm.weight", "model.layers.3.self_attn.o_proj.weight",
        "model.layers.3.post_attention_layernorm.weight",
        "model.layers.3.pre_feedforward_layernorm.weight", "model.layers.3.mlp.up_proj.weight",
        "model.layers.3.mlp.down_proj.weight", "model.layers.3.post_feedforward_layernorm.weight",
    ],
    "encoder and decoder": [
        "model.encoder.embed_tokens.weight", "model.encoder.layers.0.fc1.weight",
        "model.encoder.layers.5.fc2.weight", "model.encoder.layer_norm.weight",
        "model.decoder.layers.0.self_attn.q_proj.weight",
        "model.decoder.layers.0.encoder_attn.q_proj.weight", "model.decoder.layers.0.fc1.weight",
    ],
    "t5": [
        "encoder.block.0.layer.0.layer_norm.weight",
        "encoder.block.0.layer.0.SelfAttention.q.weight",
        "encoder.block.0.layer.0.SelfAttention.o.weight",
        "encoder.block.0.layer.1.layer_norm.weight",
        "encoder.block.0.layer.1.DenseReluDense.wi_0.weight",
        "encoder.block.0.layer.1.DenseReluDense.wo.weight", "decoder.block.0.layer.0.layer_norm",
    ],
    "vision": [
        "model.visual.patch_embed.proj.weight", "model.visual.blocks.0.attn.qkv.weight",
        "model.visual.blocks.0.attn.proj.weight", "model.visual.blocks.26.mlp.linear_fc1.weight",
        "model.visual.merger.mlp.0.weight", "multi_modal_projector.linear_1.weight",
        "model.language_model.embed_tokens.weight",
        "model.language_model.layers.0.self_attn.q_proj.weight", "lm_head.weight",
    ],
    "vision tower with an encoder": [
        "vision_tower.vision_model.embeddings.patch_embedding.weight",
        "vision_tower.vision_model.encoder.layers.9.mlp.fc2.weight", "encoder.layers.0.fc1.weight",
        "language_model.model.layers.0.input_layernorm.weight",
    ],
    "original llama": [
        "layers.0.attention_norm.weight", "layers.0.attention.wq.weight",
        "layers.0.attention.wk.weight", "layers.0.attention.wv.weight",
        "layers.0.attention.wo.weight", "layers.0.ffn_norm.weight",
        "layers.0.feed_forward.w1.weight", "layers.0.feed_forward.w2.weight",
    ],
    "deepseek": [
        "model.layers.3.self_attn.q_a_proj.weight", "model.layers.3.self_attn.q_a_layernorm.weight",
        "model.layers.3.self_attn.q_b_proj.weight",
        "model.layers.3.self_attn.kv_a_proj_with_mqa.weight",
        "model.layers.3.self_attn.kv_b_proj.weight", "model.layers.3.self_attn.indexer.wk.weight",
        "model.layers.3.self_attn.indexer.k_norm.weight", "model.layers.3.self_attn.o_proj.weight",
        "model.layers.3.post_attention_layernorm.weight",
        "model.layers.3.mlp.gate.e_score_correction_bias",
        "model.layers.3.mlp.experts.2.gate_proj.weight",
        "model.layers.3.mlp.experts.10.gate_proj.weight",
        "model.layers.3.mlp.shared_experts.up_proj.weight",
    ],
    "megatron": [
        "embedding.word_embeddings.weight", "decoder.layers.0.self_attention.linear_qkv.weight",
        "decoder.layers.0.self_attention.q_layernorm.weight",
        "decoder.layers.0.self_attention.linear_proj.weight", "decoder.layers.0.mlp.router.weight",
        "decoder.layers.0.mlp.experts.linear_fc1.weight",
        "decoder.layers.0.mlp.shared_experts.linear_fc1.weight",
        "decoder.layers.10.self_attention.linear_qkv.weight", "decoder.final_layernorm.weight",
        "output_layer.weight",
    ],
}  # fmt: skip


@pytest.mark.parametrize("family", ORDERS)
def test_families_of_models_are_in_order_of_execution(family: str) -> None:
    wanted = ORDERS[family]
    shuffled = list(wanted)
    random.Random(2).shuffle(shuffled)
    assert sorted(shuffled, key=order_within) == wanted


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("layer-1.bin", None, 1), ("layer-3.bin", None, 0)),  # of two pipeline ranks
        (("layer-1.safetensors", "q_proj", 1), ("layer-3.safetensors", "q_proj", 0)),
        (("attn-3.bin", "layers.3.mlp.up_proj", 5), ("b.bin", "layers.5.self_attn.q_proj", 0)),
        (("zz.bin", None, 0), ("aa.bin", None, 1)),  # no name tells: as they are listed
        (("prefill.bin", "layers.9.q_proj", 1), ("decode.bin", "layers.0.q_proj", 0)),
        (("step-2/x.safetensors", "lm_head", 1), ("step-10/x.safetensors", "embed_tokens", 0)),
    ],
)  # fmt: skip
def test_differences_are_in_order_of_the_model_before_that_of_artifacts(
    first: tuple[str, str | None, int], second: tuple[str, str | None, int]
) -> None:
    one, other = (Difference(a, t, "", position=p) for a, t, p in (first, second))
    assert order_of(one) < order_of(other)
