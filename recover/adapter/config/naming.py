"""Name a set of modules in as few words as PEFT's matching of endings allows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...base.model import Base
from ..expected.whole import parameters_in_memory
from ..patterns import suffixes


def modules_in_memory(base: Base) -> frozenset[str]:
    """Name every module of a base that holds a parameter, norms included."""
    return frozenset(base.modules) | {
        name.rpartition(".")[0] for name in parameters_in_memory(base)
    }


def shortest_endings(names: Iterable[str], everything: Iterable[str]) -> list[str]:
    """Give endings that by PEFT's rule for `target_modules` select these names and no others.

    For each name the shortest ending that fits only wanted ones; the full name, if no ending does.
    """
    wanted = dict.fromkeys(names)
    unwanted = {end for name in everything if name not in wanted for end in suffixes(name)}
    chosen: dict[str, None] = {}
    for name in wanted:
        free = (end for end in suffixes(name) if end not in unwanted)
        chosen[min(free, key=len, default=name)] = None
    return list(chosen)


def shortest_tails(names: Iterable[str], everything: Iterable[str]) -> list[str]:
    """Give endings that select these names by PEFT's rule for `modules_to_save`.

    That rule compares characters, not segments, and looks at containers, too: `head` takes
    `lm_head` and `my_head.out` (`_set_trainable` of peft 0.21).
    """
    wanted = dict.fromkeys(names)
    others = {path for name in everything for path in _paths(name)} - wanted.keys()
    chosen: dict[str, None] = {}
    for name in wanted:
        free = (end for end in suffixes(name) if not any(o.endswith(end) for o in others))
        chosen[min(free, key=len, default=name)] = None
    return [end for end in chosen if not any(end != o and end.endswith(o) for o in chosen)]


def _paths(name: str) -> Iterator[str]:
    while name:
        yield name
        name = name.rpartition(".")[0]
