"""SkyRL: YAML and overrides of it."""

from __future__ import annotations

from . import values
from .gates import positive
from .table import PLAIN_LORA, Default, Key, Marker, Section, Trainer, plain_defaults

_MEGATRON = "trainer.policy.megatron_config.lora_config."

SKYRL = Trainer(
    name="SkyRL",
    version="",
    markers=(
        Marker(keys=("trainer.policy.model",)),
        Marker(words=("skyrl_train",)),
        Marker(words=("skyrl.train",)),
    ),
    keys=(
        Key("trainer.policy.model.path", "base_model_name_or_path", values.text),
        Key("trainer.policy.optimizer_config.lr", "learning_rate", values.rate),
        Key(f"{_MEGATRON}normalize_moe_lora", "normalize_moe_lora", values.flag),
        Key(f"{_MEGATRON}share_expert_adapters", "share_expert_adapters", values.flag),
    ),
    sections=(
        Section(
            prefixes=("trainer.policy.model.lora.",),
            gate=positive("rank"),
            keys=(
                Key("rank", "r", values.rank_or_none),
                Key("alpha", "lora_alpha", values.alpha),
                Key("dropout", "lora_dropout", values.fraction),
                Key("target_modules", "target_modules", values.words, several=True),
                Key("exclude_modules", "exclude_modules", values.words, several=True),
            ),
            defaults=(
                Default("lora_alpha", 16, "lora.alpha = 16"),
                Default("lora_dropout", 0.0, "lora.dropout = 0.0"),
                *plain_defaults(target_modules="all-linear"),
                *PLAIN_LORA,
            ),
        ),
    ),
)
