"""Tinker: the cookbook's command line, its client in a script, and a training run's record.

The `adapter_config.json` of a downloaded checkpoint has PEFT's keys. Alpha is 32 whatever the rank.
"""

from __future__ import annotations

from . import values
from .document import Kind
from .gates import present
from .reading import Reading
from .table import PLAIN_LORA, WRITTEN, Default, Gate, Key, Marker, Section, Trainer

_ALPHA = Default("lora_alpha", 32, "lora_alpha = 32 for every rank")
_RANK = Default("r", 32, "lora_rank = 32")
_CLIENTS = ("create_lora_training_client.", "create_lora_training_client_async.")
_BASE = (
    Key("model_name", "base_model_name_or_path", values.text),
    Key("base_model", "base_model_name_or_path", values.text),
    Key("learning_rate", "learning_rate", values.rate),
)


def _cookbook(reading: Reading, _prefix: str) -> Gate:
    return Gate.SILENT if reading.document.kind is Kind.PYTHON else Gate.ON


TINKER = Trainer(
    name="Tinker",
    version="",
    markers=(
        Marker(words=("tinker_cookbook",), kinds=frozenset({Kind.SHELL})),
        Marker(keys=("base_model", "is_lora"), kinds=WRITTEN),
        Marker(keys=("base_model", "lora_config.rank")),
        Marker(keys=("create_lora_training_client",), kinds=frozenset({Kind.PYTHON})),
        Marker(keys=("create_lora_training_client_async",), kinds=frozenset({Kind.PYTHON})),
    ),
    prefixes=("", *_CLIENTS),
    keys=_BASE,
    sections=(
        Section(
            prefixes=("",),
            gate=_cookbook,
            keys=(
                Key("lora_rank", "r", values.rank),
                Key("lora_config.rank", "r", values.rank),
                Key("lora_alpha", "lora_alpha", values.alpha),
            ),
            defaults=(_RANK, _ALPHA, *PLAIN_LORA),
        ),
        Section(
            prefixes=_CLIENTS,
            gate=present(),
            keys=(Key("rank", "r", values.rank),),
            defaults=(_RANK, _ALPHA, *PLAIN_LORA),
        ),
    ),
)
