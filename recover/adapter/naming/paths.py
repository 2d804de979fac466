"""Find by which change of their beginnings names that a model does not have become its own.

`model.layers.3.mlp.up_proj` may be `model.language_model.layers.3.mlp.up_proj` in the model at
hand. The changes are read off the names themselves; the one that makes most of them fit is taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from typing import NamedTuple

_FIRST_INDEX = re.compile(r"(?:\A|\.)\d+(?:\.|\Z)")
_GROUPS = 64  # that many different beginnings, and rounds; a model has a handful
_HITS = 64  # modules that end alike, beyond which an ending says nothing
_DEPTH = 32
_SCANNED = 2_000_000_000  # characters of known names that searches may pass over, about a second


class Move(NamedTuple):
    """A change of the beginning of names, and how many of them it makes fit."""

    before: str
    after: str
    fits: int

    def applied(self, name: str) -> str:
        """Give the changed name, which must begin with `before`."""
        return self.after + name[len(self.before) :]


def fitting_moves(
    strangers: Sequence[str], known: Set[str], least: int = 1
) -> tuple[list[Move], list[Move]]:
    """Give the changes under which strangers become known, best first, and those in doubt.

    Names must end alike in at least `least` segments: `weight` alone says nothing of a tensor.
    Two changes of the same beginning that fit equally many names are both in doubt: an adapter of
    a model's thinker may fit its talker too.
    """
    index = _Endings(known)
    moves: list[Move] = []
    doubtful: list[Move] = []
    left: list[str] = list(strangers)
    for group in _groups(strangers):
        waiting = [name for name in left if name.startswith(group)]
        if not waiting:
            continue
        ranked = sorted(
            (_weighed(move, waiting, known) for move in _candidates(waiting, index, least)),
            key=lambda move: (-move.fits, len(move.before) + len(move.after), move),
        )
        ranked = [move for move in ranked if move.fits]
        if not ranked:
            continue
        best = ranked[0]
        rivals = [m for m in ranked[1:] if m.fits == best.fits and m.before == best.before]
        if rivals:
            doubtful += [best, *rivals]
            continue
        moves.append(_weighed(best, left, known))
        left = [n for n in left if not (n.startswith(best.before) and best.applied(n) in known)]
    return moves, doubtful


def _groups(names: Sequence[str]) -> list[str]:
    """Give the beginnings up to the first index, most frequent first; whole names without one."""
    counted: dict[str, int] = {}
    for name in names:
        found = _FIRST_INDEX.search(name)
        head = name[: found.start() + 1] if found else name
        counted[head] = counted.get(head, 0) + 1
    return sorted(counted, key=lambda head: -counted[head])[:_GROUPS]


class _Endings:
    """Known names by their ends, within a limit on the work that hostile names can cause."""

    def __init__(self, known: Set[str]) -> None:
        self.known = known
        self.joined = "\n" + "\n".join(known) + "\n"
        self.left = _SCANNED

    def owners(self, end: str) -> list[str]:
        """Give the names that are `end`, or end with a dot and it; not all when they are many."""
        found: list[str] = []
        at = 0
        while len(found) < _HITS and self.left > 0:
            start, at = at, self.joined.find(f"{end}\n", at)
            self.left -= (at if at >= 0 else len(self.joined)) - start
            if at < 0:
                break
            if self.joined[at - 1] in ".\n":
                owner = self.joined[self.joined.rfind("\n", 0, at) + 1 : at + len(end)]
                found += [owner] if owner in self.known else []
            at += 1
        return found


def _candidates(waiting: Sequence[str], index: _Endings, least: int) -> set[tuple[str, str]]:
    samples = {waiting[0], waiting[len(waiting) // 2], waiting[-1]}
    return {change for sample in samples for change in _changes(sample, index, least)}


def _changes(name: str, index: _Endings, least: int) -> Iterator[tuple[str, str]]:
    """Give the changes for the longest end of a name that ends known names too."""
    found = _FIRST_INDEX.search(name)
    stop = name.rfind(".", 0, found.start()) + 1 if found else name.rfind(".") + 1
    start = 0
    for _ in range(_DEPTH):
        end = name[start:]
        if end.count(".") + 1 < least:
            return
        owners = index.owners(end)
        if owners:
            for owner in owners:
                yield name[:start], owner[: len(owner) - len(end)]
            return
        start = name.find(".", start) + 1
        if not start or start > stop:
            return


def _weighed(change: Move | tuple[str, str], names: Sequence[str], known: Set[str]) -> Move:
    before, after = change[0], change[1]
    cut = len(before)
    fits = sum(name.startswith(before) and after + name[cut:] in known for name in names)
    return Move(before, after, fits)
