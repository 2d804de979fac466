"""GPT-2, whose projections are Conv1D: weights lie transposed, as (inputs, outputs)."""

from __future__ import annotations

from collections.abc import Mapping

from .family import Block, Family
from .rows import HIDDEN, VOCABULARY, conv1d, embedding, norm
from .settings import Keys, exactly, key

_INNER = key("n_inner")

FAMILIES: Mapping[str, Family] = {
    "gpt2": Family(
        keys=Keys(
            defaults={
                "vocab_size": 50257,
                "hidden_size": 768,
                "num_hidden_layers": 12,
                "n_positions": 1024,
                "n_inner": None,
                "tie_word_embeddings": True,
                "num_labels": 2,
            },
            derived={"n_inner": exactly(4) * HIDDEN},
            aliases={
                "hidden_size": "n_embd",
                "num_hidden_layers": "n_layer",
                "n_positions": "max_position_embeddings",
            },
        ),
        blocks=(
            Block(
                "transformer.",
                (
                    embedding("wte", VOCABULARY, HIDDEN),
                    embedding("wpe", key("n_positions"), HIDDEN),
                ),
            ),
            Block(
                "transformer.h.{}.",
                (
                    norm("ln_1", bias=True),
                    conv1d("attn.c_attn", HIDDEN, 3 * HIDDEN),
                    conv1d("attn.c_proj", HIDDEN, HIDDEN),
                    norm("ln_2", bias=True),
                    conv1d("mlp.c_fc", HIDDEN, _INNER),
                    conv1d("mlp.c_proj", _INNER, HIDDEN),
                ),
                count="num_hidden_layers",
            ),
            Block("transformer.", (norm("ln_f", bias=True),)),
        ),
        stem="transformer.",
        embedding="transformer.wte",
        causal_class="LMHeadModel",
        refuses={"add_cross_attention": True},
    ),
}
