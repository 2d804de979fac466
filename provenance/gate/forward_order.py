"""In which order a forward pass computes what tensors are named after.

The names are those of Hugging Face's models (Llama, Qwen3-Next, Gemma, DeepSeek, T5, BERT, vision
towers), of Megatron-Core, of vLLM and of the original releases (`wq`, `wo`). Every table is in
order of execution; a name stands where its words do.
"""

from __future__ import annotations

import re

Order = tuple[int, ...]

_LAYER = re.compile(
    r"(?:^|[._/\-])(?:layers?|h|(?:res)?blocks?|decoder_layers?|mtp|mtp_layers?)"
    r"[._\-]?(\d{1,6})(?=[._/\-]|$)"
)
_EXPERT = re.compile(r"(?:^|[._/])(?:local_)?experts?[._](\d{1,6})(?=[._/]|$)")
_STEP = re.compile(r"(?:^|[._/\-])(?:step|iter|iteration|token|microbatch|batch)[._\-]?(\d{1,9})")
_PHASES = {"prefill": 0, "decode": 1, "decoding": 1}


def _words(*rows: str) -> dict[str, int]:
    """Number words; those of one row are one step."""
    return {word: number for number, row in enumerate(rows) for word in row.split()}


def _each(text: str) -> dict[str, int]:
    return _words(*text.split())


# The parts of a model: each is computed whole before the next.
_STACKS = _words(
    "visual vision vision_tower vision_model vision_encoder image_encoder image_tower vit "
    "audio_tower audio_encoder audio_model speech_encoder",
    "multi_modal_projector mm_projector projector vision_proj embed_vision embed_audio connector "
    "aligner resampler vision_language_adapter",
    "encoder",
)
_LANGUAGE, _MTP = 3, 4
_MTP_WORD = re.compile(r"mtp|nextn|multi_token|draft_model")

# Before and after the layers of a part; what is in neither comes last.
_BEFORE = _each(
    "input_ids inputs_embeds patch_embed patch_embedding conv1 class_embedding cls_token "
    "embed_tokens embedding embeddings word_embeddings wte tok_embeddings embed wpe pos_embed "
    "embed_positions position_embedding position_embeddings token_type_embeddings ln_pre "
    "pre_layrnorm pre_layernorm embedding_norm pre_fc_norm_embedding pre_fc_norm_hidden"
)
_AFTER = _each(
    "norm final_layernorm final_norm final_layer_norm ln_f ln_post post_layernorm layer_norm "
    "merger pooler lm_head output_layer embed_out logits"
)

# Within a layer: norms and other words beside the blocks, then the block that a word opens.
_INPUT, _ATTENTION, _AFTER_ATTENTION, _CROSS, _BEFORE_MLP, _MLP, _END, _OTHER = range(8)
_IN_LAYER = {
    **dict.fromkeys(
        "input hidden_in eh_proj enorm hnorm input_layernorm input_norm ln_1 ln1 norm1 norm "
        "layer_norm layer_norm1 attention_norm attn_norm pre_attention_layernorm "
        "operator_norm".split(), _INPUT
    ),
    **dict.fromkeys(
        "self_attn self_attention attn attention linear_attn mixer selfattention temporal_block "
        "short_conv attn_out attn_output".split(), _ATTENTION
    ),
    **dict.fromkeys(
        "self_attn_layer_norm post_self_attn_layernorm post_attention_layernorm "
        "post_attention_norm post_attn_norm".split(), _AFTER_ATTENTION
    ),
    **dict.fromkeys(
        "cross_attn encoder_attn encdecattention crossattention encoder_attn_layer_norm "
        "cross_attention".split(), _CROSS
    ),
    **dict.fromkeys(
        "pre_feedforward_layernorm pre_feedforward_layernorm_2 pre_mlp_layernorm pre_mlp_norm "
        "ln_2 ln2 norm2 layer_norm2 ffn_norm mlp_norm final_layer_norm".split(), _BEFORE_MLP
    ),
    **dict.fromkeys(
        "mlp moe ffn feed_forward block_sparse_moe densereludense router experts local_experts "
        "shared_expert shared_experts shared_expert_gate topk intermediate mlp_out "
        "mlp_output".split(), _MLP
    ),
    **dict.fromkeys(
        "post_feedforward_layernorm post_feedforward_layernorm_1 post_feedforward_layernorm_2 "
        "post_mlp_layernorm post_mlp_norm post_ffn_norm shared_head hidden_out residual "
        "hidden_states output".split(), _END
    ),
}  # fmt: skip
_IN_ATTENTION = _each(
    "qkv qkv_proj linear_qkv query_key_value c_attn wqkv in_proj in_proj_qkvz in_proj_qkv "
    "in_proj_z in_proj_ba in_proj_b in_proj_a q_a_proj wq_a linear_q_down_proj q_a_layernorm "
    "q_a_norm q_b_proj wq_b linear_q_up_proj linear_q_proj q_proj wq query q kv_a_proj_with_mqa "
    "wkv_a linear_kv_down_proj kv_a_layernorm kv_norm kv_b_proj wkv_b linear_kv_up_proj k_proj wk "
    "key k v_proj wv value v conv1d dt_bias a_log q_norm q_layernorm k_norm k_layernorm "
    "rotary_emb rope compressor indexer core_attention sdpa gdn sinks norm o_norm out_norm "
    "sub_norm g_norm wo_a wo_b o_proj wo o out_proj linear_proj dense c_proj proj layernorm "
    "attn_out attn_output"
)
_IN_MLP = _each(
    "router gate wg expert_bias e_score_correction_bias topk experts local_experts shared_expert "
    "shared_experts shared_expert_gate gate_up_proj gate_proj w1 linear_fc1 fc1 c_fc "
    "dense_h_to_4h wi wi_0 wi_1 up_proj w3 act swiglu dense down_proj w2 linear_fc2 fc2 "
    "dense_4h_to_h wo c_proj mlp_out mlp_output"
)
_GROUPS = frozenset(
    "compressor indexer router gate experts local_experts shared_expert shared_experts "
    "shared_expert_gate".split()
)
_SELF = frozenset("self_attn self_attention attn attention linear_attn mixer".split())


def forward_order(name: str) -> Order:
    """Give a key that sorts names as a forward pass computes what they stand for.

    First the step (`prefill` before `decode`, and numbered ones), the part of the model (towers and
    projectors, encoder, language model, multi-token prediction), embeddings before and all else
    after the layers, the layer, the block in it, the place in the block, the expert. Names that
    nothing tells apart have equal keys.
    """
    text = name.lower()
    layer = _LAYER.search(text)
    head = parts_of(text[: layer.start() + 1] if layer else text)
    tail = parts_of(text[layer.end() :] if layer else text)
    parts = parts_of(text)
    step = _STEP.search(text)
    phase = max((_PHASES[part] for part in parts if part in _PHASES), default=0)
    when = (phase, int(step[1]) if step else 0)
    part = _stack([*head, *parts_of(layer[0])] if layer else parts)
    if layer is None:
        return (*when, part, *_outside(parts, part), 0, 0, 0, 0)
    sub = _LAYER.search(text, layer.end() - 1)
    expert = _EXPERT.search(text)
    inside = _inside(tail, -1 if expert is None else int(expert[1]))
    return (*when, part, 1, int(layer[1]), int(sub[1]) if sub else 0, *inside)


def has_layer(name: str) -> bool:
    """Tell whether a name says which layer it is of."""
    return _LAYER.search(name.lower()) is not None


def parts_of(text: str) -> list[str]:
    """Split a name into its words."""
    return [part for part in re.split(r"[./\-:]", text.lower()) if part]


def _stack(parts: list[str]) -> int:
    if any(_MTP_WORD.match(part) for part in parts):
        return _MTP
    return min((_STACKS[part] for part in parts if part in _STACKS), default=_LANGUAGE)


def _outside(parts: list[str], part: int) -> tuple[int, int]:
    if part == _MTP and "fc" in parts:
        return 0, len(_BEFORE)
    before = [_BEFORE[each] for each in parts if each in _BEFORE]
    if before:
        return 0, before[-1]
    after = [_AFTER[each] for each in parts if each in _AFTER]
    return 2, after[-1] if after else len(_AFTER)


def _inside(tail: list[str], expert: int) -> tuple[int, int, int, int]:
    """Give block, place in it, expert, and place in the expert or another group."""
    opened = [_IN_LAYER[word] for word in tail if word in _IN_LAYER]
    block = opened[0] if opened else None
    if block is None:
        known = [word for word in tail if word in _IN_ATTENTION or word in _IN_MLP]
        block = _OTHER if not known else _ATTENTION if known[-1] in _IN_ATTENTION else _MLP
    if block not in (_ATTENTION, _CROSS, _MLP):
        known = [word for word in tail if word in _IN_LAYER]
        place = list(_IN_LAYER).index(known[-1]) if known else 0
        return block, place, expert, 0
    table = _IN_MLP if block == _MLP else _IN_ATTENTION
    words = [word for word in tail if word in table]
    group = next((word for word in words if word in _GROUPS), None)
    leaf = table[words[-1]] if words else len(table)
    if not words and block == _ATTENTION and sum(word in _SELF for word in tail) > 1:
        leaf = _IN_ATTENTION["core_attention"]  # `self_attn.attn`, as vLLM names it
    if group is None:
        return block, leaf, expert, 0
    return block, table["experts"] if group == "local_experts" else table[group], expert, leaf
