"""A family of models as data: blocks of rows, and the keys that their dimensions depend on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from .rows import HEADS, HIDDEN, VOCABULARY, Row, Rows, embedding, linear, norm
from .settings import Keys, Settings, Size

TraitsOfLayer = Callable[[int], tuple[str, ...]]
Traits = Callable[[Settings], TraitsOfLayer]


def no_traits(_settings: Settings) -> TraitsOfLayer:
    """Say that every layer is alike."""
    return lambda _layer: ()


@dataclass(frozen=True)
class Block:
    """Rows below one path; with `count` the path holds `{}` and is repeated for every layer.

    `layers` holds rows that only layers of some trait have, such as "sparse" or
    "full_attention", and `traits` reads the config and says which traits layer i has. `part` is
    the nested config that the rows' keys are in.
    """

    path: str
    rows: Rows
    count: str | None = None
    layers: Mapping[str, Rows] = field(default_factory=dict[str, Rows])
    traits: Traits = no_traits
    part: str = ""


@dataclass(frozen=True)
class Family:
    """What one model_type is made of, by names in memory under transformers 5.

    `stem` is what the bare model's modules lie below, `renamed` the prefixes that are others on
    disk, `disk_aliases` further prefixes that checkpoints go by. `part` is the nested config of
    the language model, `expert_count` the key of the number of experts, `converted` what PEFT makes
    of the names of single experts, `predicted_layers` the key of the number of multi-token
    prediction layers that repositories add after the last one. `refuses` holds values of keys that
    change the model in ways that the rows do not know.
    """

    keys: Keys
    blocks: tuple[Block, ...]
    head: Row = field(default_factory=lambda: linear("lm_head", HIDDEN, VOCABULARY))
    stem: str = "model."
    embedding: str = "model.embed_tokens"
    causal_class: str = "ForCausalLM"
    text_only: bool = True
    part: str = ""
    expert_count: str | None = None
    converted: Mapping[str, str] = field(default_factory=dict[str, str])
    predicted_layers: str | None = None
    renamed: Mapping[str, str] = field(default_factory=dict[str, str])
    disk_aliases: Mapping[str, str] = field(default_factory=dict[str, str])
    refuses: Mapping[str, object] = field(default_factory=dict[str, object])


USUAL_DERIVED: Mapping[str, Size] = {
    "num_key_value_heads": HEADS,
    "head_dim": HIDDEN // HEADS,
}


def keys(
    vocab_size: int,
    hidden_size: int,
    intermediate_size: int,
    layers: int,
    heads: int,
    key_value_heads: int | None = None,
    *,
    tied: bool = False,
    aliases: Mapping[str, str] | None = None,
    **others: object,
) -> Keys:
    """Give the defaults that nearly every config class has, and further ones by their keys."""
    defaults: dict[str, object] = {
        "vocab_size": vocab_size,
        "hidden_size": hidden_size,
        "intermediate_size": intermediate_size,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": key_value_heads,
        "tie_word_embeddings": tied,
        "num_labels": 2,
        **others,
    }
    return Keys(defaults, USUAL_DERIVED, aliases or {})


def decoder(
    rows: Rows,
    *,
    layers: Mapping[str, Rows] | None = None,
    traits: Traits = no_traits,
    path: str = "model.",
    last: Row | None = None,
    part: str = "",
) -> tuple[Block, ...]:
    """Make the usual decoder: embed_tokens, `layers.{}` of these rows, and a norm after them."""
    return (
        Block(path, (embedding("embed_tokens", VOCABULARY, HIDDEN),), part=part),
        Block(f"{path}layers.{{}}.", rows, "num_hidden_layers", layers or {}, traits, part),
        Block(path, (last or norm("norm"),), part=part),
    )
