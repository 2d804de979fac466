"""Count what is covered: tensors by layer, experts by layer, modules that change the output."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ..adapter.expected.expectation import ExpectedModule
from ..adapter.keys import PREFIX, Part
from ..adapter.kinds import expert_of, in_order, layer_of
from ..formats.safetensors import Tensor
from .content.facts import TensorFacts
from .result import ExpertCoverage, LayerCoverage, Modules

OUTSIDE = "outside the layers"


def layers(required: Iterable[str], missing: Collection[str]) -> tuple[LayerCoverage, ...]:
    """Count the expected tensors of every layer, and those that are there."""
    expected: dict[str, int] = {}
    lacking: dict[str, list[str]] = {}
    lost = frozenset(missing)
    for name in required:
        layer = layer_of(name.removeprefix(PREFIX)) or OUTSIDE
        expected[layer] = expected.get(layer, 0) + 1
        if name in lost:
            lacking.setdefault(layer, []).append(name)
    return tuple(
        LayerCoverage(
            layer,
            expected[layer],
            expected[layer] - len(lacking.get(layer, ())),
            tuple(sorted(lacking.get(layer, ()), key=in_order)),
        )
        for layer in sorted(expected, key=lambda name: (name == OUTSIDE, in_order(name)))
    )


def experts(required: Iterable[str], bad: Collection[str]) -> tuple[ExpertCoverage, ...]:
    """Count the experts of every layer whose tensors are all there and fit."""
    known: dict[str, set[int]] = {}
    lacking: dict[str, set[int]] = {}
    wrong = frozenset(bad)
    for name in required:
        if ".experts." not in name or (expert := expert_of(name)) is None:
            continue
        layer = layer_of(name.removeprefix(PREFIX)) or OUTSIDE
        known.setdefault(layer, set()).add(expert)
        if name in wrong:
            lacking.setdefault(layer, set()).add(expert)
    return tuple(
        ExpertCoverage(
            layer,
            len(known[layer]),
            len(known[layer]) - len(lacking.get(layer, ())),
            tuple(sorted(lacking.get(layer, ()))),
        )
        for layer in sorted(known, key=in_order)
    )


def fused_experts(
    modules: Iterable[ExpectedModule],
    held: Mapping[str, int],
    found: Mapping[str, Tensor],
) -> tuple[ExpertCoverage, ...]:
    """Count the experts that the fused wrappers of each layer reach; `held` says how many it has.

    The first dimension of A is the rank times the number of experts, so that fewer ranks than
    expected mean that some experts have none. Which, the shape does not tell.
    """
    present: dict[str, int] = {}
    total: dict[str, int] = {}
    for module in modules:
        experts = held.get(module.name)
        if not experts:
            continue
        layer = layer_of(module.name) or OUTSIDE
        total[layer] = experts
        ranks = module.shapes[Part.A][0]
        reached = experts
        for name, shape in module.tensors().items():
            tensor = found.get(name)
            if tensor is None:
                reached = 0
            elif tensor.shape != shape:
                ranked = tensor.shape[:1] if name.endswith(Part.A.value) else tensor.shape[1:2]
                count = ranked[0] * experts // ranks if ranked else 0
                reached = min(reached, count if count < experts else 0)
        present[layer] = min(present.get(layer, experts), reached)
    return tuple(
        ExpertCoverage(
            layer,
            total[layer],
            present[layer],
            tuple(range(total[layer])) if present[layer] == 0 else (),
        )
        for layer in sorted(total, key=in_order)
    )


def effective(
    modules: Collection[ExpectedModule],
    bad: Collection[str],
    facts: Mapping[str, TensorFacts] | None,
) -> Modules:
    """Count the modules whose update is whole, fits, and, where content is known, is not zero."""
    wrong = frozenset(bad)
    if facts is None and not wrong:
        return Modules(len(modules), len(modules))
    count = 0
    for module in modules:
        names = module.tensors()
        if wrong.isdisjoint(names) and (facts is None or _acts(names, facts)):
            count += 1
    return Modules(len(modules), count)


def _acts(names: Iterable[str], facts: Mapping[str, TensorFacts]) -> bool:
    for name in names:
        fact = facts.get(name)
        if fact is None or not fact.whole or fact.nan or fact.inf:
            return False
        if fact.all_zero and not name.endswith(".bias"):
            return False
    return True
