"""axolotl: YAML, and flags of its command line. It has no default for the rank or alpha."""

from __future__ import annotations

from . import values
from .gates import switched
from .reading import Reading
from .table import PLAIN_LORA, WRITTEN, Default, Key, Marker, Section, Trainer

_MODULES = Key("lora_target_modules", "target_modules", values.words, several=True)
_LINEAR = Key("lora_target_linear", "target_modules", values.flag)


def _targets(reading: Reading, prefix: str) -> None:
    """With `lora_target_linear` all linear modules but the output are added to those named."""
    for entry in reading.document.at(f"{prefix}lora_target_linear"):
        if reading.converted(entry, _LINEAR):
            reading.state("target_modules", "all-linear", reading.document.origin(entry))
    if not reading.mentioned("target_modules"):
        reading.keys((_MODULES,), prefix)


AXOLOTL = Trainer(
    name="axolotl",
    version="",
    continues=("lora_model_dir",),
    markers=(
        Marker(keys=("base_model", "adapter=lora"), kinds=WRITTEN),
        Marker(keys=("base_model", "adapter=lora"), sure=False),
        Marker(keys=("base_model", "lora_r"), sure=False),
        Marker(keys=("adapter=lora", "lora_r"), sure=False),
        Marker(keys=("base_model", "micro_batch_size"), kinds=WRITTEN),
        Marker(words=("axolotl",)),
    ),
    keys=(
        Key("base_model", "base_model_name_or_path", values.text),
        Key("revision_of_model", "revision", values.text),
        Key("learning_rate", "learning_rate", values.rate),
        Key("optimizer", "optimizer", values.optimiser),
    ),
    sections=(
        Section(
            prefixes=("",),
            gate=switched("adapter", "lora", "qlora"),
            keys=(
                Key("lora_r", "r", values.rank),
                Key("lora_alpha", "lora_alpha", values.alpha),
                Key("lora_dropout", "lora_dropout", values.fraction),
                Key("lora_target_parameters", "target_parameters", values.names, several=True),
                Key("lora_modules_to_save", "modules_to_save", values.names, several=True),
                Key("lora_fan_in_fan_out", "fan_in_fan_out", values.flag),
                Key("lora_rank_pattern", "rank_pattern", values.ranks),
                Key("lora_alpha_pattern", "alpha_pattern", values.alphas),
                Key("peft_use_dora", "use_dora", values.flag),
                Key("peft_use_rslora", "use_rslora", values.flag),
                Key("peft_init_lora_weights", "init_lora_weights", values.initialisation),
                Key("peft_layers_to_transform", "layers_to_transform", values.integers),
                Key("peft_trainable_token_indices", "trainable_token_indices", values.tokens),
                Key("peft_ensure_weight_tying", "ensure_weight_tying", values.flag),
            ),
            rule=_targets,
            defaults=(Default("lora_dropout", 0.0, "lora_dropout = 0.0"), *PLAIN_LORA),
        ),
    ),
)
