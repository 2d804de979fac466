"""A base whose layers are repeated, as `layer_replication` of PEFT makes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from ...base.model import Base, Module

_MOST = 10_000
_PLACES = ("layers", "h", "encoder.layer")  # where peft 0.21 looks for layers


def replication_fault(base: Base, config: Mapping[str, object]) -> str | None:
    """Say what peft 0.21 raises for `layer_replication` on this base; None where it does not.

    Of `replicate_layers`, and the value must be of the right form.
    """
    plan = config.get("layer_replication")
    if not isinstance(plan, list) or not plan:
        return None
    layers: dict[str, set[int]] = {}
    for name in base.modules:
        before, number, _ = _split_layer(name)
        if number is not None:
            layers.setdefault(before[:-1], set()).add(number)
    inner = {place: numbers for place, numbers in layers.items() if _is_found(place)}
    if not inner:
        return (
            "ValueError: Could not locate the layers attribute in the model. Expected Llama, Bert "
            "or Falcon compatible architectures."
        )
    count = max(max(numbers) for numbers in inner.values()) + 1
    ends = [end for start, end in cast("list[list[int]]", plan) if end > start]
    return f"IndexError: index {count} is out of range" if max(ends, default=0) > count else None


def _is_found(place: str) -> bool:
    while place.startswith("model."):
        place = place.removeprefix("model.")
    return place in _PLACES


def replicated(base: Base, config: Mapping[str, object]) -> Base:
    """Give the base with its layers repeated as `layer_replication` says: [[0, 16], [8, 24]]."""
    plan = config.get("layer_replication")
    if not isinstance(plan, list) or not plan:
        return base
    order: list[int] = []
    for piece in cast("list[object]", plan):
        if not isinstance(piece, list) or len(cast("list[object]", piece)) != 2:
            return base
        start, stop = cast("list[object]", piece)
        if not isinstance(start, int) or not isinstance(stop, int) or stop - start > _MOST:
            return base
        order += range(start, stop)
    modules: dict[str, Module] = {}
    by_layer: dict[tuple[str, int], list[tuple[str, Module]]] = {}
    for module in base.modules.values():
        before, number, after = _split_layer(module.name)
        if number is None:
            modules[module.name] = module
        else:
            by_layer.setdefault((before, number), []).append((after, module))
    for before in dict.fromkeys(prefix for prefix, _ in by_layer):
        for new, old in enumerate(order[:_MOST]):
            for after, module in by_layer.get((before, old), ()):
                name = f"{before}{new}{after}"
                modules[name] = module._replace(name=name)
    return replace(base, modules=modules, layers=len(order))


def _split_layer(name: str) -> tuple[str, int | None, str]:
    segments = name.split(".")
    for place, segment in enumerate(segments):
        if segment.isascii() and segment.isdigit() and place:
            after = "".join(f".{s}" for s in segments[place + 1 :])
            return ".".join(segments[:place]) + ".", int(segment), after
    return name, None, ""
