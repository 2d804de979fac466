"""What the values of an adapter prove about its training, and what they refute."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from math import sqrt
from typing import NamedTuple

from ...formats.safetensors_errors import shown
from ..result import Caution
from .facts import Claims, Purpose, Role, TensorFacts
from .zero_tensors import starts_at_zero

# Relative error of one rounding to nearest. Eight-bit files are left out: their scales are unknown.
_ROUNDING = {"F64": 2.0**-53, "F32": 2.0**-24, "F16": 2.0**-11, "BF16": 2.0**-8}
# Half the distance of the smallest numbers, which are spaced evenly: what rounding adds at most.
_SMALLEST = {"F16": 2.0**-25}
_ARITHMETIC = 1e-5  # of a single precision Adam step: powers, a root, a division
_COARSE_STATE = 2.0  # a step whose moments are kept in 16 bits: the second one may lag behind
_ADAM = {
    "adam",
    "adamw",
    "adamw_hf",
    "adamw_torch",
    "adamw_torch_fused",
    "adamw_torch_xla",
    "adamw_apex_fused",
    "fused_adam",
    "fusedadam",
    "paged_adamw",
    "paged_adamw_32bit",
}
_MOST_STEPS = 1_000_000  # the bound is a sum over steps
_MOST_RATE = 1000.0
_MOST_F16 = 65504.0
_BETAS = (0.9, 0.999)


class TrainingState(NamedTuple):
    """What follows for the training; `refuted` where a claim cannot be true."""

    evidence: dict[str, object]
    cautions: list[Caution]
    refuted: bool


def step_bound(step: int, betas: tuple[float, float] = _BETAS) -> float:
    """Bound |m̂| / sqrt(v̂) of Adam at a step (from 1) for any sequence of gradients.

    With a = 1 - beta1, b = 1 - beta2 and weights of past gradients g[i], k = t - i steps ago:
    m = a sum(beta1**k g) and v = b sum(beta2**k g**2). Cauchy and Schwarz give
    m**2 <= a**2 sum((beta1**2 / beta2)**k) v / b, with equality where every gradient is
    beta2 / beta1 times the one before. The bias corrections are then put in. It is 1 at step 1,
    1.76 at step 60, and tends to 7.27 for 0.9 and 0.999: more than the 3.16 of Kingma and Ba, which
    covers only a single gradient that is not zero. Needs beta1**2 < beta2.
    """
    beta1, beta2 = betas
    ratio = beta1**2 / beta2
    past = (1 - ratio**step) / (1 - ratio)
    peak = (1 - beta1) / sqrt(1 - beta2) * sqrt(past)
    return peak * sqrt(1 - beta2**step) / (1 - beta1**step)


def adamw_bound(steps: int, learning_rate: float, dtype: str = "F32") -> float:
    """Bound the magnitude after so many steps from zero, whatever the gradients.

    Weight decay only shrinks it, and so do epsilon, clipping and warm-up; `learning_rate` is the
    largest that was used. Values of 16 bits are allowed their roundings at each step, and after
    the first one optimizer moments of 16 bits too.
    """
    exact = dtype in ("F32", "F64")
    rounding = _ROUNDING[dtype]
    bound = 0.0
    for step in range(1, steps + 1):
        coarse = 1.0 if exact else (1 + 4 * rounding if step == 1 else _COARSE_STATE)
        bound = (bound + learning_rate * step_bound(step) * coarse) * (1 + rounding)
        bound += _SMALLEST.get(dtype, 0.0)
    return bound * (1 + _ARITHMETIC)


def judge_training(
    facts: Iterable[TensorFacts], roles: Mapping[str, Role], claims: Claims, start: str | None
) -> TrainingState:
    """Tell step 0 from trained, and hold a claimed step, learning rate and optimizer against B.

    `start` is what `judge_zero_tensors` found.
    """
    known = [one for one in facts if one.whole and one.elements and one.max_abs is not None]
    b = [one for one in known if roles[one.name].purpose is Purpose.LORA_B]
    a = [one for one in known if roles[one.name].purpose is Purpose.LORA_A]
    state = TrainingState({}, [], False)
    if not b or not a:
        return state
    state.evidence["start"] = start
    state.evidence["max_abs_lora_A"] = max(one.max_abs or 0.0 for one in a)
    state.evidence["max_abs_lora_B"] = max(one.max_abs or 0.0 for one in b)
    if start == "zero-B":
        state.evidence["step_0"] = _initial(a)
    return _held_against(state, b, claims)


def _initial(a: list[TensorFacts]) -> dict[str, object]:
    """Hold A against PEFT's kaiming_uniform_(a=sqrt(5)): uniform up to 1 / sqrt(inputs)."""
    reach, name = max((_reach(one), one.name) for one in a)
    consistent = all(_reach(one) <= 1 + 2 * _ROUNDING.get(one.tensor.dtype, 2.0**-3) for one in a)
    return {
        "kaiming_consistent": consistent,
        "max_abs_A_times_sqrt_inputs": reach,
        "tensor": shown(name),
    }


def _reach(one: TensorFacts) -> float:
    return (one.max_abs or 0.0) * sqrt(one.inputs)


def _held_against(state: TrainingState, b: list[TensorFacts], claims: Claims) -> TrainingState:
    """Refute a claim that the largest B exceeds; say why where the claim cannot be judged."""
    step, rate = claims.step, claims.learning_rate
    if step is None:
        return state
    reason = _not_judged(claims)
    if reason is not None:
        state.evidence["adamw_bound"] = {"judged": False, "reason": reason}
        return state
    judged = [one for one in b if one.tensor.dtype in _ROUNDING]
    limits = {
        dtype: adamw_bound(step, rate or 0.0, dtype)
        for dtype in sorted({dtype for one in judged for dtype in _trained_in(one)})
    }
    bounds = {one.name: max(limits[dtype] for dtype in _trained_in(one)) for one in judged}
    beyond = [one for one in judged if (one.max_abs or 0.0) > bounds[one.name]]
    state.evidence["adamw_bound"] = {
        "judged": bool(judged),
        "bounds": limits,
        "tensors_beyond": len(beyond),
        "refuted": bool(beyond),
    }
    if not beyond:
        return state
    worst = max(beyond, key=lambda one: one.max_abs or 0.0)
    where = f"after {step:,} steps of AdamW with learning rates up to {rate or 0.0:.3g}"
    message = (
        f"The claim is refuted: no lora_B that began at zero can exceed "
        f"{bounds[worst.name]:.6g} {where if step else 'at step 0'}, and "
        f"`{shown(worst.name)}` has {worst.max_abs:.6g} ({len(beyond):,} tensors are beyond)."
    )
    state.cautions.append(Caution("claim-refuted", message))
    return state._replace(refuted=True)


def _trained_in(one: TensorFacts) -> tuple[str, ...]:
    """Name the dtypes that the largest value may come from: PEFT saves as F32 what it loaded.

    Of values that single precision made, one in 65,536 fits BF16 by chance.
    """
    own, largest = one.tensor.dtype, one.max_abs or 0.0
    if own not in ("F64", "F32") or not 0 < largest < _MOST_F16:
        return (own,)
    single = struct.pack("<f", largest)
    is_single = struct.unpack("<f", single)[0] == largest
    is_half = struct.unpack("<e", struct.pack("<e", largest))[0] == largest
    coarser = (("BF16", is_single and not any(single[:2])), ("F16", is_half))
    return (own, *(dtype for dtype, fits in coarser if fits))


def _not_judged(claims: Claims) -> str | None:
    """Say why a claimed step cannot be held against the values; None when it can."""
    if not starts_at_zero(claims.init):
        return f"init_lora_weights {shown(str(claims.init))} does not start B at zero"
    if claims.step == 0:
        return None
    if claims.step is None or not 0 < claims.step <= _MOST_STEPS:
        return "the step is no plausible number"
    if claims.learning_rate is None:
        return "no learning rate is claimed"
    if not 0 <= claims.learning_rate <= _MOST_RATE:
        return "the learning rate is no plausible number"
    if (claims.optimizer or "").lower() not in _ADAM:
        return "the claimed optimizer is not a full-precision Adam or AdamW"
    return None
