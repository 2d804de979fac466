"""Read the ranks of a LoRA adapter off the shapes in its header."""

from __future__ import annotations

import re

from ..formats.safetensors import Header

# The first dimension of each of these is the rank.
_MATRICES = (
    r"lora_A(?:\.[^.]+)?\.weight",  # PEFT: on disk, and with the adapter's name as in memory
    r"lora_embedding_A(?:\.[^.]+)?",  # PEFT, (r, vocabulary)
    r"lora_down\.weight",  # kohya
    r"(?:\w+_)?lora\.down\.weight",  # diffusers: `lora.down` and `to_q_lora.down`
)
_RANK_FIRST = re.compile(r"(?:^|\.)(?:" + "|".join(_MATRICES) + r")\Z")


def lora_ranks(header: Header) -> tuple[int, ...]:
    """Give the distinct ranks in ascending order; none where the file is no adapter.

    For experts fused by PEFT's `target_parameters`, (experts x r, in), the product counts as the
    rank: the header does not tell the number of experts. Empty matrices, as a save from ZeRO-3
    leaves them, have none.
    """
    ranks = {
        tensor.shape[0]
        for tensor in header.tensors
        if tensor.nbytes and len(tensor.shape) > 1 and _RANK_FIRST.search(tensor.name)
    }
    return tuple(sorted(ranks))
