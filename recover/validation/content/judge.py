"""Judge what the scan found: damage, what a person should know, and evidence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ...checkpoint import Checkpoint, Shard
from ...formats.safetensors import DTYPE_BITS
from ...formats.safetensors_errors import shown
from ...readable import read_exactly
from ..result import Caution, Damage, DamageClass
from .copies import Copies, find_copies
from .facts import Claims, ContentFacts, Judgement, Purpose, Role, TensorFacts
from .outliers import Outlier, find_outliers
from .training import judge_training
from .zero_runs import judge_zero_runs
from .zero_tensors import Standing, ZeroTensors, judge_zero_tensors, names_of

_NO_CLAIMS = Claims()
_UNKNOWN = Role(Purpose.OTHER)
_BLOCK = 24 << 16
_LISTED = 1000


def judge(
    checkpoint: Checkpoint,
    facts: Mapping[str, ContentFacts],
    roles: Mapping[str, Role],
    claims: Claims = _NO_CLAIMS,
    offset_norms: bool | None = None,
) -> Judgement:
    """Judge the content of a checkpoint; `facts` are by the names of shards, `roles` of tensors.
    A tensor without a role is one of which nothing is known. `offset_norms` tells whether the
    family's norms are offsets from one; None where the family is not known.

    Reads again only where suspects must be compared byte by byte or an outlier be located. A
    refuted claim is a caution and `evidence["claim_refuted"]`. Raises what the shards' sources
    raise.
    """
    shards = [shard for shard in checkpoint.shards if shard.name in facts]
    bytes_of = _Bytes({shard.name: shard for shard in shards})
    every = [one for shard in shards for one in facts[shard.name].tensors]
    roles = {one.name: roles.get(one.name, _UNKNOWN) for one in every}
    damage: list[Damage] = [one for shard in shards for one in facts[shard.name].damage]
    cautions: list[Caution] = []
    damage += _not_finite(bytes_of, every)
    zero = judge_zero_tensors(every, roles, claims, offset_norms)
    damage += _zeros(bytes_of, shards, facts, roles, zero, cautions)
    damage += _outliers(bytes_of, find_outliers(every, roles), cautions)
    copies = find_copies(every, roles, bytes_of.same, bytes_of.constant)
    damage += _copied(bytes_of, copies, cautions)
    odd = [one for one in every if one.odd_bytes]
    if odd:
        count = sum(one.odd_bytes for one in odd)
        message = f"{count:,} bytes are neither 0 nor 1 in the BOOL tensors {names_of(odd)}."
        cautions.append(Caution("odd-bool", message))
    training = judge_training(every, roles, claims, zero.start)
    cautions += training.cautions
    evidence: dict[str, object] = {
        "tensors": len(every),
        "elements": sum(one.elements for one in every),
        "elements_read": sum(one.read for one in every),
        "zero_tensors": [shown(one.name) for one in every if one.all_zero][:_LISTED],
        "fused_origin": copies.fused,
        "training": training.evidence,
        "claim_refuted": training.refuted,
    }
    return Judgement(tuple(damage), tuple(cautions), evidence)


@dataclass(frozen=True)
class _Bytes:
    """The bytes of tensors, read again where facts alone do not decide."""

    shards: Mapping[str, Shard]

    def blocks(self, one: TensorFacts) -> Iterator[bytes]:
        """Read a tensor in blocks of whole elements."""
        source = self.shards[one.shard].readable
        for start in range(one.span.start, one.span.stop, _BLOCK):
            yield read_exactly(source, start, min(_BLOCK, one.span.stop - start))

    def same(self, a: TensorFacts, b: TensorFacts) -> bool:
        """Tell whether two tensors of one size have the same bytes."""
        pairs = zip(self.blocks(a), self.blocks(b), strict=True)
        return all(left == right for left, right in pairs)

    def constant(self, one: TensorFacts) -> bool:
        """Tell whether all elements are the same, as those of a norm that was never trained."""
        from .blocks import is_constant

        firsts: set[bytes] = set()
        width = max(1, DTYPE_BITS[one.tensor.dtype] // 8)
        for block in self.blocks(one):
            firsts.add(block[:width])
            if len(firsts) > 1 or not is_constant(block, one.tensor.dtype):
                return False
        return True

    def largest(self, one: TensorFacts) -> int | None:
        """Give the index of the first element with the largest finite magnitude."""
        from .blocks import first_peak

        if not one.whole:
            return None
        found: list[tuple[int, int]] = []
        passed = 0
        for block in self.blocks(one):
            index, bits = first_peak(block, one.tensor.dtype)
            found.append((-bits, passed + index))
            passed += len(block) * 8 // DTYPE_BITS[one.tensor.dtype]
        return min(found)[1]

    def damage(
        self, kind: DamageClass, message: str, one: TensorFacts, element: int | None = None
    ) -> Damage:
        """Name a tensor, or one element of it."""
        width = DTYPE_BITS[one.tensor.dtype] // 8
        offset = one.span.start + (element or 0) * width
        size = one.span.size if element is None else width
        return Damage(kind, message, one.shard, one.name, offset, size)


def _not_finite(bytes_of: _Bytes, facts: list[TensorFacts]) -> Iterator[Damage]:
    for one in facts:
        if one.nan or one.inf:
            message = (
                f"`{shown(one.name)}` has {one.nan:,} NaN and {one.inf:,} infinite of "
                f"{one.elements:,} elements, the first at element {one.first_bad:,}."
            )
            yield bytes_of.damage(DamageClass.NOT_FINITE, message, one, one.first_bad)


def _zeros(
    bytes_of: _Bytes,
    shards: list[Shard],
    facts: Mapping[str, ContentFacts],
    roles: Mapping[str, Role],
    zero: ZeroTensors,
    cautions: list[Caution],
) -> Iterator[Damage]:
    cautions += zero.cautions
    yield from zero.damage
    for shard in shards:
        judged = judge_zero_runs(shard, facts[shard.name], roles, zero)
        cautions += judged.cautions
        yield from judged.damage
        for one in facts[shard.name].tensors:
            damaged = one.all_zero and zero.standing.get(one.name) is Standing.DAMAGE
            if damaged and one.name not in judged.tensors:
                message = f"Every value of `{shown(one.name)}` is zero."
                yield bytes_of.damage(DamageClass.ZERO_TENSOR, message, one)


def _outliers(
    bytes_of: _Bytes, outliers: list[Outlier], cautions: list[Caution]
) -> Iterator[Damage]:
    for outlier in outliers:
        element = bytes_of.largest(outlier.facts)
        message = outlier.sentence(element)
        if outlier.certain:
            yield bytes_of.damage(DamageClass.OUTLIER, message, outlier.facts, element)
        else:
            cautions.append(Caution("outlier", message))


def _copied(bytes_of: _Bytes, copies: Copies, cautions: list[Caution]) -> Iterator[Damage]:
    for copy, original in copies.damage:
        message = f"`{shown(copy.name)}` has the very bytes of `{shown(original.name)}`."
        yield bytes_of.damage(DamageClass.COPIED_TENSOR, message, copy)
    for group in copies.everywhere:
        message = (
            f"All {len(group):,} tensors of its kind have the very bytes of "
            f"`{shown(group[0].name)}`, which no training gives: one layer was written for all."
        )
        yield bytes_of.damage(DamageClass.COPIED_TENSOR, message, group[1])
    if copies.layers:
        pairs = ", ".join(f"{shown(copy)} of {shown(of)}" for copy, of in copies.layers[:3])
        message = f"{len(copies.layers):,} layers are whole copies of others: {pairs}."
        cautions.append(Caution("repeated-layers", message))
    if copies.shared:
        kinds = list(dict.fromkeys(copies.shared))
        listed = ", ".join(f"`{shown(kind)}`" for kind in kinds[:3])
        message = f"Every layer has the same bytes in {len(kinds):,} kinds: {listed}."
        cautions.append(Caution("shared-values", message))
