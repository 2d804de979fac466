"""Judge tensors that are zero throughout: lawful, worth a word, or damage."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from ...formats.safetensors_errors import shown
from ..result import Caution, Damage, DamageClass
from .facts import Claims, Purpose, Role, TensorFacts

# PEFT 0.21.2 starts B (A of an embedding) at zero for every `init_lora_weights` but these.
_STARTS_NONZERO = re.compile(r"(?:pissa|olora|corda|loftq|lora_ga|orthogonal)", re.IGNORECASE)
_MICA = "mica"
_LAWFUL_EMBEDDING = re.compile(r"pos|token_type|segment|wpe", re.IGNORECASE)
_ZERO_FIRST = {Purpose.LORA_B, Purpose.EMBEDDING_A}
_RANDOM_FIRST = {Purpose.LORA_A, Purpose.EMBEDDING_B}
_TOWER = 4
_NAMED = 3


class Standing(IntEnum):
    """How zeros are judged, mildest first."""

    LAWFUL = 0
    CAUTION = 1
    DAMAGE = 2


@dataclass
class ZeroTensors:
    """How each tensor that is zero throughout is judged, and what that says about training.

    `start` is "zero-B" or "zero-A" (mica) where no update was made, None otherwise.
    """

    standing: dict[str, Standing] = field(default_factory=dict[str, Standing])
    start: str | None = None
    damage: list[Damage] = field(default_factory=list[Damage])
    cautions: list[Caution] = field(default_factory=list[Caution])


def starts_at_zero(init: str | bool | None) -> bool:
    """Tell whether PEFT's `init_lora_weights` starts B with zeros; None is PEFT's default."""
    if isinstance(init, str):
        return not _STARTS_NONZERO.match(init) and init.lower() not in (_MICA, "false")
    return init is not False


def names_of(facts: Sequence[TensorFacts]) -> str:
    """List a few names, safe to print, and count the others."""
    listed = ", ".join(f"`{shown(one.name)}`" for one in facts[:_NAMED])
    return listed + (f" and {len(facts) - _NAMED:,} more" if len(facts) > _NAMED else "")


def judge_zero_tensors(
    facts: Iterable[TensorFacts],
    roles: Mapping[str, Role],
    claims: Claims,
    offset_norms: bool | None = None,
) -> ZeroTensors:
    """Judge every tensor that is zero throughout; ZERO_TENSOR itself is left to the caller.

    `offset_norms` tells whether the family's norms are offsets from one, which start at zero; None
    where the family is not known.

    A LoRA starts with B = 0 (of an embedding: A = 0), and the first update changes every B that a
    gradient reaches; so all of them zero is step 0, and one of them among others is damage, but for
    some of a layer's experts that no token was routed to and for towers that no input reached.
    """
    known = [one for one in facts if one.elements and one.whole]
    judged = ZeroTensors()
    first = [one for one in known if roles[one.name].purpose in _ZERO_FIRST]
    second = [one for one in known if roles[one.name].purpose in _RANDOM_FIRST]
    zero_first = [one for one in first if one.all_zero]
    zero_second = [one for one in second if one.all_zero]
    _judge_lora(judged, claims, (first, zero_first), (second, zero_second), roles)
    lora = {one.name for one in (*first, *second)}
    alive = {roles[one.name][:2] for one in known if not one.all_zero}
    norms = _Norms(offset_norms, alive, any(purpose is Purpose.NORM for purpose, _ in alive))
    for one in known:
        if one.all_zero and one.name not in lora:
            judged.standing[one.name] = _others(one, roles[one.name], norms)
    odd = [one for one in known if judged.standing.get(one.name) is Standing.CAUTION]
    strange = [one for one in odd if one.name not in lora]
    if strange:
        judged.cautions.append(
            Caution("zero-tensor", f"Every value is zero in {names_of(strange)}.")
        )
    return judged


_Split = tuple[list[TensorFacts], list[TensorFacts]]


def _judge_lora(
    judged: ZeroTensors, claims: Claims, b: _Split, a: _Split, roles: Mapping[str, Role]
) -> None:
    (all_b, zero_b), (all_a, zero_a) = b, a
    standing = judged.standing
    standing.update({one.name: Standing.DAMAGE for one in (*zero_a, *zero_b)})
    if zero_b and len(zero_b) == len(all_b) and not (zero_a and len(zero_a) == len(all_a)):
        judged.start = "zero-B"
        standing.update({one.name: Standing.LAWFUL for one in zero_b})
        _untrained(judged, claims, "B", len(zero_b), lawful=starts_at_zero(claims.init))
    elif zero_a and len(zero_a) == len(all_a) and not zero_b and _may_be_mica(claims):
        judged.start = "zero-A"
        standing.update({one.name: Standing.LAWFUL for one in zero_a})
        _untrained(judged, claims, "A", len(zero_a), lawful=True)
    elif zero_b and len(zero_b) < len(all_b):
        _dead_modules(judged, all_b, zero_b, {one.name for one in zero_a}, roles)


def _may_be_mica(claims: Claims) -> bool:
    return claims.init is None or str(claims.init).lower() == _MICA


def _untrained(
    judged: ZeroTensors, claims: Claims, letter: str, count: int, *, lawful: bool
) -> None:
    what = f"lora_{letter} is zero in all {count:,} modules"
    if not lawful:
        message = f"{what}, and `{shown(str(claims.init))}` never starts so: it changes nothing."
    elif claims.step:
        message = f"{what}, as before the first update, but step {claims.step:,} is claimed."
        if claims.step == 1:
            message += " A warm-up whose first rate is zero does the same."
    else:
        judged.cautions.append(
            Caution("untrained", f"Untrained: step 0. {what}, so it changes nothing.")
        )
        return
    judged.damage.append(Damage(DamageClass.UNTRAINED, message))


def _dead_modules(
    judged: ZeroTensors,
    all_b: list[TensorFacts],
    zero_b: list[TensorFacts],
    zero_a: set[str],
    roles: Mapping[str, Role],
) -> None:
    """Let experts and whole towers be dead where their other matrices are not."""
    modules_of_zero_a = {roles[name].module for name in zero_a}
    alive = [one for one in zero_b if roles[one.name].module not in modules_of_zero_a]
    used = {_expert_of(roles[one.name]) for one in all_b if not one.all_zero}
    layers = {place[0] for place in used if place is not None}
    experts = [
        one
        for one in alive
        for place in (_expert_of(roles[one.name]),)
        if place is not None and place not in used and place[0] in layers
    ]
    towers: dict[str, list[TensorFacts]] = defaultdict(list)
    for one in all_b:
        towers[roles[one.name].kind.partition("*")[0]].append(one)
    silent = [
        one
        for tower in towers.values()
        if len(tower) >= _TOWER and all(member.all_zero for member in tower)
        for one in tower
        if one in alive and one not in experts
    ]
    for group, kind, why in (
        (experts, "untrained-experts", "experts that no token was routed to stay so"),
        (silent, "untrained-tower", "a part of the model that no input reached stays so"),
    ):
        judged.standing.update({one.name: Standing.CAUTION for one in group})
        if group:
            message = f"B is zero in {names_of(group)}: {why}. {len(group):,} of {len(all_b):,}."
            judged.cautions.append(Caution(kind, message))


def _expert_of(role: Role) -> tuple[str, str] | None:
    """Name the layer and the number of a single expert; all at once cannot be idle."""
    layer, _, rest = role.module.partition(".experts.")
    number = rest.partition(".")[0]
    return (layer, number) if number.isdecimal() else None


class _Norms(NamedTuple):
    """What is known of norms: the family's kind, and whether others than zero are there."""

    offset: bool | None
    alive: set[tuple[Purpose, str]]
    any_alive: bool

    def judge(self, role: Role) -> Standing:
        """Judge a norm that is zero throughout: it makes its layer's output zero or constant."""
        if self.offset is False or role[:2] in self.alive:
            return Standing.DAMAGE
        return Standing.LAWFUL if self.offset and not self.any_alive else Standing.CAUTION


def _others(one: TensorFacts, role: Role, norms: _Norms) -> Standing:
    """Judge a zero tensor that is no matrix of a LoRA.

    A trainable token's delta starts as the row of the embedding itself (peft 0.21.2), so that zero
    is what nobody trained.
    """
    is_integer = one.max_abs is None
    purpose = role.purpose
    if purpose is Purpose.WEIGHT and len(one.tensor.shape) < 2:
        purpose = Purpose.OTHER
    match purpose:
        case Purpose.BIAS:
            return Standing.LAWFUL
        case Purpose.NORM:
            return norms.judge(role)
        case Purpose.EMBEDDING if _LAWFUL_EMBEDDING.search(role.kind):
            return Standing.LAWFUL
        case Purpose.OTHER:
            return Standing.LAWFUL if is_integer or one.elements == 1 else Standing.CAUTION
        case Purpose.WEIGHT if one.elements == 1:
            return Standing.LAWFUL
        case _:
            return Standing.DAMAGE
