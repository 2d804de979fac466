"""Group what repeats in every layer: `layers.7.mlp.experts.3.up_proj` is one kind of module."""

from __future__ import annotations

import re

_INDEX = re.compile(r"(?<=\.)\d+(?=\.|\Z)")
_FIRST_INDEX = re.compile(r"(?:\A|.*?\.)(\d+)(?=\.|\Z)", re.DOTALL)
_EXPERT = re.compile(r"\.experts\.(\d+)\.")


def kind_of_module(name: str) -> str:
    """Replace every index by `*`: `model.layers.*.mlp.experts.*.up_proj`."""
    return _INDEX.sub("*", name)


def layer_of(name: str) -> str | None:
    """Give the part of a name up to its first index: `model.layers.7`; None without one."""
    found = _FIRST_INDEX.match(name)
    return name[: found.end()] if found else None


def expert_of(name: str) -> int | None:
    """Give the number of the expert that a name belongs to; None for others."""
    found = _EXPERT.search(name)
    return int(found[1]) if found else None


def in_order(name: str) -> tuple[object, ...]:
    """Sort key that puts layer 9 before layer 10."""
    return tuple(
        (0, int(piece), "")
        if piece.isascii() and piece.isdigit() and len(piece) < 20
        else (1, 0, piece)
        for piece in name.split(".")
    )
