"""verl: Hydra YAML and overrides; FSDP's `lora_rank` and Megatron's `lora.rank`."""

from __future__ import annotations

from . import values
from .gates import positive
from .megatron_bridge import TARGETS
from .module_names import megatron
from .reading import Reading
from .table import PLAIN_LORA, Default, Key, Marker, Section, Trainer, plain_defaults


def _type(reading: Reading, prefix: str) -> None:
    for entry in reading.document.at(f"{prefix}type"):
        if entry.value == "dora":
            reading.state("use_dora", True, reading.document.origin(entry))


VERL = Trainer(
    name="verl",
    version="",
    continues=(
        "actor_rollout_ref.model.lora_adapter_path",
        "model.lora_adapter_path",
        "actor_rollout_ref.model.lora.adapter_path",
    ),
    markers=(
        Marker(keys=("actor_rollout_ref",)),
        Marker(keys=("model.partial_pretrain", "model.lora_rank")),
        Marker(words=("verl.trainer",)),
    ),
    keys=(
        Key("actor_rollout_ref.model.path", "base_model_name_or_path", values.text),
        Key("model.partial_pretrain", "base_model_name_or_path", values.text),
        Key("actor_rollout_ref.actor.optim.lr", "learning_rate", values.rate),
        Key("optim.lr", "learning_rate", values.rate),
    ),
    sections=(
        Section(
            prefixes=("actor_rollout_ref.model.", "model."),
            gate=positive("lora_rank"),
            keys=(
                Key("lora_rank", "r", values.rank_or_none),
                Key("lora_alpha", "lora_alpha", values.alpha),
                Key("target_modules", "target_modules", values.words, several=True),
                Key("exclude_modules", "exclude_modules", values.words, several=True),
                Key("target_parameters", "target_parameters", values.names, several=True),
            ),
            defaults=(
                Default("lora_alpha", 16, "lora_alpha = 16"),
                *plain_defaults(target_modules="all-linear", lora_dropout=0.0, bias="none"),
                *PLAIN_LORA,
            ),
        ),
        Section(
            prefixes=("actor_rollout_ref.model.lora.",),
            gate=positive("rank"),
            keys=(
                Key("rank", "r", values.rank_or_none),
                Key("alpha", "lora_alpha", values.alpha),
                Key("dropout", "lora_dropout", values.fraction),
                Key("target_modules", "target_modules", megatron, several=True),
                Key("exclude_modules", "exclude_modules", megatron, several=True),
            ),
            rule=_type,
            defaults=(
                Default("lora_alpha", 32, "lora.alpha = 32"),
                Default("lora_dropout", 0.0, "lora.dropout = 0.0"),
                TARGETS,
                *PLAIN_LORA,
            ),
        ),
    ),
)
