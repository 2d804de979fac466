"""unsloth: the arguments of `from_pretrained` and `get_peft_model` in a script."""

from __future__ import annotations

from . import values
from .document import Kind
from .gates import present
from .peft import LORA_FIELDS
from .table import Default, Key, Marker, Section, Trainer, plain_defaults, simple

_CLASSES = ("FastLanguageModel", "FastModel", "FastVisionModel", "FastTextModel")
_DEFAULTS = (
    *plain_defaults(r=16, lora_alpha=16, lora_dropout=0.0, bias="none"),
    *plain_defaults(use_rslora=False, use_dora=False),
)
_KEYS = simple(LORA_FIELDS)

UNSLOTH = Trainer(
    name="unsloth",
    version="",
    markers=(
        Marker(words=("unsloth",), kinds=frozenset({Kind.PYTHON})),
        *(
            Marker(keys=(f"{name}.get_peft_model",), kinds=frozenset({Kind.PYTHON}))
            for name in _CLASSES
        ),
    ),
    prefixes=(
        *(f"{name}.from_pretrained." for name in _CLASSES),
        "SFTConfig.",
        "GRPOConfig.",
        "TrainingArguments.",
    ),
    keys=(
        Key("model_name", "base_model_name_or_path", values.text),
        Key("0", "base_model_name_or_path", values.text),
        Key("revision", "revision", values.text),
        Key("learning_rate", "learning_rate", values.rate),
        Key("optim", "optimizer", values.optimiser),
    ),
    sections=(
        Section(
            prefixes=("FastLanguageModel.get_peft_model.",),
            gate=present(),
            keys=_KEYS,
            defaults=(
                *_DEFAULTS,
                Default(
                    "target_modules",
                    ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
                    "target_modules of FastLanguageModel.get_peft_model",
                ),
            ),
        ),
        Section(
            prefixes=tuple(f"{name}.get_peft_model." for name in _CLASSES[1:]),
            gate=present(),
            keys=_KEYS,
            defaults=_DEFAULTS,
        ),
    ),
)
