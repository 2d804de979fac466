"""`h3_conditioning_chain_replay`: a chain of operators, replayed case by case (RL-Kernel).

It states where each case first parts from the provider, and no verdict. That is worked out again
from the case's own stages, by bits and by tolerance; what fits neither contradicts itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....records.names import printable
from ..json_fields import Fields
from ..model import Drift
from .model import Claim, ForeignReport
from .source import REMEDY, Schema, Source, named, tracked

NAME = "h3_conditioning_chain_replay"
_STATED = (("first_drift", "chained_vs_provider"), ("first_isolated_drift", "isolated_vs_provider"))


def _read(source: Source) -> ForeignReport:
    said = source.said
    order = said.texts("stages")
    cases = said.objects("cases")
    if not cases:
        raise said.fault("has no case")
    faults: list[str] = []
    drift: Drift | None = None
    for number, case in enumerate(cases):
        stages = case.objects("stages")
        names = tuple(stage.text("stage") for stage in stages)
        if names != order:
            faults.append(f"case {number} has not the stages that the report lists")
        for key, comparison in _STATED:
            case.required(key)
            stated = case.optional_text(key)
            possible = _first(stages, comparison)
            if stated not in possible:
                faults.append(f"`{key}` of case {number} is not what its stages say")
            if key == "first_drift" and stated is not None and drift is None:
                reason = f"differs from the provider (case {number})"
                drift = Drift(
                    stated, f"case-{number}", None, None, None, stated, None, reason=reason
                )
        if not all(stage.flag("repeat_bitwise_equal") for stage in stages):
            faults.append(f"case {number} has a stage that does not repeat bit for bit")
    return ForeignReport(
        NAME,
        source.label,
        Claim.NONE,
        tracked(said),
        scope=f"{len(cases)} cases of {len(order)} stages",
        files=_weights(said),
        first_drift=drift,
        faults=tuple(faults[:8]),
        notes=(f"reference `{printable(said.text('reference_commit')[:80])}`",),
    )


def _first(stages: Sequence[Fields], comparison: str) -> set[str | None]:
    """Give where a case first differs: by bits, and by tolerance."""
    bits: str | None = None
    tolerance: str | None = None
    for stage in stages:
        found = stage.inner(comparison)
        name = stage.text("stage")
        if not found.flag("bitwise_equal") and bits is None:
            bits = name
        if not found.flag("within_tolerance") and tolerance is None:
            tolerance = name
    return {bits, tolerance}


def _weights(said: Fields) -> dict[str, str]:
    weights = said.mapping("weights_sha256")
    each = Fields(weights, f"`weights_sha256` of {said.label}", REMEDY)
    return {name: each.inner(name).sha256("sha256") for name in weights}


SCHEMA = Schema(NAME, named(NAME), _read)
