"""Tensors that real checkpoints hold and no rule expects, with the reason why they are there."""

from __future__ import annotations

import re

from .architectures.registry import FAMILIES
from .model import Base
from .spellings import expected_name, in_memory

_LAYER = re.compile(r"(?:^|\.)(?:layers|h)\.([0-9]{1,9})\.")
_ROTARY = re.compile(r"\.rotary_emb\.(?:\w+_)?(?:inv_freq|cos_cached|sin_cached)$")
_CAUSAL_MASK = re.compile(r"^(?:transformer\.)?h\.[0-9]{1,9}\.attn\.(?:bias|masked_bias)$")
_POSITION_IDS = re.compile(r"^(?:model\.)?vision_tower\.(?:[\w.]+\.)?position_ids$")

# What quantisers store beside a weight or in its place, by the end of the name.
_QUANTISER_ENDS: dict[str, str] = {
    ".weight_scale_inv": "quantiser scale (fp8)",
    ".weight_scale": "quantiser scale",
    ".weight_scale_2": "quantiser scale (modelopt)",
    ".weight_global_scale": "quantiser scale (compressed-tensors)",
    ".weight_zero_point": "quantiser zero point (compressed-tensors)",
    ".weight_shape": "quantised weight's shape (compressed-tensors)",
    ".weight_packed": "quantised weight (compressed-tensors)",
    ".weight_g_idx": "quantiser group index (compressed-tensors)",
    ".input_scale": "quantiser scale of inputs",
    ".input_global_scale": "quantiser scale of inputs",
    ".activation_scale": "quantiser scale of inputs",
    ".k_scale": "quantiser scale of the key cache",
    ".v_scale": "quantiser scale of the value cache",
    ".kv_scale": "quantiser scale of the key and value cache",
    ".qweight": "quantised weight (GPTQ or AWQ)",
    ".qzeros": "quantiser zero point (GPTQ or AWQ)",
    ".scales": "quantiser scale (GPTQ or AWQ)",
    ".g_idx": "quantiser group index (GPTQ)",
    ".weight.absmax": "quantiser scale (bitsandbytes)",
    ".weight.nested_absmax": "quantiser scale (bitsandbytes)",
    ".weight.quant_map": "quantiser code book (bitsandbytes)",
    ".weight.nested_quant_map": "quantiser code book (bitsandbytes)",
    ".weight.quant_state.bitsandbytes__nf4": "quantiser state (bitsandbytes)",
    ".weight.quant_state.bitsandbytes__fp4": "quantiser state (bitsandbytes)",
    ".SCB": "quantiser scale (bitsandbytes)",
    ".weight_format": "quantiser state (bitsandbytes)",
}
_ENDS = tuple(_QUANTISER_ENDS)
_CACHE_ENDS = (".k_scale", ".v_scale", ".kv_scale")


def is_known_extra(base: Base, name: str) -> str | None:
    """Give the reason why a checkpoint of this base may hold a tensor that it does not expect.

    None means that there is no reason. Quantiser tensors count only beside a module of the base,
    layers past the last only as many as the config names for multi-token prediction. Tied copies
    (`base.tied`) are no extras: they must equal what they are tied to.
    """
    if expected_name(base, name) is not None:
        return None
    if _is_prediction(base, name):
        return "multi-token prediction layer"
    if _ROTARY.search(name):
        return "rotary cache inv_freq"
    if base.model_type == "gpt2" and _CAUSAL_MASK.match(name):
        return "causal mask buffer"
    if base.model_type == "gemma3" and _POSITION_IDS.match(name):
        return "position ids buffer"
    return _quantiser_reason(base, name)


def _is_prediction(base: Base, name: str) -> bool:
    if base.model_type == "qwen3_next":
        return name.startswith("mtp.")
    family = FAMILIES.get(base.model_type or "")
    if family is None or family.predicted_layers is None or base.layers is None:
        return False
    config = base.config or {}
    count = config.get(family.predicted_layers, family.keys.defaults[family.predicted_layers])
    layer = _LAYER.search(name)
    if layer is None or not isinstance(count, int):
        return False
    return base.layers <= int(layer[1]) < base.layers + count


def _quantiser_reason(base: Base, name: str) -> str | None:
    if name.endswith(_ENDS):
        for end, reason in _QUANTISER_ENDS.items():
            module = name.removesuffix(end)
            if module != name and _is_module(base, module, of_cache=end in _CACHE_ENDS):
                return reason
    packed = bool((base.config or {}).get("quantization_config"))
    if packed and name.endswith(".weight") and _is_module(base, name.removesuffix(".weight")):
        return "weight of a layer that may be quantised"
    return None


def _is_module(base: Base, disk: str, *, of_cache: bool = False) -> bool:
    """Tell whether a module, or the attention that a cache belongs to, is called so on disk."""
    known = base.modules
    return in_memory(base, disk) in known or (
        of_cache and in_memory(base, f"{disk}.k_proj") in known
    )
