"""TRL: command line, YAML for TrlParser, and `ModelConfig(...)` in a script. Facts from 1.16."""

from __future__ import annotations

from . import values
from .document import Kind
from .gates import switched
from .reading import Reading
from .table import WRITTEN, Key, Marker, Section, Trainer, plain_defaults


def _targets(reading: Reading, _prefix: str) -> None:
    if reading.counting and not reading.mentioned("target_modules"):
        reading.note("PEFT chooses target_modules by the model's architecture where none are named")


TRL = Trainer(
    name="TRL",
    version="1.16",
    markers=(
        Marker(keys=("use_peft",), kinds=WRITTEN),
        Marker(keys=("use_peft",), sure=False),
        Marker(keys=("lora_r", "model_name_or_path"), sure=False),
        *(
            Marker(words=(words,), keys=(key,), kinds=frozenset({Kind.SHELL}))
            for words in ("trl.scripts", "trl/scripts", "examples/scripts")
            for key in ("model_name_or_path", "use_peft")
        ),
        Marker(program="trl", keys=("model_name_or_path",), kinds=frozenset({Kind.SHELL})),
        Marker(program="trl", keys=("use_peft",), kinds=frozenset({Kind.SHELL})),
        Marker(keys=("ModelConfig",), words=("trl",), kinds=frozenset({Kind.PYTHON})),
    ),
    prefixes=("", "ModelConfig.", "SFTConfig.", "DPOConfig.", "GRPOConfig."),
    keys=(
        Key("model_name_or_path", "base_model_name_or_path", values.text),
        Key("model_revision", "revision", values.text),
        Key("learning_rate", "learning_rate", values.rate),
        Key("optim", "optimizer", values.optimiser),
    ),
    sections=(
        Section(
            prefixes=("", "ModelConfig."),
            gate=switched("use_peft"),
            keys=(
                Key("lora_r", "r", values.rank),
                Key("lora_alpha", "lora_alpha", values.alpha),
                Key("lora_dropout", "lora_dropout", values.fraction),
                Key("lora_target_modules", "target_modules", values.words, several=True),
                Key("lora_target_parameters", "target_parameters", values.names, several=True),
                Key("lora_modules_to_save", "modules_to_save", values.names, several=True),
                Key("lora_task_type", "task_type", values.task),
                Key("use_rslora", "use_rslora", values.flag),
                Key("use_dora", "use_dora", values.flag),
            ),
            rule=_targets,
            defaults=(
                *plain_defaults(r=16, lora_alpha=32, lora_dropout=0.05, task_type="CAUSAL_LM"),
                *plain_defaults(bias="none", use_rslora=False, use_dora=False),
            ),
        ),
    ),
)
