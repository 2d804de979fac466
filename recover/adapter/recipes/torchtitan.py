"""torchtitan: TOML, and `LoRAConverter.Config(...)` in a script."""

from __future__ import annotations

from . import values
from .document import Kind
from .gates import present
from .module_names import meta
from .reading import Reading
from .table import PLAIN_LORA, Default, Key, Marker, Section, Trainer

_TOML = frozenset({Kind.TOML, Kind.YAML, Kind.SHELL})


def _all(reading: Reading, _prefix: str) -> None:
    if reading.counting and not reading.mentioned("target_modules"):
        reading.note("torchtitan adapts every linear module, the output too, where none are named")


TORCHTITAN = Trainer(
    name="torchtitan",
    version="",
    markers=(
        Marker(keys=("lora", "job"), kinds=_TOML),
        Marker(keys=("lora", "training"), kinds=_TOML, sure=False),
        Marker(keys=("lora", "model.flavor"), kinds=_TOML),
        Marker(keys=("model.converters=lora",), kinds=_TOML),
        Marker(words=("torchtitan",), keys=("lora.rank",)),
        Marker(keys=("LoRAConverter.Config",), kinds=frozenset({Kind.PYTHON})),
    ),
    keys=(
        Key("model.hf_assets_path", "base_model_name_or_path", values.text),
        Key("checkpoint.initial_load_path", "base_model_name_or_path", values.text),
        Key("optimizer.lr", "learning_rate", values.rate),
        Key("optimizer.name", "optimizer", values.optimiser),
    ),
    sections=(
        Section(
            prefixes=("lora.", "LoRAConverter.Config."),
            gate=present(),
            keys=(
                Key("rank", "r", values.rank),
                Key("alpha", "lora_alpha", values.alpha),
                Key("target_modules", "target_modules", meta, several=True),
            ),
            rule=_all,
            defaults=(
                Default("r", 8, "rank = 8"),
                Default("lora_alpha", 16, "alpha = 16.0"),
                *PLAIN_LORA,
            ),
        ),
    ),
)
