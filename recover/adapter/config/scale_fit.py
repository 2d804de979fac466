"""Join the scales that were fitted to parts of a merged model, each with its error."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

from ....errors import DoesNotHold
from ....records.names import printable
from .measured_scale import ScaleProof

_SIGMAS = 6.0


class Fit(NamedTuple):
    """The scale of a module or a part of it, its standard error, and the cosine."""

    module: str
    scale: float
    error: float
    cosine: float
    unchanged: bool = False


def joined(name: str, parts: list[Fit]) -> Fit:
    """Give the fit of a module from those of its experts. Raises DoesNotHold where they differ."""
    mean, error = _mean(parts)
    for part in parts:
        if not _agrees(part, mean):
            raise DoesNotHold(
                f"The experts of {printable(name)} were merged by different factors, {mean:.6g} "
                f"and {part.scale:.6g}: no adapter has those.",
                remedy="Name a model that this adapter was merged into as a whole.",
            )
    return Fit(name, mean, error, min(part.cosine for part in parts))


def scale_of(
    fits: list[Fit], silent: frozenset[str], ranks: Mapping[str, int], label: str
) -> ScaleProof:
    """Average the scales of modules of one rank where they agree within their errors."""
    scales: dict[str, float] = {}
    tolerance = 1e-9
    for group in _groups(fits, ranks):
        mean, error = _mean(group)
        agree = all(_agrees(fit, mean) for fit in group)
        for fit in group:
            scales[fit.module] = mean if agree else fit.scale
            spread = error if agree else fit.error
            tolerance = max(tolerance, (_SIGMAS * spread) / abs(mean) + 1e-6)
    cosine = min(fit.cosine for fit in fits)
    measured = [fit.scale for fit in fits]
    return ScaleProof(
        scales,
        tolerance,
        f"{label} less the base is B·A times {_range(measured)}, cosine {cosine:.6f} at least",
        silent,
    )


def _agrees(fit: Fit, mean: float) -> bool:
    return abs(fit.scale - mean) <= _SIGMAS * fit.error + 1e-5 * abs(mean)


def _groups(fits: list[Fit], ranks: Mapping[str, int]) -> Iterator[list[Fit]]:
    """Part the modules of each rank where there is a gap between scales that no error bridges."""
    by_rank: dict[int, list[Fit]] = defaultdict(list)
    for fit in sorted(fits, key=lambda fit: fit.scale):
        by_rank[ranks[fit.module]].append(fit)
    for ordered in by_rank.values():
        group = ordered[:1]
        for last, fit in pairwise(ordered):
            near = _SIGMAS * (last.error + fit.error) + 1e-5 * abs(fit.scale)
            if fit.scale - last.scale > near:
                yield group
                group = []
            group.append(fit)
        yield group


def _mean(group: list[Fit]) -> tuple[float, float]:
    """Weigh by the inverse square of the errors; give the mean and its error."""
    weights = [1 / max(fit.error, 1e-9 * abs(fit.scale), 1e-300) ** 2 for fit in group]
    total = sum(weights)
    mean = sum(w * fit.scale for w, fit in zip(weights, group, strict=True)) / total
    return mean, math.sqrt(1 / total)


def _range(values: list[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:.6g}" if math.isclose(low, high, rel_tol=1e-6) else f"{low:.6g} to {high:.6g}"
