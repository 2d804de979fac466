"""Take a tensor's name in a PEFT adapter apart: which module it belongs to, and what it is to it.

The grammar is that of peft 0.21 (`save_and_load.py`, `tuners/lora`): `base_model.model.` + module
+ part, where the module may contain `base_layer` for nested wrappers of expert parameters.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple

PREFIX = "base_model.model."


class Part(str, Enum):
    """What a tensor is to its module."""

    A = "lora_A.weight"
    B = "lora_B.weight"
    B_BIAS = "lora_B.bias"
    EMBEDDING_A = "lora_embedding_A"
    EMBEDDING_B = "lora_embedding_B"
    MAGNITUDE = "lora_magnitude_vector"
    TOKEN_DELTA = "token_adapter.trainable_tokens_delta"
    DIAGONAL = "lora_diag"  # KaSA
    VELORA = "lora_velora_embed"
    MONTECLORA = "lora_monteclora_sampler"
    BASE_BIAS = "base_layer.bias"  # bias="lora_only" or "all"
    BASE_WEIGHT = "base_layer.weight"  # of an embedding that is saved although it is targeted
    WHOLE = ""  # a parameter saved whole: modules_to_save, or the bias of an untargeted module

    @property
    def is_lora(self) -> bool:
        """Tell whether it belongs to the low-rank update itself."""
        return self not in (Part.BASE_BIAS, Part.BASE_WEIGHT, Part.WHOLE, Part.TOKEN_DELTA)


class Key(NamedTuple):
    """A name taken apart: `prefix + module + "." + part`.

    `module` is the path in the base model without `base_layer` segments at its end; `depth` counts
    those: with two parameters of one module wrapped, the outer has 0 and the inner 1. For WHOLE
    parts `leaf` is the parameter's own name (`weight`, `bias`).
    """

    module: str
    part: Part
    depth: int = 0
    leaf: str = ""


_ENDINGS = re.compile(
    r"\.(?:"
    r"(?P<part>lora_A\.weight|lora_B\.(?:weight|bias)|lora_embedding_[AB]|lora_magnitude_vector"
    r"|token_adapter\.trainable_tokens_delta|lora_diag|lora_velora_embed"
    r"|base_layer\.(?:bias|weight))"
    r"|(?P<sampler>lora_monteclora_sampler)\..+)\Z",
    re.DOTALL,
)
_PARTS = {part.value: part for part in Part if part.value}
_BASE_LAYER = ".base_layer"


def parse_key(name: str) -> Key | None:
    """Take a name apart; None when it does not begin with PEFT's prefix or names no module.

    A name that ends in nothing that LoRA writes is a parameter saved whole.
    """
    if not name.startswith(PREFIX):
        return None
    rest = name[len(PREFIX) :]
    found = _ENDINGS.search(rest)
    if found is None:
        module, _, leaf = rest.rpartition(".")
        return Key(module, Part.WHOLE, 0, leaf) if module and leaf else None
    module = rest[: found.start()]
    part = _PARTS[found["part"] or found["sampler"]]
    depth = 0
    if part.is_lora:
        while module.endswith(_BASE_LAYER):
            module = module[: -len(_BASE_LAYER)]
            depth += 1
    return Key(module, part, depth) if module else None


def tensor_name(module: str, part: Part, depth: int = 0, leaf: str = "") -> str:
    """Give the name that PEFT writes; the inverse of `parse_key` but for MonteCLoRA."""
    if part is Part.WHOLE:
        return f"{PREFIX}{module}.{leaf}"
    return f"{PREFIX}{module}{_BASE_LAYER * depth}.{part.value}"
