"""How many different people stand behind some keys."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from .allowed_signers import AllowedSigner
from .pattern_list import is_literal

ANYBODY = ""  # stands for whoever a pattern with a wildcard may mean


def literal_principals(signers: Iterable[AllowedSigner]) -> frozenset[str]:
    """Give all principals that a file names without wildcards."""
    names = (name for line in signers for name in line.principals.split(","))
    return frozenset(name for name in names if is_literal(name))


def owners_by_patterns(line: AllowedSigner, principals: Iterable[str]) -> frozenset[str]:
    """Give those of the principals whom a line names.

    All lines with a wildcard have an owner in common: they may well mean one person.
    """
    named = {name for name in principals if line.is_named(name)}
    parts = line.principals.split(",")
    if any(part and not part.startswith("!") and not is_literal(part) for part in parts):
        named.add(ANYBODY)
    return frozenset(named)


def count_signers(owners: Collection[frozenset[str]]) -> int:
    """Count how many keys, given the possible owners of each, have no owner in common.

    The most that can be chosen so: a key that several people share never lowers the count.
    """
    distinct = {each for each in owners if each}
    # Of two sets of which one holds the other, the smaller one can always take its place.
    least = [each for each in distinct if not any(other < each for other in distinct)]
    return _most_disjoint(sorted(least, key=lambda each: (len(each), sorted(each))))


def _most_disjoint(sets: list[frozenset[str]]) -> int:
    if not sets:
        return 0
    first, rest = sets[0], sets[1:]
    apart = [each for each in rest if not each & first]
    with_first = 1 + _most_disjoint(apart)
    if len(first) == 1 or len(apart) == len(rest):
        return with_first
    return max(with_first, _most_disjoint(rest))
