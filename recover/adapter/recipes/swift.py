"""ms-swift: its command line, YAML, and the `args.json` that it leaves. Facts from 4.6."""

from __future__ import annotations

from . import values
from .document import Kind, Unresolved
from .table import Default, Gate, Key, Marker, Reading, Section, Trainer, plain_defaults

_TARGETS = Key("target_modules", "target_modules", values.words, several=True)


def _gate(reading: Reading, prefix: str) -> Gate:
    """LoRA is what it does unless another tuner is named."""
    for key in ("tuner_type", "train_type"):
        value = reading.value(prefix + key)
        if isinstance(value, Unresolved):
            return Gate.SILENT
        if value is not None:
            return Gate.ON if value in ("lora", "lora_llm") else Gate.OFF
    return Gate.ON


def _targets(reading: Reading, prefix: str) -> None:
    """An expression replaces the names, and `all-linear` leaves vision towers out."""
    reading.keys((Key("target_regex", "target_modules", values.text),), prefix)
    if not reading.mentioned("target_modules"):
        reading.keys((_TARGETS,), prefix)
    if reading.counting and not reading.mentioned("target_modules"):
        reading.note("ms-swift's all-linear leaves vision towers and aligners out")


SWIFT = Trainer(
    name="ms-swift",
    version="4.6",
    aliases=("swift",),
    markers=(
        Marker(keys=("train_type", "lora_rank")),
        Marker(keys=("tuner_type", "lora_rank")),
        Marker(keys=("tuner_type", "model")),
        Marker(keys=("train_type", "model")),
        Marker(words=("swift",), keys=("model",), kinds=frozenset({Kind.SHELL})),
    ),
    keys=(
        Key("model", "base_model_name_or_path", values.text),
        Key("model_revision", "revision", values.text),
        Key("learning_rate", "learning_rate", values.rate),
        Key("optim", "optimizer", values.optimiser),
    ),
    sections=(
        Section(
            prefixes=("",),
            gate=_gate,
            keys=(
                Key("lora_rank", "r", values.rank),
                Key("lora_alpha", "lora_alpha", values.alpha),
                Key("lora_dropout", "lora_dropout", values.fraction),
                Key("target_parameters", "target_parameters", values.names, several=True),
                Key("modules_to_save", "modules_to_save", values.names, several=True),
                Key("lora_bias", "bias", values.text),
                Key("use_rslora", "use_rslora", values.flag),
                Key("use_dora", "use_dora", values.flag),
                Key("init_weights", "init_lora_weights", values.initialisation),
                Key("init_lora_weights", "init_lora_weights", values.initialisation),
            ),
            rule=_targets,
            defaults=(
                Default("r", 8, "lora_rank = 8"),
                *plain_defaults(lora_alpha=32, lora_dropout=0.05, target_modules="all-linear"),
                Default("bias", "none", "lora_bias = none"),
                *plain_defaults(use_rslora=False, use_dora=False),
            ),
        ),
    ),
)
