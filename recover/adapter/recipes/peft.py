"""PEFT itself: `adapter_config.json`, and `LoraConfig(...)` in a script.

Facts from peft 0.21.2: the 41 keys that it writes, and LoraConfig's defaults.
"""

from __future__ import annotations

from . import values
from .document import Kind
from .gates import always, present
from .reading import Reading
from .table import Key, Marker, Section, Trainer, plain_defaults, simple

# What a LoRA is made with, under PEFT's own names.
LORA_FIELDS = {
    "r": values.rank,
    "lora_alpha": values.alpha_or_none,
    "lora_dropout": values.fraction,
    "target_modules": values.targets,
    "exclude_modules": values.targets,
    "target_parameters": values.names,
    "modules_to_save": values.names,
    "bias": values.text,
    "use_rslora": values.flag,
    "use_dora": values.flag,
    "lora_bias": values.flag,
    "init_lora_weights": values.initialisation,
    "rank_pattern": values.ranks,
    "alpha_pattern": values.alphas,
    "layers_to_transform": values.integers,
    "layers_pattern": values.names,
    "trainable_token_indices": values.tokens,
    "ensure_weight_tying": values.flag,
    "fan_in_fan_out": values.flag,
    "task_type": values.task,
}
_OTHER_FIELDS = {
    "peft_type": values.task,
    "base_model_name_or_path": values.text,
    "revision": values.text,
    "peft_version": values.text,
    "inference_mode": values.flag,
    "megatron_core": values.text,
    "use_qalora": values.flag,
    "qalora_group_size": values.count,
}
_OPAQUE = (
    "alora_invocation_tokens arrow_config auto_mapping corda_config eva_config kasa_config "
    "layer_replication loftq_config lora_ga_config monteclora_config use_bdlora "
    "velora_config"
).split()
SCHEMA: tuple[Key, ...] = (
    *simple(LORA_FIELDS),
    *simple(_OTHER_FIELDS),
    *(Key(field, field, values.anything) for field in _OPAQUE),
)
_SWITCHES = plain_defaults(use_rslora=False, use_dora=False, lora_bias=False)


def placeholder_alpha(reading: Reading, prefix: str) -> None:
    """Remark on an alpha of 0: verl's model merger writes it for a value that it does not know."""
    for entry in reading.document.at(f"{prefix}lora_alpha"):
        if entry.value == 0 and not isinstance(entry.value, bool):
            reading.note(f"{reading.document.origin(entry)}: 0 is a placeholder, and no alpha")


def _default_targets(reading: Reading, prefix: str) -> None:
    placeholder_alpha(reading, prefix)
    if reading.counting and not reading.mentioned("target_modules"):
        reading.note("PEFT chooses target_modules by the model's architecture where none are named")


_JSON = frozenset({Kind.JSON})

CONFIG = Trainer(
    name="PEFT",
    version="0.21.2",
    markers=(
        Marker(keys=("peft_type",), kinds=_JSON),
        Marker(keys=("base_model_name_or_path", "lora_alpha"), kinds=_JSON),
        Marker(keys=("r", "lora_alpha"), sure=False),
        Marker(keys=("r", "target_modules"), sure=False),
    ),
    keys=(),
    sections=(
        # PEFT writes every key that its version knows: those it lacks are younger switches.
        Section(
            prefixes=("",),
            gate=always,
            keys=SCHEMA,
            rule=placeholder_alpha,
            defaults=_SWITCHES,
        ),
    ),
)

SCRIPT = Trainer(
    name="PEFT",
    version="0.21.2",
    markers=(
        Marker(words=("peft",), kinds=frozenset({Kind.PYTHON})),
        Marker(keys=("LoraConfig",), kinds=frozenset({Kind.PYTHON}), sure=False),
    ),
    prefixes=("AutoModelForCausalLM.from_pretrained.", "SFTConfig.", "TrainingArguments."),
    keys=(
        Key("0", "base_model_name_or_path", values.text),
        Key("pretrained_model_name_or_path", "base_model_name_or_path", values.text),
        Key("revision", "revision", values.text),
        Key("learning_rate", "learning_rate", values.rate),
        Key("optim", "optimizer", values.optimiser),
    ),
    sections=(
        Section(
            prefixes=("LoraConfig.",),
            gate=present(),
            keys=SCHEMA,
            rule=_default_targets,
            defaults=(
                *plain_defaults(r=8, lora_alpha=8, lora_dropout=0.0, bias="none"),
                *_SWITCHES,
                *plain_defaults(init_lora_weights=True, fan_in_fan_out=False),
            ),
        ),
    ),
)
