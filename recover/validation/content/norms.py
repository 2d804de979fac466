"""Say of which families norms are offsets from one, so that zero is what they start with."""

from __future__ import annotations

from ...base.architectures.registry import FAMILIES

# Those whose RMSNorm or LayerNorm multiplies by (1 + weight) in transformers 5.24.
_OFFSETS = frozenset(
    """
    gemma gemma2 gemma3 gemma3_text paligemma colpali vaultgemma t5gemma t5gemma2 recurrent_gemma
    qwen3_next qwen3_5 qwen3_5_text qwen3_5_moe qwen3_5_moe_text nemotron minimax_m3_vl step3p7
    videoprism
    """.split()
)


def are_offsets(model_type: str | None) -> bool | None:
    """Tell whether a family's norms are offsets from one; None where it is not known."""
    if model_type in _OFFSETS:
        return True
    return False if model_type in FAMILIES else None
