"""Derive from a config.json what its model is made of, by the rules of its architecture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...errors import Unusable
from .architectures.build import build, tied
from .architectures.heads import Head, class_name, head_of
from .architectures.quantisation import quantisation_of
from .architectures.registry import FAMILIES
from .architectures.settings import Settings, appearance, mapped
from .model import Base, BaseSource, BaseTensor

_DTYPES: Mapping[str, str] = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
}
_OTHER_WAYS = (
    "Give the base's safetensors headers instead, by its folder or its Hub id, or install "
    "`reefkit[peft]` and use --load-check."
)


class UnknownArchitecture(Unusable):
    """No rules are known for the model that a config.json describes, and nothing is guessed."""


def supported() -> tuple[str, ...]:
    """Name the values of model_type that there are rules for, in alphabetical order."""
    return tuple(sorted(FAMILIES))


def architecture_of(config: Mapping[str, object]) -> str:
    """Read the model_type of a parsed config.json.

    Raises Unusable for a document without one, and UnknownArchitecture if there are no rules.
    """
    found = config.get("model_type")
    if not isinstance(found, str):
        if "peft_type" in config:
            raise Unusable(
                "This is the adapter_config.json of an adapter, not the config.json of a base.",
                remedy="Give the base model's own config.json.",
            )
        raise Unusable(
            f"model_type in config.json is {appearance(found)}, not the name of an architecture.",
            remedy=_OTHER_WAYS,
        )
    if found not in FAMILIES:
        raise UnknownArchitecture(
            f"There are no rules for model_type {appearance(found)}.", remedy=_OTHER_WAYS
        )
    return found


def base_from_config(
    config: Mapping[str, object],
    label: str,
    *,
    identity: str | None = None,
    revision: str | None = None,
) -> Base:
    """Derive the expected tensors, modules and fused parameters of a model.

    Tensors go by the names that transformers 4 gave them, which are those on the Hub and those
    that transformers 5 saves. Keys that are missing have the defaults of transformers 5.24.
    Raises UnknownArchitecture, and Unusable for a value that cannot be, naming its key.
    """
    model_type = architecture_of(config)
    family = FAMILIES[model_type]
    settings = Settings(config, family.keys)
    for key, value in family.refuses.items():
        if settings.value(key) == value:
            raise UnknownArchitecture(
                f"There are no rules for model_type {model_type} with {key}.", remedy=_OTHER_WAYS
            )
    head = head_of(family, settings)
    if head is None:
        raise UnknownArchitecture(
            f"There are no rules for the class that architectures in config.json names: "
            f"{appearance(class_name(settings))} of model_type {model_type}.",
            remedy=_OTHER_WAYS,
        )
    quantisation = quantisation_of(settings)
    parts = build(family, settings, head, _dtype(config, family.part), quantisation)
    text = settings.part(family.part)
    bare = head is Head.NONE
    return Base(
        label=label,
        source=BaseSource.CONFIG,
        model_type=model_type,
        tensors=parts.tensors,
        modules=parts.modules,
        parameters=parts.parameters,
        routers=parts.routers,
        converted_targets=family.converted,
        tied=tied(family, settings, head),
        input_embedding=family.embedding.removeprefix(family.stem if bare else ""),
        output_embedding="lm_head" if head is Head.LANGUAGE else None,
        classifier="score" if head is Head.SEQUENCE else None,
        vocab_size=text.number("vocab_size"),
        layers=text.number("num_hidden_layers"),
        experts=text.number(family.expert_count, 0) or None if family.expert_count else None,
        config=config,
        identity=identity,
        revision=revision,
        notes=quantisation.notes(),
    )


def with_tensors(base: Base, tensors: Mapping[str, BaseTensor]) -> Base:
    """Put the tensors that headers show in place of those that a config implies.

    Names, shapes and dtypes are then those of the headers; modules stay those of the rules.
    """
    return replace(base, tensors=tensors, source=BaseSource.HEADERS, notes=())


def _dtype(config: Mapping[str, object], part: str) -> str | None:
    for document in (config, mapped(config.get(part)) or {}):
        for key in ("dtype", "torch_dtype"):
            found = document.get(key)
            if isinstance(found, str):
                return _DTYPES.get(found.removeprefix("torch."))
    return None
