"""Read a topology: from JSON, or from what torchrun and the command line say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields

from ...errors import Unusable
from ...records.names import printable
from .json_fields import Fields
from .model import Topology

_MOST_RANKS = 1 << 16


def read_topology(said: Fields, *, complete: bool) -> Topology:
    """Read a topology; sizes other than the world size count as 1 where they may be left out.

    Raises Unusable.
    """
    sizes: dict[str, int] = {}
    for field in fields(Topology):
        if complete or field.name == "world_size":
            sizes[field.name] = said.count(field.name, least=1)
        else:
            sizes[field.name] = said.optional_count(field.name, least=1) or 1
    if sizes["world_size"] > _MOST_RANKS:
        raise said.fault(f"has a `world_size` of more than {_MOST_RANKS:,}")
    said.nothing_else()
    return Topology(**sizes)


def check_accepted(topology: Topology, accepted: Sequence[Topology], stage: str) -> None:
    """Refuse a topology that a gate does not list. Raises Unusable."""
    if topology not in accepted:
        listed = "; ".join(map(str, accepted[:8])) + ("; …" if len(accepted) > 8 else "")
        raise Unusable(
            f"The gate of stage `{printable(stage)}` does not accept the topology {topology}.",
            remedy=f"It accepts: {listed}.",
        )


def rank_and_world(
    rank: int | None, world_size: int | None, environment: Mapping[str, str]
) -> tuple[int, int]:
    """Give rank and world size: as said, else RANK and WORLD_SIZE as torchrun sets them, else 0, 1.

    Raises Unusable where they make no sense.
    """
    if world_size is None:
        world_size = _number(environment, "WORLD_SIZE", 1)
    if rank is None:
        rank = _number(environment, "RANK", 0)
    if not 1 <= world_size <= _MOST_RANKS or not 0 <= rank < world_size:
        raise Unusable(
            f"There is no rank {rank} among {world_size}.",
            remedy="Ranks count from 0: give --rank and --world-size, or RANK and WORLD_SIZE.",
        )
    return rank, world_size


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name)
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise Unusable(f"{name} is `{printable(text[:40])}`, not a number.", remedy="Unset it.")
    return int(text)
