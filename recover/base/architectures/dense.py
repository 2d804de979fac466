"""Decoders without experts: Llama and its many relatives.

The rules and defaults are those of transformers 5.24, models/*/modeling_*.py and
configuration_*.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from .family import Family, TraitsOfLayer, decoder, keys
from .rows import (
    HEAD_DIM,
    HEADS,
    HIDDEN,
    INTERMEDIATE,
    KEY_VALUE_HEADS,
    TWO_NORMS,
    VOCABULARY,
    Row,
    attention,
    fused_mlp,
    gated_mlp,
    head_norms,
    linear,
    norm,
    norms,
)
from .settings import Settings

_AFTER_NORMS = norms("post_attention_layernorm", "post_feedforward_layernorm")
_LLAMA_LAYER = (*attention("attention_bias"), *gated_mlp(bias="mlp_bias"), *TWO_NORMS)
_OLMO_LAYER = (
    *attention("attention_bias"),
    norm("self_attn.q_norm", HEADS * HEAD_DIM),
    norm("self_attn.k_norm", KEY_VALUE_HEADS * HEAD_DIM),
    *gated_mlp(),
    *_AFTER_NORMS,
)
_GLM_ATTENTION = attention("attention_bias", output_bias=False)


def _layer_norm(name: str, bias: bool = True) -> Row:
    return norm(name, bias=bias)


def _phi_traits(settings: Settings) -> TraitsOfLayer:
    normed = ("qk_layernorm",) if settings.flag("qk_layernorm") else ()
    return lambda _layer: normed


FAMILIES: Mapping[str, Family] = {
    "llama": Family(keys(32000, 4096, 11008, 32, 32), decoder(_LLAMA_LAYER)),
    "granite": Family(keys(32000, 4096, 11008, 32, 32), decoder(_LLAMA_LAYER)),
    "smollm3": Family(keys(128256, 2048, 11008, 36, 16, 4, tied=True), decoder(_LLAMA_LAYER)),
    "mistral": Family(
        keys(32000, 4096, 14336, 32, 32, 8),
        decoder((*attention(), *gated_mlp(), *TWO_NORMS)),
    ),
    "qwen2": Family(
        keys(151936, 4096, 22016, 32, 32, 32),
        decoder((*attention(True, output_bias=False), *gated_mlp(), *TWO_NORMS)),
    ),
    "qwen3": Family(
        keys(151936, 4096, 22016, 32, 32, 32, head_dim=128),
        decoder((*attention("attention_bias"), *head_norms(), *gated_mlp(), *TWO_NORMS)),
    ),
    "olmo2": Family(keys(50304, 4096, 11008, 32, 32), decoder(_OLMO_LAYER)),
    "olmo3": Family(keys(50304, 4096, 11008, 32, 32), decoder(_OLMO_LAYER)),
    "glm": Family(
        keys(151552, 4096, 13696, 40, 32, 2, head_dim=128, attention_bias=True),
        decoder((*_GLM_ATTENTION, *fused_mlp(), *TWO_NORMS)),
    ),
    "glm4": Family(
        keys(151552, 4096, 13696, 40, 32, 2, head_dim=128, attention_bias=True),
        decoder(
            (
                *_GLM_ATTENTION,
                *fused_mlp(),
                *TWO_NORMS,
                *norms("post_self_attn_layernorm", "post_mlp_layernorm"),
            )
        ),
    ),
    "phi3": Family(
        keys(32064, 3072, 8192, 32, 32),
        decoder(
            (
                linear("self_attn.qkv_proj", HIDDEN, (HEADS + 2 * KEY_VALUE_HEADS) * HEAD_DIM),
                linear("self_attn.o_proj", HEADS * HEAD_DIM, HIDDEN),
                *fused_mlp(),
                *TWO_NORMS,
            )
        ),
    ),
    "phi": Family(
        keys(51200, 2048, 8192, 24, 32),
        decoder(
            (
                *attention(True, output="dense"),
                linear("mlp.fc1", HIDDEN, INTERMEDIATE, True),
                linear("mlp.fc2", INTERMEDIATE, HIDDEN, True),
                _layer_norm("input_layernorm"),
            ),
            layers={
                "qk_layernorm": (
                    norm("self_attn.q_layernorm", HIDDEN // HEADS, bias=True),
                    norm("self_attn.k_layernorm", HIDDEN // HEADS, bias=True),
                )
            },
            traits=_phi_traits,
            last=_layer_norm("final_layernorm"),
        ),
        head=linear("lm_head", HIDDEN, VOCABULARY, True),
    ),
    "starcoder2": Family(
        keys(49152, 3072, 12288, 30, 24, 2, tied=True, use_bias=True),
        decoder(
            (
                *attention("use_bias"),
                linear("mlp.c_fc", HIDDEN, INTERMEDIATE, "use_bias"),
                linear("mlp.c_proj", INTERMEDIATE, HIDDEN, "use_bias"),
                _layer_norm("input_layernorm"),
                _layer_norm("post_attention_layernorm"),
            ),
            last=_layer_norm("norm"),
        ),
    ),
}
