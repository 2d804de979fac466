"""A base whose layers are repeated, as `layer_replication` of PEFT makes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from ...base.model import Base, Module

_MOST = 10_000


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
