"""Tell whose naming the tensors of an adapter follow, when it is not PEFT's own.

A rename is rarely enough: most producers also lay the numbers out differently, in shapes that fit
all the same. So each is named with its trap, and nothing is converted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from ..keys import PREFIX

_ENOUGH = 4096
_LONGEST = 1024  # longer names belong to no producer, and would make the patterns slow


@dataclass(frozen=True)
class Producer:
    """One foreign naming: `pattern` is searched in names, `metadata` are keys it writes."""

    name: str
    pattern: str
    trap: str
    remedy: str
    under_peft_prefix: bool = True
    metadata: tuple[str, ...] = ()


@dataclass(frozen=True)
class Foreign:
    """A recognised producer. `evidence` is a tensor's name, or a metadata key; not fit to print."""

    producer: str
    evidence: str
    tensors: int
    trap: str
    remedy: str


# The first that matches a name counts, so the narrower stand above the wider.
PRODUCERS = (
    Producer(
        "Tinker",
        r"\.experts\.w[123]\.lora_[AB]\b|\bunembed_tokens\.lora_[AB]\b",
        "experts are three-dimensional (experts or 1, r, d) with w1 = gate, w3 = up and w2 = down,"
        " and the head is called unembed_tokens, so PEFT leaves all of them out",
        "Convert it with tinker-cookbook, which also needs the adapter_config.json that came with"
        " it.",
    ),
    Producer(
        "NeMo 1",
        r"\badapter_layer\.\w+_adapter\.linear_(?:in|out)\b",
        "q, k and v share one A, and the rows of B are grouped by query group",
        "Convert the checkpoint to NeMo 2, then export it to PEFT.",
    ),
    Producer(
        "Megatron-Bridge or NeMo 2",
        r"\.adapter(?:\.adapter_\w+)?\.linear_(?:in|out)\b|\badapter_(?:q|k|v|gate|up)\.linear_"
        r"|\.to_wrap\.",
        "q, k and v share one A, and the rows of B are grouped by query group and may be one"
        " rank's part of them",
        "Export it with Megatron-Bridge's `AutoBridge.export_adapter_ckpt`.",
    ),
    Producer(
        "llama.cpp (GGUF LoRA)",
        r"\A(?:blk\.\d+\..+|token_embd\.weight|output\.weight)\.lora_[ab]\Z",
        "rows of q and k are permuted for llama architectures, and rslora and alpha_pattern are"
        " not kept",
        "Look for the PEFT adapter that convert_lora_to_gguf.py was given.",
    ),
    Producer(
        "LyCORIS",
        r"\A(?:lora_\w+?|lycoris)_.+\.(?:hada_w[12]_[ab]|hada_t[12]|lokr_[wt][12](?:_[ab])?"
        r"|oft_blocks|oft_diag|lora_mid\.weight)\Z",
        "dots of module names are underscores, and LoHa and LoKr multiply where LoRA adds",
        "Load it with lycoris_lora, or merge it there into the base.",
        under_peft_prefix=False,
    ),
    Producer(
        "kohya",
        r"\Alora_(?:unet|te\d?|transformer|prior\w*|llm_adapter\w*)_.+"
        r"\.(?:lora_(?:down|up)\.weight|alpha|dora_scale)\Z",
        "dots of module names are underscores, and each module has its own alpha beside it",
        "Convert it with PEFT's example script convert_kohya_ss_sd_lora_to_peft.py.",
        under_peft_prefix=False,
        metadata=("ss_network_module", "ss_network_dim", "ss_network_alpha"),
    ),
    Producer(
        "XLabs",
        r"\bprocessor\.(?:proj|qkv)_lora[12]?\.(?:down|up)\.weight\Z",
        "one LoRA covers q, k and v of a block together",
        "Load it with diffusers, which splits it.",
    ),
    Producer(
        "ai-toolkit or ComfyUI",
        r"\Adiffusion_model\..+\.(?:lora_[AB]\.weight|lora_(?:down|up)\.weight|alpha)\Z",
        "modules are named as the original model's code does, not as diffusers does",
        "Load it with diffusers' load_lora_weights, which knows these names.",
        under_peft_prefix=False,
    ),
    Producer(
        "diffusers",
        r"\A(?:unet|text_encoder(?:_[23])?|prior|controlnet)\..+"
        r"(?:\.lora_[AB]\.weight|[._]lora\.(?:down|up)\.weight"
        r"|\.lora_linear_layer\.(?:down|up)\.weight|\.alpha)\Z"
        r"|\Atransformer\.(?:.+\.)?(?:(?:single_)?transformer_blocks|to_(?:q|k|v|out|add_out)"
        r"|add_[qkv]_proj)\..*(?:lora_[AB]\.weight|lora\.(?:down|up)\.weight|alpha)\Z"
        r"|\bto_(?:q|k|v|out)_lora\.(?:down|up)\.weight\Z",
        "one file holds the adapters of several components, and mixed ranks without alpha load at"
        " a wrong scale",
        "Load it with diffusers' load_lora_weights; alpha is in the lora_adapter_metadata of the"
        " header, if it is anywhere.",
        under_peft_prefix=False,
        metadata=("lora_adapter_metadata",),
    ),
    Producer(
        "torchtune",
        r"\.lora_[ab]\.weight\Z",
        "rows of lora_b of q and k stand in Meta's rotary order: renaming alone fits every shape"
        " and is a wrong model",
        "Let torchtune's checkpointer write it in PEFT's format (`tune_to_peft_adapter_weights`).",
    ),
    Producer(
        "mlx-lm",
        r"\.lora_[ab]\Z",
        "both matrices are transposed: lora_a is (inputs, r) and lora_b is (r, outputs)",
        "Transpose both while renaming; the `scale` of its own adapter_config.json is alpha / r.",
    ),
    Producer(
        "kohya or diffusers",
        r"[._]lora[._](?:down|up)\.weight\Z|\.lora_(?:down|up)\.weight\Z",
        "down is A and up is B, and an alpha of each module may lie beside them",
        "Rename down to A and up to B, and take alpha from the .alpha tensors or the metadata.",
    ),
)

# Every name that a pattern can match has one of these; a search for them is all that PEFT's own
# names and those of a full checkpoint cost.
_MARK = re.compile(
    r"linear_(?:in|out)|to_wrap|lora_[ab]\b|lora\d?[._](?:down|up|mid|linear_layer)|hada_|lokr_"
    r"|experts\.w[123]\.lora|unembed_tokens|\A(?:lora|lycoris)_"
    r"|\A(?:unet|text_encoder(?:_[23])?|transformer|prior|controlnet|diffusion_model)\."
    r".+(?:lora_[AB]\.weight|\.alpha)\Z",
    re.DOTALL,
)
_COMPILED = tuple((producer, re.compile(producer.pattern, re.DOTALL)) for producer in PRODUCERS)


def recognise(names: Sequence[str], metadata: Mapping[str, str] | None = None) -> Foreign | None:
    """Name the producer whose naming most of the foreign names follow; None for PEFT's own.

    `metadata` is the header's `__metadata__`. Looks at the first 4,096 names that are telling.
    """
    counted: dict[str, list[str]] = {}
    telling = (name for name in names if len(name) <= _LONGEST and _MARK.search(name))
    for name in islice(telling, _ENOUGH):
        if (producer := _producer_of(name)) is not None:
            counted.setdefault(producer.name, []).append(name)
    if counted:
        best = max(PRODUCERS, key=lambda producer: len(counted.get(producer.name, ())))
        found = counted[best.name]
        return _foreign(best, found[0], len(found))
    if metadata and not any(name.startswith(PREFIX) for name in names):
        for producer in PRODUCERS:
            if evidence := next((key for key in producer.metadata if key in metadata), None):
                return _foreign(producer, evidence, 0)
    return None


def _producer_of(name: str) -> Producer | None:
    peft = name.startswith(PREFIX)
    for producer, pattern in _COMPILED:
        if (producer.under_peft_prefix or not peft) and pattern.search(name):
            return producer
    return None


def _foreign(producer: Producer, evidence: str, tensors: int) -> Foreign:
    return Foreign(producer.name, evidence, tensors, producer.trap, producer.remedy)
