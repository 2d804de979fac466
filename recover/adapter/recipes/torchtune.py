"""torchtune: YAML, and overrides of `tune run`. Its rank and alpha are those of the recipe only."""

from __future__ import annotations

from ....records.strict_json import Json
from . import values
from .document import Unresolved
from .module_names import meta
from .reading import Reading
from .table import PLAIN_LORA, Default, Gate, Key, Marker, Section, Trainer

_ATTENTION = Key("lora_attn_modules", "target_modules", meta, several=True)
# The builders leave the rest of the model out unless they are told otherwise.
_PARTS: tuple[tuple[Key, list[str]], ...] = (
    (
        Key("apply_lora_to_mlp", "target_modules", values.flag),
        ["gate_proj", "down_proj", "up_proj"],
    ),
    (Key("apply_lora_to_output", "target_modules", values.flag), ["lm_head"]),
)


def _targets(reading: Reading, prefix: str) -> None:
    """Put the targets together from the attention's list and the two switches."""
    added: list[Json] = []
    for key, modules in _PARTS:
        entries = reading.document.at(prefix + key.key)
        decided = [reading.converted(entry, key) for entry in entries]
        if None in decided or (not entries and not reading.document.complete):
            reading.note(f"target_modules depend on {prefix}{key.key}, which is not certain here")
            return
        if any(decided):
            added += modules
    for entry in reading.document.at(prefix + _ATTENTION.key):
        attention = reading.converted(entry, _ATTENTION)
        if isinstance(attention, list):
            reading.state("target_modules", [*attention, *added], reading.document.origin(entry))


def _gate(reading: Reading, prefix: str) -> Gate:
    component = reading.value(f"{prefix}_component_")
    if component is None or isinstance(component, Unresolved):
        return Gate.ON if reading.document.has(f"{prefix}lora_rank") else Gate.SILENT
    return Gate.ON if "lora" in str(component).lower() else Gate.OFF


TORCHTUNE = Trainer(
    name="torchtune",
    version="",
    markers=(
        Marker(keys=("model._component_=torchtune",)),
        Marker(keys=("model.lora_rank", "model.lora_alpha"), sure=False),
        Marker(keys=("model.lora_rank",), words=("tune",)),
        Marker(keys=("model.lora_attn_modules",), sure=False),
    ),
    keys=(
        Key("checkpointer.checkpoint_dir", "base_model_name_or_path", values.text),
        Key("optimizer.lr", "learning_rate", values.rate),
        Key("optimizer._component_", "optimizer", values.optimiser),
    ),
    sections=(
        Section(
            prefixes=("model.",),
            gate=_gate,
            keys=(
                Key("lora_rank", "r", values.rank),
                Key("lora_alpha", "lora_alpha", values.alpha),
                Key("lora_dropout", "lora_dropout", values.fraction),
                Key("use_dora", "use_dora", values.flag),
            ),
            rule=_targets,
            defaults=(Default("lora_dropout", 0.0, "lora_dropout = 0.0"), *PLAIN_LORA),
        ),
    ),
)
