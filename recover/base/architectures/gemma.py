"""Gemma 1 to 3, the third with and without its vision tower (SigLIP).

Sources: transformers 5.24, models/gemma*, models/siglip; google/gemma-3-4b-it for names on disk.
"""

from __future__ import annotations

from collections.abc import Mapping

from .family import USUAL_DERIVED, Block, Family, TraitsOfLayer, decoder, keys
from .rows import (
    HIDDEN,
    INTERMEDIATE,
    TWO_NORMS,
    Row,
    Rows,
    attention,
    embedding,
    gated_mlp,
    head_norms,
    linear,
    norm,
    norms,
    tensor,
)
from .settings import Keys, Settings, Size, exactly, key

_FOUR_NORMS = norms(
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)
_GEMMA2_LAYER = (*attention("attention_bias"), *gated_mlp(), *_FOUR_NORMS)
_GEMMA3_LAYER = (*_GEMMA2_LAYER, *head_norms())
_GEMMA3_TEXT = keys(262208, 2304, 9216, 26, 8, 4, tied=True, head_dim=256)

_CHANNELS, _PATCH = key("num_channels"), key("patch_size")
_PATCHES_A_SIDE = key("image_size") // _PATCH
_TEXT_HIDDEN = Size(lambda settings: settings.part("text_config").number("hidden_size"))
_VISION_HIDDEN = Size(lambda settings: settings.part("vision_config").number("hidden_size"))


def _vision_mlp(path: str) -> Rows:
    return (
        linear(f"{path}.fc1", HIDDEN, INTERMEDIATE, True),
        linear(f"{path}.fc2", INTERMEDIATE, HIDDEN, True),
    )


_VISION_LAYER = (
    norm("layer_norm1", bias=True),
    norm("layer_norm2", bias=True),
    *(
        linear(f"self_attn.{name}", HIDDEN, HIDDEN, True)
        for name in ("q_proj", "k_proj", "v_proj", "out_proj")
    ),
    *_vision_mlp("mlp"),
)
_VISION_HEAD = (
    tensor("head.probe", exactly(1), exactly(1), HIDDEN),
    tensor("head.attention.in_proj_weight", 3 * HIDDEN, HIDDEN),
    tensor("head.attention.in_proj_bias", 3 * HIDDEN),
    linear("head.attention.out_proj", HIDDEN, HIDDEN, True),
    norm("head.layernorm", bias=True),
    *_vision_mlp("head.mlp"),
)


def _vision_traits(settings: Settings) -> TraitsOfLayer:
    if settings.value("model_type") not in (None, "siglip_vision_model"):
        raise settings.wrong("model_type", "siglip_vision_model")
    head = ("head",) if settings.flag("vision_use_head") else ()
    return lambda _layer: head


FAMILIES: Mapping[str, Family] = {
    "gemma": Family(
        keys(256000, 3072, 24576, 28, 16, 16, tied=True, head_dim=256),
        decoder(
            (
                *attention("attention_bias"),
                *gated_mlp(),
                *TWO_NORMS,
            )
        ),
    ),
    "gemma2": Family(
        keys(256000, 2304, 9216, 26, 8, 4, tied=True, head_dim=256), decoder(_GEMMA2_LAYER)
    ),
    "gemma3_text": Family(_GEMMA3_TEXT, decoder(_GEMMA3_LAYER)),
    "gemma3": Family(
        keys=Keys(
            {"tie_word_embeddings": True},
            parts={
                "text_config": _GEMMA3_TEXT,
                "vision_config": Keys(
                    {
                        "hidden_size": 768,
                        "intermediate_size": 3072,
                        "num_hidden_layers": 12,
                        "num_channels": 3,
                        "image_size": 224,
                        "patch_size": 16,
                        "vision_use_head": True,
                    },
                    USUAL_DERIVED,
                ),
            },
        ),
        blocks=(
            *decoder(_GEMMA3_LAYER, path="model.language_model.", part="text_config"),
            Block(
                "model.multi_modal_projector.",
                (
                    tensor("mm_input_projection_weight", _VISION_HIDDEN, _TEXT_HIDDEN),
                    norm("mm_soft_emb_norm", _VISION_HIDDEN),
                ),
            ),
            Block(
                "model.vision_tower.",
                (
                    Row(
                        "embeddings.patch_embedding",
                        None,
                        (HIDDEN, _CHANNELS, _PATCH, _PATCH),
                        bias=True,
                    ),
                    embedding(
                        "embeddings.position_embedding", _PATCHES_A_SIDE * _PATCHES_A_SIDE, HIDDEN
                    ),
                    norm("post_layernorm", bias=True),
                ),
                layers={"head": _VISION_HEAD},
                traits=_vision_traits,
                part="vision_config",
            ),
            Block(
                "model.vision_tower.encoder.layers.{}.",
                _VISION_LAYER,
                count="num_hidden_layers",
                part="vision_config",
            ),
        ),
        embedding="model.language_model.embed_tokens",
        causal_class="ForConditionalGeneration",
        text_only=False,
        part="text_config",
        renamed={
            "lm_head": "language_model.lm_head",
            "model.language_model.": "language_model.model.",
            "model.multi_modal_projector.": "multi_modal_projector.",
            "model.vision_tower.": "vision_tower.vision_model.",
        },
        disk_aliases={"vision_tower.": "vision_tower.vision_model."},
    ),
}
