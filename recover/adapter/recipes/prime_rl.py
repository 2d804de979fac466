"""prime-rl: TOML and overrides of it."""

from __future__ import annotations

from . import values
from .gates import present
from .table import PLAIN_LORA, Default, Key, Marker, Section, Trainer

_TARGETS = (
    "q_proj k_proj v_proj o_proj gate_proj up_proj down_proj experts fc1_latent_proj "
    "fc2_latent_proj"
).split()

PRIME_RL = Trainer(
    name="prime-rl",
    version="",
    markers=(
        Marker(keys=("trainer.model.lora",)),
        Marker(keys=("model.lora", "model.name"), sure=False),
        Marker(keys=("trainer.model.name", "orchestrator")),
        Marker(words=("prime_rl",)),
        Marker(words=("prime-rl",)),
    ),
    keys=(
        Key("model.name", "base_model_name_or_path", values.text),
        Key("trainer.model.name", "base_model_name_or_path", values.text),
        Key("trainer.optim.lr", "learning_rate", values.rate),
        Key("optim.lr", "learning_rate", values.rate),
        Key("trainer.optim.type", "optimizer", values.optimiser),
    ),
    sections=(
        Section(
            prefixes=("trainer.model.lora.", "model.lora."),
            gate=present(),
            keys=(
                Key("rank", "r", values.rank),
                Key("alpha", "lora_alpha", values.alpha),
                Key("dropout", "lora_dropout", values.fraction),
                Key("target_modules", "target_modules", values.words, several=True),
                Key("modules_to_save", "modules_to_save", values.names, several=True),
            ),
            defaults=(
                Default("r", 16, "rank = 16"),
                Default("lora_alpha", 32, "alpha = 32.0"),
                Default("lora_dropout", 0.0, "dropout = 0.0"),
                Default(
                    "target_modules", [*_TARGETS], "target_modules; names no model has are ignored"
                ),
                *PLAIN_LORA,
            ),
        ),
    ),
)
