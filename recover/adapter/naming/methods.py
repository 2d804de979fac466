"""Tell which of PEFT's methods wrote an adapter, by the words it puts into the names of tensors.

Covers the 45 methods of peft 0.21 (`utils/peft_types.py`; words from each tuner's
`adapter_layer_names`), each read off what that version writes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class _Row:
    """One method: the words it writes, and the frozen part that its config's seed regenerates.

    `words` begin with letters that all of them share. `seed` is the config field; `saved` the word
    by which the regenerated part can lie in the file instead.
    """

    peft_type: str
    words: str
    seed: str | None = None
    saved: str | None = None


_ROWS = (
    _Row("ADALORA", r"lora_E"),
    _Row("LOHA", r"hada_(?:w[12]_[ab]|t[12])"),
    _Row("LOKR", r"lokr_(?:w[12](?:_[ab])?|t2)"),
    _Row("IA3", r"ia3_l"),
    _Row("OFT", r"oft_(?:embedding_)?R"),
    _Row("BOFT", r"boft_[Rs]"),
    _Row("VERA", r"vera_(?:lambda_[bd]|[AB])", "projection_prng_key", r"vera_A"),
    _Row("PVERA", r"pvera_(?:lambda_[bd]|[AB])", "projection_prng_key", r"pvera_A"),
    _Row("RANDLORA", r"randlora_(?:lambda|gamma|[AB])", "projection_prng_key", r"randlora_A"),
    _Row("C3A", r"c3a_kernel"),
    _Row("FOURIERFT", r"fourierft_spectrum", "random_loc_seed"),
    _Row("WAVEFT", r"waveft_spectrum", "random_loc_seed"),
    _Row("VBLORA", r"vblora_(?:logits_[AB]\w*|vector_bank)"),
    _Row("HRA", r"hra_u"),
    _Row("LN_TUNING", r"ln_tuning_layers"),
    _Row("MISS", r"miss_block"),
    _Row("SHIRA", r"shira_(?:weight|indices)", "random_seed", r"shira_indices"),
    _Row("SUPERTUNING", r"supertuning_(?:values|indices|lora_[AB])"),
    _Row("DELORA", r"delora_(?:A|B|lambda|w_norm)"),
    _Row("GRALORA", r"gralora_[AB](?:_general)?"),
    _Row("HIRA", r"hira_(?:embedding_)?[AB]"),
    _Row("TINYLORA", r"tinylora_[ABPv]", "projection_seed", r"tinylora_P"),
    _Row("UNILORA", r"unilora_\w+", "proj_seed", r"unilora_indices_A"),
    _Row("PSOFT", r"psoft_R"),
    _Row("PEANUT", r"peanut_(?:A|B|encoders|decoders)"),
    _Row("LILY", r"lily_(?:A|B|router)"),
    _Row("DEFT", r"deft_[PR]"),
    _Row("BEFT", r"beft_bias"),
    _Row("GLORA", r"glora_[ABCDE]"),
    _Row("FROD", r"frod_\w+", "projection_prng_key", r"frod_V"),
    _Row("OSF", r"osf_svd_params"),
    _Row("POLY", r"poly_(?:lora_[AB]|router)"),
    _Row("ROAD", r"road_(?:theta|alpha)"),
    _Row("ADAMSS", r"adamss_[AB]\w*", "random_seed"),
    _Row("ADAPTION_PROMPT", r"adaption_(?:prompt|gate)"),
    _Row("SHADOW", r"shadow_\w+"),
    _Row("XLORA", r"internal_xlora_classifier"),
    _Row("MULTITASK_PROMPT_TUNING", r"prefix_task_(?:cols|rows)"),
    _Row("PROMPT_TUNING, PREFIX_TUNING, P_TUNING, CPT or CARTRIDGE", r"prompt_embeddings"),
    _Row("LORA", r"lora_(?:embedding_)?[AB](?=\.)|lora_embedding_[AB]$|lora_magnitude_vector"),
    _Row("LORA", r"token_adapter(?=\.trainable_tokens_delta)"),  # a LoRA's trainable tokens
    _Row("TRAINABLE_TOKENS", r"trainable_tokens_delta"),
)
_VARIANTS = {
    "DoRA": r"lora_magnitude_vector",
    "KaSA": r"lora_diag",
    "VeLoRA": r"lora_velora_embed",
    "MonteCLoRA": r"lora_monteclora_sampler",
}
UNTOLD_VARIANTS = ("aLoRA", "QA-LoRA", "Arrow")  # same names and same shapes as plain LoRA


@dataclass(frozen=True)
class Method:
    """A PEFT method as the names tell it; `evidence` is one of them and not fit to print.

    `seed` is the config field without which a frozen part of the adapter cannot be made again;
    None where there is none or the part lies in the file.
    """

    name: str
    evidence: str
    variants: tuple[str, ...] = ()
    seed: str | None = None

    @property
    def is_lora(self) -> bool:
        """Tell whether it is LoRA, the one method whose config can be rebuilt."""
        return self.name == "LORA"

    @property
    def refusal(self) -> str:
        """Say in one sentence why its config is not rebuilt; empty for LoRA."""
        if self.is_lora:
            return ""
        if self.seed is not None:
            return (
                f"This is an adapter of the method {self.name}, of which a frozen part is drawn"
                f" anew from `{self.seed}` of its config: without the original config it is lost."
            )
        return f"This is an adapter of the method {self.name}; configs are rebuilt for LORA only."


class _Words:
    """Whole segments of names, in many names at once; a plain search for their beginning first."""

    def __init__(self, words: str) -> None:
        beginning = re.match(r"\w+", words)
        self.beginning = beginning[0] if beginning else ""
        self.pattern = re.compile(rf"(?:^|\.)(?:{words})(?=\.|$)", re.MULTILINE)

    def search(self, joined: str) -> re.Match[str] | None:
        return self.pattern.search(joined) if self.beginning in joined else None


_TABLE = tuple((row, _Words(row.words), _Words(row.saved or row.words)) for row in _ROWS)
_VARIANT_WORDS = {variant: _Words(words) for variant, words in _VARIANTS.items()}


def method_of(names: Sequence[str]) -> Method | None:
    """Name the method; None where no name has a word of any. Never tells LoRA's hidden variants.

    An adapter has one method; should words of several occur, the earliest row of the table counts.
    """
    joined = "\n".join(names)
    for row, words, saved in _TABLE:
        found = words.search(joined)
        if found is None:
            continue
        start = joined.rfind("\n", 0, found.start() + 1) + 1
        stop = joined.find("\n", found.end())
        evidence = joined[start : stop if stop >= 0 else len(joined)]
        has_part = row.saved is not None and saved.search(joined) is not None
        variants = tuple(
            variant
            for variant, marks in _VARIANT_WORDS.items()
            if row.peft_type == "LORA" and marks.search(joined)
        )
        return Method(row.peft_type, evidence, variants, None if has_part else row.seed)
    return None
