"""Work out which modules of a base a PEFT configuration targets, by PEFT's own rules.

Follows `check_target_module_exists` and `_inject_parameters` of peft 0.21.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import cast

from ...errors import Unusable
from ..base.model import Base, ExpertParameter, Module
from .patterns import (
    ends_with_any,
    full_match,
    last_group_at_start,
    within_any,
)

_ANY_LAYER = r".*?\.[^.]*\.(\d+)\."


def targeted_modules(config: Mapping[str, object], base: Base) -> tuple[Module, ...]:
    """Give the modules that the configuration puts a LoRA on, in the base's order.

    Raises Unusable for values that PEFT cannot use either.
    """
    selected = selects(config, base.all_linear)
    return tuple(module for module in base.modules.values() if selected(module.name))


def selects(config: Mapping[str, object], all_linear: Iterable[str] = ()) -> Callable[[str], bool]:
    """Tell of a module's name whether the configuration puts a LoRA on it.

    `all_linear` is what "all-linear" stands for. Raises Unusable as `targeted_modules` does.
    """
    targets = config.get("target_modules")
    if isinstance(targets, str) and targets.lower() == "all-linear":
        selected: Callable[[str], bool] = frozenset(all_linear).__contains__
    else:
        selected = _by_names(_names(targets), config) if _is_list(targets) else _selector(targets)
    excluded = _selector(config.get("exclude_modules"))
    saved = _saved(config)
    return lambda name: selected(name) and not excluded(name) and not saved(name)


def targeted_parameters(config: Mapping[str, object], base: Base) -> tuple[ExpertParameter, ...]:
    """Give the expert parameters that `target_parameters` names, in the base's order."""
    value = config.get("target_parameters")
    names = frozenset(_names(value)) if value else frozenset[str]()
    return tuple(p for p in base.parameters.values() if ends_with_any(p.name, names))


def _by_names(names: list[str], config: Mapping[str, object]) -> Callable[[str], bool]:
    """Select by whole names, or by ends of names within the layers that are wanted."""
    exactly = frozenset(names)
    in_layer = _layer_filter(config)
    return lambda name: name in exactly or (ends_with_any(name, exactly) and in_layer(name))


def _is_list(value: object) -> bool:
    return isinstance(value, list)


def _always(_: str) -> bool:
    return True


def _never(_: str) -> bool:
    return False


def _selector(value: object) -> Callable[[str], bool]:
    if not value:
        return _never
    if isinstance(value, str):
        return full_match(value)
    names = frozenset(_names(value))
    return lambda name: ends_with_any(name, names)


def _names(value: object) -> list[str]:
    items = cast("list[object]", value) if isinstance(value, list) else [None]
    names = [item for item in items if isinstance(item, str)]
    if len(names) != len(items):
        raise Unusable("Targets are a list of names or one pattern, and these are neither.")
    return names


def _saved(config: Mapping[str, object]) -> Callable[[str], bool]:
    """Tell what lies in a module that is saved whole, which never gets a LoRA."""
    value = config.get("modules_to_save")
    if not value:
        return _never
    return within_any(_names(value))


def _layer_filter(config: Mapping[str, object]) -> Callable[[str], bool]:
    wanted = config.get("layers_to_transform")
    if wanted is None or wanted == []:
        return _always
    layers = _layers(wanted)
    pattern = config.get("layers_pattern")
    patterns = [pattern] if pattern and isinstance(pattern, str) else _names(pattern or list[str]())
    searches = [last_group_at_start(rf"(?:^|.*?\.){p}\.(\d+)\.", p) for p in patterns] or [
        last_group_at_start(_ANY_LAYER, _ANY_LAYER)
    ]

    def in_layer(name: str) -> bool:
        found = next((layer for search in searches if (layer := search(name)) is not None), "")
        return found != "" and int(found) in layers

    return in_layer


def _layers(wanted: object) -> frozenset[int]:
    items = cast("list[object]", wanted) if isinstance(wanted, list) else [wanted]
    layers = frozenset(item for item in items if isinstance(item, int))
    if len(layers) != len(items) and not all(isinstance(item, int) for item in items):
        raise Unusable("layers_to_transform is a number of a layer or a list of such numbers.")
    return layers
