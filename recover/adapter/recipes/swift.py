"""ms-swift: its command line, YAML, and the `args.json` that it leaves. Facts from 4.6."""

from __future__ import annotations

from . import values
from .document import Kind, Unresolved
from .reading import Reading
from .table import WRITTEN, Default, Gate, Key, Marker, Section, Trainer, plain_defaults

_SHELL = frozenset({Kind.SHELL})
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
    if reading.value(f"{prefix}target_regex") is not None:
        reading.keys((Key("target_regex", "target_modules", values.text),), prefix)
    if not reading.mentioned("target_modules"):
        reading.keys((_TARGETS,), prefix)
    if reading.counting and not reading.mentioned("target_modules"):
        reading.note("ms-swift's all-linear leaves vision towers and aligners out")


SWIFT = Trainer(
    name="ms-swift",
    version="4.6",
    continues=("adapters", "resume_from_checkpoint", "mcore_adapters", "mcore_adapter"),
    aliases=("swift",),
    markers=(
        *(
            Marker(keys=(tuner, other), kinds=kinds, sure=kinds is WRITTEN)
            for tuner in ("train_type", "tuner_type")
            for other in ("lora_rank", "model")
            for kinds in (WRITTEN, _SHELL)
        ),
        Marker(program="swift", keys=("model",), kinds=_SHELL),
        Marker(program="megatron", keys=("tuner_type",), kinds=_SHELL),
        Marker(words=("swift.cli",), kinds=_SHELL),
        Marker(words=("swift/cli",), kinds=_SHELL),
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
