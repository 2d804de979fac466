"""NeMo-RL: YAML and overrides, of the Automodel (DTensor) and the Megatron backend."""

from __future__ import annotations

from ....records.strict_json import Json
from . import values
from .gates import switched
from .module_names import megatron
from .reading import Reading
from .table import PLAIN_LORA, Default, Key, Marker, Section, Trainer

_ALL = Key("match_all_linear", "target_modules", values.flag)
_DEFAULTS = (
    Default("r", 8, "dim = 8"),
    Default("lora_alpha", 32, "alpha = 32"),
    Default("lora_dropout", 0.0, "dropout = 0.0"),
    *PLAIN_LORA,
)
_KEYS = (
    Key("dim", "r", values.rank),
    Key("alpha", "lora_alpha", values.alpha),
    Key("dropout", "lora_dropout", values.fraction),
)


def _names(value: Json) -> Json:
    """An empty list leaves the choice to another rule."""
    return values.words(value) if value else None


def _megatron(value: Json) -> Json:
    return megatron(value) if value else None


def _targets(reading: Reading, prefix: str) -> None:
    """Matching all linear modules goes before names; it reaches the output layer too."""
    decided = [reading.converted(e, _ALL) for e in reading.document.at(prefix + _ALL.key)]
    if any(decided):
        reading.note(f"{prefix}match_all_linear adapts every linear module, the output too")
    else:
        key = Key("target_modules", "target_modules", _names, several=True)
        reading.keys((key,), prefix)


NEMO_RL = Trainer(
    name="NeMo-RL",
    version="",
    own_file=True,
    markers=(
        Marker(keys=("policy.dtensor_cfg.lora_cfg",)),
        Marker(keys=("policy.automodel_cfg.lora_cfg",)),
        Marker(keys=("policy.megatron_cfg.peft",)),
        Marker(keys=("policy.model_name", "policy.dtensor_cfg")),
        Marker(keys=("policy.model_name", "policy.megatron_cfg")),
    ),
    keys=(
        Key("policy.model_name", "base_model_name_or_path", values.text),
        Key("policy.optimizer.kwargs.lr", "learning_rate", values.rate),
        Key("policy.megatron_cfg.optimizer.lr", "learning_rate", values.rate),
        Key("policy.optimizer.name", "optimizer", values.optimiser),
    ),
    sections=(
        Section(
            prefixes=("policy.dtensor_cfg.lora_cfg.", "policy.automodel_cfg.lora_cfg."),
            gate=switched("enabled"),
            keys=(*_KEYS, Key("exclude_modules", "exclude_modules", _names, several=True)),
            rule=_targets,
            defaults=_DEFAULTS,
        ),
        Section(
            prefixes=("policy.megatron_cfg.peft.",),
            gate=switched("enabled"),
            keys=(
                *_KEYS,
                Key("target_modules", "target_modules", _megatron, several=True),
                Key("exclude_modules", "exclude_modules", _megatron, several=True),
            ),
            defaults=_DEFAULTS,
        ),
    ),
)
