"""Decoders whose layers hold routed experts beside or instead of a dense feed-forward part.

Sources: transformers 5.24, models/*/modeling_*.py and configuration_*.py; conversion_mapping.py for
the names on disk.
"""

from __future__ import annotations

from collections.abc import Mapping

from .family import Family, TraitsOfLayer, decoder, keys
from .rows import (
    CONVERTED,
    CONVERTED_MIXTRAL,
    HEAD_DIM,
    HEADS,
    HIDDEN,
    INTERMEDIATE,
    KEY_VALUE_HEADS,
    TWO_NORMS,
    Experts,
    Fused,
    attention,
    gated_mlp,
    head_norms,
    linear,
    norm,
    router,
    tensor,
)
from .settings import Settings, exactly, key

_EXPERTS = key("num_experts")
_LOCAL_EXPERTS = key("num_local_experts")
_EXPERT_INNER = key("moe_intermediate_size")

_ROUTED = (
    router("mlp.gate", _EXPERTS),
    Experts("mlp.experts", "num_experts", _EXPERT_INNER, disk="mlp.experts"),
)
_SHARED = (
    *gated_mlp("mlp.shared_expert", key("shared_expert_intermediate_size")),
    linear("mlp.shared_expert_gate", HIDDEN, exactly(1)),
)

_KEY_HEADS = key("linear_num_key_heads")
_VALUE_HEADS = key("linear_num_value_heads")
_KEY_DIM = _KEY_HEADS * key("linear_key_head_dim")
_VALUE_DIM = _VALUE_HEADS * key("linear_value_head_dim")
_LINEAR_ATTENTION = (
    linear("linear_attn.in_proj_qkvz", HIDDEN, 2 * _KEY_DIM + 2 * _VALUE_DIM),
    linear("linear_attn.in_proj_ba", HIDDEN, 2 * _VALUE_HEADS),
    linear("linear_attn.out_proj", _VALUE_DIM, HIDDEN),
    tensor(
        "linear_attn.conv1d.weight",
        2 * _KEY_DIM + _VALUE_DIM,
        exactly(1),
        key("linear_conv_kernel_dim"),
    ),
    tensor("linear_attn.dt_bias", _VALUE_HEADS, exact=False),
    tensor("linear_attn.A_log", _VALUE_HEADS, exact=False),
    norm("linear_attn.norm", key("linear_value_head_dim")),
)
_DOUBLE_QUERY_ATTENTION = (  # the second half of the queries gates the output
    linear("self_attn.q_proj", HIDDEN, 2 * (HEADS * HEAD_DIM), "attention_bias"),
    linear("self_attn.k_proj", HIDDEN, KEY_VALUE_HEADS * HEAD_DIM, "attention_bias"),
    linear("self_attn.v_proj", HIDDEN, KEY_VALUE_HEADS * HEAD_DIM, "attention_bias"),
    linear("self_attn.o_proj", HEADS * HEAD_DIM, HIDDEN, "attention_bias"),
    *head_norms(),
)
_ATTENTIONS = frozenset({"linear_attention", "full_attention"})


def _sparse_or_dense(settings: Settings) -> TraitsOfLayer:
    dense = frozenset(settings.numbers("mlp_only_layers"))
    step = settings.number("decoder_sparse_step")
    experts = settings.number("num_experts", 0)

    def traits(layer: int) -> tuple[str, ...]:
        sparse = experts > 0 and layer not in dense and (layer + 1) % step == 0
        return ("sparse",) if sparse else ("dense",)

    return traits


def _qwen3_next_traits(settings: Settings) -> TraitsOfLayer:
    depth = _sparse_or_dense(settings)
    kinds = settings.words("layer_types", settings.number("num_hidden_layers"), _ATTENTIONS)
    interval = settings.number("full_attention_interval")

    def traits(layer: int) -> tuple[str, ...]:
        if kinds is not None:
            return (kinds[layer], *depth(layer))
        kind = "linear_attention" if (layer + 1) % interval else "full_attention"
        return (kind, *depth(layer))

    return traits


FAMILIES: Mapping[str, Family] = {
    "qwen2_moe": Family(
        keys(
            151936,
            2048,
            5632,
            24,
            16,
            16,
            decoder_sparse_step=1,
            moe_intermediate_size=1408,
            num_experts=60,
            shared_expert_intermediate_size=5632,
            qkv_bias=True,
        ),
        decoder(
            (*attention("qkv_bias", output_bias=False), *TWO_NORMS),
            layers={"dense": gated_mlp(), "sparse": (*_ROUTED, *_SHARED)},
            traits=_sparse_or_dense,
        ),
        expert_count="num_experts",
    ),
    "qwen3_moe": Family(
        keys(
            151936,
            2048,
            6144,
            24,
            32,
            4,
            decoder_sparse_step=1,
            moe_intermediate_size=768,
            num_experts=128,
            aliases={"num_experts": "num_local_experts"},
        ),
        decoder(
            (*attention("attention_bias"), *head_norms(), *TWO_NORMS),
            layers={"dense": gated_mlp(), "sparse": _ROUTED},
            traits=_sparse_or_dense,
        ),
        expert_count="num_experts",
        converted=CONVERTED,
    ),
    "qwen3_next": Family(
        keys(
            151936,
            2048,
            5632,
            48,
            16,
            2,
            head_dim=256,
            linear_conv_kernel_dim=4,
            linear_key_head_dim=128,
            linear_value_head_dim=128,
            linear_num_key_heads=16,
            linear_num_value_heads=32,
            full_attention_interval=4,
            decoder_sparse_step=1,
            moe_intermediate_size=512,
            num_experts=512,
            shared_expert_intermediate_size=512,
        ),
        decoder(
            TWO_NORMS,
            layers={
                "linear_attention": _LINEAR_ATTENTION,
                "full_attention": _DOUBLE_QUERY_ATTENTION,
                "dense": gated_mlp(),
                "sparse": (*_ROUTED, *_SHARED),
            },
            traits=_qwen3_next_traits,
        ),
        expert_count="num_experts",
        converted=CONVERTED,
    ),
    "mixtral": Family(
        keys(
            32000,
            4096,
            14336,
            32,
            32,
            8,
            num_local_experts=8,
            aliases={"num_local_experts": "num_experts"},
        ),
        decoder(
            (
                *attention(),
                router("mlp.gate", _LOCAL_EXPERTS, disk="block_sparse_moe.gate"),
                Experts(
                    "mlp.experts",
                    "num_local_experts",
                    INTERMEDIATE,
                    disk="block_sparse_moe.experts",
                    gate="w1",
                    up="w3",
                    down="w2",
                ),
                *TWO_NORMS,
            )
        ),
        expert_count="num_local_experts",
        converted=CONVERTED_MIXTRAL,
    ),
    "olmoe": Family(
        keys(
            50304,
            2048,
            2048,
            16,
            16,
            num_experts=64,
            aliases={"num_experts": "num_local_experts"},
        ),
        decoder(
            (
                *attention("attention_bias"),
                norm("self_attn.q_norm"),
                norm("self_attn.k_norm", KEY_VALUE_HEADS * (HIDDEN // HEADS)),
                router("mlp.gate", _EXPERTS),
                Experts("mlp.experts", "num_experts", INTERMEDIATE, disk="mlp.experts"),
                *TWO_NORMS,
            )
        ),
        expert_count="num_experts",
        converted=CONVERTED,
    ),
    "gpt_oss": Family(
        keys(
            201088,
            2880,
            2880,
            36,
            64,
            8,
            head_dim=64,
            attention_bias=True,
            num_local_experts=128,
            aliases={"num_local_experts": "num_experts"},
        ),
        decoder(
            (
                *attention("attention_bias"),
                tensor("self_attn.sinks", HEADS),
                router("mlp.router", _LOCAL_EXPERTS, bias=True, former=False),
                Fused("mlp.experts.gate_up_proj", _LOCAL_EXPERTS, HIDDEN, 2 * INTERMEDIATE),
                tensor("mlp.experts.gate_up_proj_bias", _LOCAL_EXPERTS, 2 * INTERMEDIATE),
                Fused("mlp.experts.down_proj", _LOCAL_EXPERTS, INTERMEDIATE, HIDDEN),
                tensor("mlp.experts.down_proj_bias", _LOCAL_EXPERTS, HIDDEN),
                *TWO_NORMS,
            )
        ),
        expert_count="num_local_experts",
    ),
}
