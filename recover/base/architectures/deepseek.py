"""DeepSeek and those built like it: the first layers dense, then experts with shared ones.

Sources: transformers 5.24, models/deepseek_v2, deepseek_v3 and glm4_moe.
"""

from __future__ import annotations

from collections.abc import Mapping

from .family import Family, TraitsOfLayer, decoder, keys
from .rows import (
    CONVERTED,
    HEADS,
    HIDDEN,
    TWO_NORMS,
    Experts,
    Rows,
    Switch,
    attention,
    gated_mlp,
    head_norms,
    linear,
    norm,
    router,
    tensor,
)
from .settings import Settings, key

_ROUTED = key("n_routed_experts")
_EXPERT_INNER = key("moe_intermediate_size")
_QUERY_RANK = key("q_lora_rank")
_KEY_VALUE_RANK = key("kv_lora_rank")
_NOPE_DIM, _ROPE_DIM = key("qk_nope_head_dim"), key("qk_rope_head_dim")
_QUERIES = HEADS * (_NOPE_DIM + _ROPE_DIM)
_VALUE_DIM = key("v_head_dim")

_LATENT_ATTENTION = (
    linear("self_attn.kv_a_proj_with_mqa", HIDDEN, _KEY_VALUE_RANK + _ROPE_DIM, "attention_bias"),
    norm("self_attn.kv_a_layernorm", _KEY_VALUE_RANK),
    linear("self_attn.kv_b_proj", _KEY_VALUE_RANK, HEADS * (_NOPE_DIM + _VALUE_DIM)),
    linear("self_attn.o_proj", HEADS * _VALUE_DIM, HIDDEN, "attention_bias"),
)
_LOW_RANK_QUERIES = (
    linear("self_attn.q_a_proj", HIDDEN, _QUERY_RANK, "attention_bias"),
    norm("self_attn.q_a_layernorm", _QUERY_RANK),
    linear("self_attn.q_b_proj", _QUERY_RANK, _QUERIES),
)
_PLAIN_QUERIES = (linear("self_attn.q_proj", HIDDEN, _QUERIES),)
_CORRECTION = (tensor("mlp.gate.e_score_correction_bias", _ROUTED, exact=False),)


def _experts(bias: Switch = False) -> Rows:
    """Make routed and shared experts; the router was no linear layer in transformers 4 either."""
    return (
        router("mlp.gate", _ROUTED, former=False, exact=False),
        Experts("mlp.experts", "n_routed_experts", _EXPERT_INNER, disk="mlp.experts"),
        *gated_mlp("mlp.shared_experts", _EXPERT_INNER * key("n_shared_experts"), bias),
    )


def _first_dense(settings: Settings, further: tuple[str, ...]) -> TraitsOfLayer:
    if settings.value("moe_layer_freq") not in (None, 1):
        raise settings.wrong("moe_layer_freq", "1, the only one known")
    dense = settings.number("first_k_dense_replace", 0)
    return lambda layer: (*further, "dense" if layer < dense else "sparse")


def _deepseek_traits(settings: Settings) -> TraitsOfLayer:
    plain = settings.value("q_lora_rank") is None
    return _first_dense(settings, ("plain_queries" if plain else "low_rank_queries",))


def _glm4_moe_traits(settings: Settings) -> TraitsOfLayer:
    return _first_dense(settings, ("qk_norm",) if settings.flag("use_qk_norm") else ())


FAMILIES: Mapping[str, Family] = {
    "deepseek_v2": Family(
        keys(
            102400,
            4096,
            11008,
            32,
            32,
            first_k_dense_replace=0,
            kv_lora_rank=512,
            q_lora_rank=1536,
            n_routed_experts=64,
            n_shared_experts=2,
            qk_nope_head_dim=128,
            qk_rope_head_dim=64,
            v_head_dim=128,
            moe_intermediate_size=1407,
            aliases={"n_routed_experts": "num_experts"},
        ),
        decoder(
            (*_LATENT_ATTENTION, *TWO_NORMS),
            layers={
                "low_rank_queries": _LOW_RANK_QUERIES,
                "plain_queries": _PLAIN_QUERIES,
                "dense": gated_mlp(bias="mlp_bias"),
                "sparse": _experts("mlp_bias"),
            },
            traits=_deepseek_traits,
        ),
        expert_count="n_routed_experts",
        converted=CONVERTED,
    ),
    "deepseek_v3": Family(
        keys(
            129280,
            7168,
            18432,
            61,
            128,
            128,
            first_k_dense_replace=3,
            kv_lora_rank=512,
            q_lora_rank=1536,
            n_routed_experts=256,
            n_shared_experts=1,
            qk_nope_head_dim=128,
            qk_rope_head_dim=64,
            v_head_dim=128,
            moe_intermediate_size=2048,
            num_nextn_predict_layers=1,
            aliases={"n_routed_experts": "num_local_experts"},
        ),
        decoder(
            (*_LATENT_ATTENTION, *TWO_NORMS),
            layers={
                "low_rank_queries": _LOW_RANK_QUERIES,
                "plain_queries": _PLAIN_QUERIES,
                "dense": gated_mlp(),
                "sparse": (*_experts(), *_CORRECTION),
            },
            traits=_deepseek_traits,
        ),
        expert_count="n_routed_experts",
        converted=CONVERTED,
        predicted_layers="num_nextn_predict_layers",
    ),
    "glm4_moe": Family(
        keys(
            151552,
            4096,
            10944,
            46,
            96,
            8,
            first_k_dense_replace=1,
            moe_intermediate_size=1408,
            n_routed_experts=128,
            n_shared_experts=1,
            num_nextn_predict_layers=1,
            aliases={"n_routed_experts": "num_local_experts"},
        ),
        decoder(
            (*attention("attention_bias", output_bias=False), *TWO_NORMS),
            layers={
                "qk_norm": head_norms(),
                "dense": gated_mlp(),
                "sparse": (*_experts(), *_CORRECTION),
            },
            traits=_glm4_moe_traits,
        ),
        expert_count="n_routed_experts",
        converted=CONVERTED,
        predicted_layers="num_nextn_predict_layers",
    ),
}
