"""Say what each tensor is there for, which decides what values are lawful in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...adapter.keys import PREFIX, Key, Part, parse_key
from ...adapter.kinds import kind_of_module, layer_of
from .facts import Purpose, Role

_OF_KEY = {
    Part.A: Purpose.LORA_A,
    Part.B: Purpose.LORA_B,
    Part.B_BIAS: Purpose.BIAS,
    Part.EMBEDDING_A: Purpose.EMBEDDING_A,
    Part.EMBEDDING_B: Purpose.EMBEDDING_B,
    Part.MAGNITUDE: Purpose.MAGNITUDE,
    Part.TOKEN_DELTA: Purpose.TOKEN_DELTA,
    Part.BASE_BIAS: Purpose.BIAS,
    Part.BASE_WEIGHT: Purpose.EMBEDDING,
}
_NO_KEYS: Mapping[str, Key] = {}
_EMBEDDINGS = ("embed", "wte", "wpe", "lm_head")


def roles(names: Iterable[str], keys: Mapping[str, Key] = _NO_KEYS) -> dict[str, Role]:
    """Give the role of each tensor, by the names of PEFT and of transformers.

    `keys` are names that were taken apart before.
    """
    places: dict[str, tuple[str, str | None]] = {}
    return {name: _role(name, keys.get(name) or parse_key(name), places) for name in names}


def _role(name: str, key: Key | None, places: dict[str, tuple[str, str | None]]) -> Role:
    if key is None or key.part is Part.WHOLE:
        module, _, leaf = name.removeprefix(PREFIX).rpartition(".")
        return Role(
            _plain(module, leaf), kind_of_module(f"{module}.{leaf}"), module, layer_of(module)
        )
    nested = ".base_layer" * key.depth
    place = places.get(key.module)
    if place is None:
        place = places[key.module] = kind_of_module(key.module), layer_of(key.module)
    kind, layer = place
    return Role(_OF_KEY.get(key.part, Purpose.OTHER), kind + nested, key.module + nested, layer)


def _plain(module: str, leaf: str) -> Purpose:
    last = module.rpartition(".")[2]
    if leaf == "bias" or leaf.endswith("_bias"):
        return Purpose.BIAS
    if "norm" in last or last.startswith("ln"):
        return Purpose.NORM
    if any(mark in last for mark in _EMBEDDINGS):
        return Purpose.EMBEDDING
    return Purpose.WEIGHT if leaf in ("weight", "gate_up_proj", "down_proj") else Purpose.OTHER
