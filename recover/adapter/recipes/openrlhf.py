"""OpenRLHF: launch lines of both generations of flags."""

from __future__ import annotations

from . import values
from .gates import positive
from .table import PLAIN_LORA, Default, Key, Marker, Section, Trainer, plain_defaults


def _section(prefix: str, rank: str, alpha: str, dropout: str) -> Section:
    return Section(
        prefixes=(prefix,),
        gate=positive(rank),
        keys=(
            Key(rank, "r", values.rank_or_none),
            Key(alpha, "lora_alpha", values.alpha),
            Key(dropout, "lora_dropout", values.fraction),
            Key("target_modules", "target_modules", values.words, several=True),
        ),
        defaults=(
            Default("lora_alpha", 16, f"{prefix}{alpha} = 16"),
            Default("lora_dropout", 0, f"{prefix}{dropout} = 0"),
            *plain_defaults(target_modules="all-linear", bias="none"),
            *PLAIN_LORA,
        ),
    )


OPENRLHF = Trainer(
    name="OpenRLHF",
    version="",
    markers=(
        Marker(words=("openrlhf",)),
        Marker(keys=("ds.lora.rank",), sure=False),
        Marker(keys=("pretrain", "lora_rank"), sure=False),
    ),
    keys=(
        Key("actor.model_name_or_path", "base_model_name_or_path", values.text),
        Key("model.model_name_or_path", "base_model_name_or_path", values.text),
        Key("pretrain", "base_model_name_or_path", values.text),
        Key("learning_rate", "learning_rate", values.rate),
        Key("actor_learning_rate", "learning_rate", values.rate),
        Key("adam.lr", "learning_rate", values.rate),
    ),
    sections=(
        _section("ds.lora.", "rank", "alpha", "dropout"),
        _section("", "lora_rank", "lora_alpha", "lora_dropout"),
    ),
)
