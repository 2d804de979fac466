"""What kohya's scripts and diffusers write into a file's metadata, and kohya's command line."""

from __future__ import annotations

import re

from ....records.strict_json import Json
from . import values
from .document import Kind, too_large
from .gates import present
from .peft import SCHEMA
from .reading import Reading
from .table import PLAIN_LORA, Default, Key, Marker, Section, Stated, Trainer

_PREFIX = "lora_adapter_metadata."
_COMPONENT = re.compile(re.escape(_PREFIX) + r"((?:\w+\.)?)r")


_MAX_COMPONENTS = 16


def _rank(stated: Stated) -> Json:
    return stated.get("r")


def _unset_alpha(reading: Reading, prefix: str) -> None:
    """Where alpha is 0 or None the scripts take the rank for it."""
    for name in ("ss_network_alpha", "network_alpha"):
        for entry in reading.document.at(prefix + name):
            if not reading.stated("lora_alpha"):
                text = f"{name} of 0 or None is the rank"
                reading.default(Default("lora_alpha", _rank, text))
                reading.mention("lora_alpha")
                reading.note(f"{reading.document.origin(entry)}: no alpha of its own")


def _known(value: Json) -> Json:
    """The scripts write `None` for what was not given."""
    return None if value in ("None", "") else values.text(value)


def _rate(value: Json) -> Json:
    return None if value in ("None", "") else values.rate(value)


def _optional_rank(value: Json) -> Json:
    return None if value in ("None", "") else values.rank(value)


def _step(value: Json) -> Json:
    return None if value in ("None", "") else values.step(value)


def _other_network(reading: Reading, _prefix: str) -> None:
    for name in ("ss_network_module", "network_module"):
        for entry in reading.document.at(name):
            if "lycoris" in str(entry.value).lower():
                reading.note(f"{reading.document.origin(entry)}: LyCORIS, which has other methods")


KOHYA = Trainer(
    name="kohya",
    version="",
    continues=("dim_from_weights",),
    aliases=("sd-scripts", "kohya_ss"),
    markers=(
        Marker(keys=("ss_network_dim",)),
        Marker(keys=("network_dim", "network_module")),
        Marker(keys=("network_dim", "network_alpha"), sure=False),
    ),
    keys=(
        Key("ss_sd_model_name", "base_model_name_or_path", _known),
        Key("pretrained_model_name_or_path", "base_model_name_or_path", values.text),
        Key("ss_learning_rate", "learning_rate", _rate),
        Key("learning_rate", "learning_rate", values.rate),
        Key("ss_optimizer", "optimizer", _known),
        Key("ss_steps", "step", _step),
    ),
    sections=(
        Section(
            prefixes=("",),
            gate=present("ss_network_dim"),
            keys=(
                Key("ss_network_dim", "r", _optional_rank),
                Key("ss_network_alpha", "lora_alpha", values.alpha_or_none),
            ),
            rule=_unset_alpha,
            defaults=(Default("lora_alpha", 1, "network_alpha = 1"), *PLAIN_LORA),
        ),
        Section(
            prefixes=("",),
            gate=present("network_dim"),
            keys=(
                Key("network_dim", "r", values.rank),
                Key("network_alpha", "lora_alpha", values.alpha_or_none),
            ),
            rule=_unset_alpha,
            defaults=(Default("lora_alpha", 1, "network_alpha = 1"), *PLAIN_LORA),
        ),
    ),
    rule=_other_network,
)


def _components(reading: Reading, _prefix: str) -> None:
    """Read each component's configuration: `transformer.r`, `unet.r`, or `r` alone."""
    found = {
        match[1]
        for entry in reading.document.below(_PREFIX)
        if (match := _COMPONENT.fullmatch(entry.key))
    }
    if len(found) > _MAX_COMPONENTS:
        raise too_large(reading.document.name, f"more than {_MAX_COMPONENTS} components")
    for component in sorted(found):
        reading.keys(SCHEMA, f"{_PREFIX}{component}")
    if len(found) > 1:
        reading.note(f"{reading.document.name} has adapters of {len(found)} components")


DIFFUSERS = Trainer(
    name="diffusers",
    version="",
    markers=(Marker(keys=("lora_adapter_metadata",), kinds=frozenset({Kind.TENSORS})),),
    keys=(),
    sections=(Section(prefixes=("",), gate=present("lora_adapter_metadata"), keys=()),),
    rule=_components,
)
