"""Find values that no training gives, by holding each tensor against its peers in other layers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from math import log10
from statistics import median
from typing import NamedTuple

from ...formats.safetensors_errors import shown
from .facts import Purpose, Role, TensorFacts

PEERS = 4
_DECADES = 3.0
_SPREADS = 8.0
_ABSURD = 1e10
_SUSPECT = 100.0  # times the median of the peers and times the tensor's own rms
# What is exceeded by no adapter or weight matrix in practice. Norms, biases, scales and masks may
# be large, so only their peers speak against them.
_PLAUSIBLE = {
    Purpose.LORA_A: 16.0,
    Purpose.LORA_B: 16.0,
    Purpose.EMBEDDING_A: 16.0,
    Purpose.EMBEDDING_B: 16.0,
    Purpose.WEIGHT: 64.0,
    Purpose.EMBEDDING: 256.0,
    Purpose.TOKEN_DELTA: 256.0,
    Purpose.MAGNITUDE: 1e4,
}
_PLAUSIBLE_OTHER = 1e5
_MAY_BE_ABSURD = {Purpose.BIAS, Purpose.OTHER}  # masks hold the lowest number of their dtype


class Outlier(NamedTuple):
    """A tensor whose largest value does not fit; `typical` is the median of `peers` others."""

    facts: TensorFacts
    typical: float | None
    peers: int
    certain: bool

    def sentence(self, element: int | None) -> str:
        """Say it; `element` is where the largest value is."""
        at = "" if element is None else f" at element {element:,}"
        against = (
            "no weight is that large"
            if self.typical is None
            else f"{self.peers:,} others of its kind have {self.typical:.3g} at most, as a rule"
        )
        return f"`{shown(self.facts.name)}` reaches {self.facts.max_abs:.3g}{at}: {against}."


def find_outliers(facts: Iterable[TensorFacts], roles: Mapping[str, Role]) -> list[Outlier]:
    """Give the tensors whose largest magnitude does not fit, certain ones and suspects.

    A flipped exponent bit multiplies a weight by 2**(2**k). Layers differ, and training moves their
    maxima by a decade or so; hence three rules that must all hold: three decades above the median
    of the kind, more than eight times the spread of the kind (median of the absolute deviations of
    the logarithm, which one wild layer cannot widen), and above what such a tensor plausibly
    holds. With fewer than four peers, and beside them, only an absurd magnitude counts. A maximum
    that is merely a hundred times both the peers' and the tensor's own rms is a suspect.
    """
    kinds: dict[tuple[Purpose, str, str], list[TensorFacts]] = defaultdict(list)
    for one in facts:
        if one.max_abs:
            role = roles[one.name]
            kinds[role.purpose, role.kind, one.tensor.dtype].append(one)
    found: list[Outlier] = []
    for (purpose, _, _), group in kinds.items():
        found += _outliers_of(purpose, group)
    return found


def _outliers_of(purpose: Purpose, group: list[TensorFacts]) -> list[Outlier]:
    found: list[Outlier] = []
    peers = len(group) - 1
    logs = [log10(one.max_abs) for one in group if one.max_abs]
    middle = median(logs)
    spread = median(abs(value - middle) for value in logs)
    limit = max(_DECADES, _SPREADS * spread)
    typical = 10**middle
    for one, value in zip(group, logs, strict=True):
        largest = one.max_abs or 0.0
        compared = peers >= PEERS
        absurd = largest > _ABSURD and purpose not in _MAY_BE_ABSURD
        beyond = value - middle >= limit and largest > _PLAUSIBLE.get(purpose, _PLAUSIBLE_OTHER)
        if absurd or (compared and beyond):
            against = compared and value - middle >= _DECADES
            found.append(Outlier(one, typical if against else None, peers, certain=True))
        elif compared and one.rms and min(largest / one.rms, largest / typical) >= _SUSPECT:
            found.append(Outlier(one, typical, peers, certain=False))
    return found
