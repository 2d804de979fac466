"""Judge runs of zeros: which come with the values, and which with lost storage."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ...checkpoint import Shard
from ...formats.safetensors import DTYPE_BITS
from ...formats.safetensors_errors import shown
from ...ranges import Range, intersect, merge, total
from ...readable import read_exactly
from ..result import Caution, Damage, DamageClass
from .edges import PAGE as _PAGE
from .edges import SLACK as _SLACK
from .edges import is_paged, may_be_lost
from .facts import ContentFacts, Purpose, Role, TensorFacts
from .zero_tensors import Standing, ZeroTensors, names_of

_SECTOR = 512
_STRAY = 64  # bytes of a run in the next tensor that its first or last values may have by chance
_REMEDY = "take these bytes from another source (`reef-recover repair` merges two copies)"
_START_AT_ZERO = {Purpose.LORA_A, Purpose.LORA_B, Purpose.EMBEDDING_A}
_OUTPUTS = {"lm_head", "embed_tokens", "embed_out", "wte", "output", "output_layer"}


class _Touched(NamedTuple):
    """A part of a tensor that a run covers, and how it is judged."""

    facts: TensorFacts
    part: Range
    standing: Standing

    @property
    def is_all(self) -> bool:
        return self.facts.all_zero and self.part == self.facts.span


class ZeroRuns(NamedTuple):
    """The judged runs of one shard; `tensors` are covered by damage that is already named."""

    damage: list[Damage]
    cautions: list[Caution]
    tensors: set[str]


def judge_zero_runs(
    shard: Shard, facts: ContentFacts, roles: Mapping[str, Role], zero: ZeroTensors
) -> ZeroRuns:
    """Judge every long run of zeros in a shard, and every hole that was never stored.

    A run is damage when any tensor that it touches may not be zero there. One that ends in the
    middle of a row, a block of storage, or beyond the border of a tensor is not made of values.
    """
    judge = _Judge(shard, facts, roles, zero)
    judged = ZeroRuns([], [], set())
    single: dict[str, list[_Touched]] = defaultdict(list)
    rows: dict[str, TensorFacts] = {}
    for run in facts.zero_runs:
        touched = judge.touched(run)
        worst = _worst(touched)
        if worst is Standing.CAUTION:
            rows.update({t.facts.name: t.facts for t in touched if not t.facts.all_zero})
        if worst is not Standing.DAMAGE or (len(touched) == 1 and touched[0].is_all):
            continue
        if run.stop < judge.data.stop and len(touched) == 1:
            single[touched[0].facts.name].append(touched[0])
        else:
            judged.damage.append(judge.wide(run, touched))
        judged.tensors.update(one.facts.name for one in touched if one.is_all)
    judged.damage.extend(judge.inside(parts) for parts in single.values())
    for run in facts.edge_runs:
        touched = judge.at_edge(run)
        if _worst(touched) is Standing.DAMAGE:
            judged.damage.append(judge.wide(run, touched))
        else:
            rows.update({t.facts.name: t.facts for t in touched if t.standing is Standing.CAUTION})
    if facts.runs_left_out:
        judged.damage.append(judge.too_many())
    rows_left = [one for name, one in rows.items() if name not in single]
    if rows_left:
        message = f"Whole rows or experts are zero in {names_of(rows_left)}."
        judged.cautions.append(Caution("zero-rows", message))
    _judge_holes(judge, judged)
    return judged


def lost_ranges(
    shard: Shard, facts: ContentFacts, roles: Mapping[str, Role], zero: ZeroTensors
) -> tuple[Range, ...]:
    """Give the bytes of all zeros that are damage, without those that tensors may lawfully hold.

    A run is judged by all that it touches; what it takes of a neighbour by chance stays out.
    """
    judge = _Judge(shard, facts, roles, zero)
    lost = [one.span for one in facts.tensors if judge.is_lost(one)]
    damaged = [run for run in facts.zero_runs if _worst(judge.touched(run)) is Standing.DAMAGE]
    spared = judge.never_updated(damaged)
    for run in damaged:
        lost.extend(judge.lost_parts(run, spared))
    for run in facts.edge_runs:
        lost.extend(t.part for t in judge.at_edge(run) if t.standing is Standing.DAMAGE)
    return merge(lost)


def _worst(touched: list[_Touched]) -> Standing:
    """Judge a run by its parts: dubious zeros on both sides of a border are no coincidence."""
    worst = max((one.standing for one in touched), default=Standing.LAWFUL)
    dubious = [one for one in touched if one.standing is Standing.CAUTION]
    crosses = len(dubious) > 1 and not all(one.facts.all_zero for one in dubious)
    return Standing.DAMAGE if crosses else worst


class _Judge:
    def __init__(
        self, shard: Shard, facts: ContentFacts, roles: Mapping[str, Role], zero: ZeroTensors
    ) -> None:
        assert shard.header is not None
        self.shard = shard
        self._roles = roles
        self._zero = zero
        self._tensors = [one for one in facts.tensors if one.elements]
        self._stops = [one.span.stop for one in self._tensors]
        self._limit = len(facts.zero_runs)
        self._left_out = facts.runs_left_out
        stop = min(shard.size, shard.header.file_size)
        self.data = Range(shard.header.data_start, stop)

    def touched(self, run: Range) -> list[_Touched]:
        """Judge a run tensor by tensor, without what it takes of its neighbours by chance."""
        return [
            _Touched(one, part, self._standing(one, part))
            for one, part in self._parts(run)
            if one.all_zero or part.size >= min(_STRAY, run.size)
        ]

    def at_edge(self, run: Range) -> list[_Touched]:
        """Judge a short run at an end of the data, without what tensors have elsewhere too."""
        paged = is_paged(run, self.data)
        return [
            _Touched(one, part, self._standing(one, part))
            for one, part in self._parts(run)
            if may_be_lost(one, part, self._roles[one.name], paged=paged, read=self._read)
        ]

    def _read(self, offset: int, length: int) -> bytes:
        return read_exactly(self.shard.readable, offset, length)

    def is_lost(self, one: TensorFacts) -> bool:
        """Tell a tensor that is zero throughout and may not be."""
        return one.all_zero and self._zero.standing.get(one.name) is Standing.DAMAGE

    def never_updated(self, damaged: list[Range]) -> set[str]:
        """Name what is zero before the first update, if any of it outside damage shows that."""
        zero = {
            one.name
            for one in self._tensors
            if one.all_zero
            and self._roles[one.name].purpose in _START_AT_ZERO
            and self._zero.standing.get(one.name) is Standing.LAWFUL
        }
        hit = {one.name for run in damaged for one, _ in self._parts(run)}
        return zero if zero - hit else set()

    def lost_parts(self, run: Range, spared: set[str]) -> Iterator[Range]:
        """Give the parts of a damaged run but for the tensors spared.

        Of a few zeros in a neighbour, what reaches to the end of a block of storage is lost too.
        """
        for one, part in self._parts(run):
            if one.name in spared:
                continue
            if one.all_zero or part.size > _SLACK:
                yield part
            else:
                start = -(-part.start // _SECTOR) * _SECTOR if part.start == run.start else 0
                stop = part.stop // _SECTOR * _SECTOR if part.stop == run.stop else part.stop
                yield Range(max(start, part.start), stop)

    def _parts(self, run: Range) -> Iterator[tuple[TensorFacts, Range]]:
        place = bisect_right(self._stops, run.start)
        while place < len(self._tensors) and self._tensors[place].span.start < run.stop:
            one = self._tensors[place]
            yield one, Range(max(run.start, one.span.start), min(run.stop, one.span.stop))
            place += 1

    def _standing(self, one: TensorFacts, part: Range) -> Standing:
        if one.all_zero:
            return self._zero.standing.get(one.name, Standing.DAMAGE)
        return _partly_zero(one, part, self._roles[one.name])

    def wide(self, run: Range, touched: list[_Touched]) -> Damage:
        """Name a run that crosses tensors or ends the file."""
        whole = sum(one.is_all for one in touched)
        names = [one.facts for one in touched]
        if run.start <= self.data.start and run.stop >= self.data.stop:
            kind, what = DamageClass.ZERO_FILE, "Every byte of the data is zero"
        elif run.stop >= self.data.stop:
            kind, what = DamageClass.ZERO_TAIL, f"The last {run.size:,} bytes are zero"
        else:
            kind, what = DamageClass.ZERO_RUN, f"{run.size:,} bytes are zero"
        where = f"from offset {run.start:,} on"
        how = f"{whole:,} tensors whole, {len(names) - whole:,} in part"
        return self._damage(
            kind,
            f"{what} {where}: {how} ({names_of(names)}); {_REMEDY}.",
            names[0].name,
            run.start,
            run.size,
        )

    def inside(self, parts: list[_Touched]) -> Damage:
        """Name the runs within one tensor."""
        size = sum(one.part.size for one in parts)
        runs = "" if len(parts) == 1 else f" in {len(parts):,} runs"
        one, first = parts[0].facts, parts[0].part.start
        element = (first - one.span.start) * 8 // DTYPE_BITS[one.tensor.dtype]
        return self._damage(
            DamageClass.ZERO_RUN,
            f"{size:,} bytes of `{shown(one.name)}` are zero{runs}, from element {element:,} "
            f"(offset {first:,}) on; {_REMEDY}.",
            one.name,
            first,
            size,
        )

    def too_many(self) -> Damage:
        """Say that some runs were not judged: what was not looked at is no pass."""
        count = self._limit + self._left_out
        message = (
            f"There are {count:,} long runs of zeros, of which only {self._limit:,} were judged."
        )
        return self._damage(DamageClass.ZERO_RUN, message, None, None, None)

    def sparse(self, parts: list[_Touched]) -> Damage:
        """Name the holes where a tensor may not be zero."""
        size = sum(one.part.size for one in parts)
        names = list({one.facts.name: one.facts for one in parts}.values())
        return self._damage(
            DamageClass.SPARSE,
            f"{size:,} bytes were never stored and read as zeros, in {len(names):,} tensors "
            f"({names_of(names)}), as when a writer is killed; {_REMEDY}.",
            names[0].name,
            parts[0].part.start,
            size,
        )

    def _damage(
        self, kind: DamageClass, message: str, tensor: str | None, at: int | None, size: int | None
    ) -> Damage:
        return Damage(kind, message, self.shard.name, tensor, at, size)


def _judge_holes(judge: _Judge, judged: ZeroRuns) -> None:
    holes = intersect(judge.shard.holes, judge.data)
    parts = [one for hole in holes for one in judge.touched(hole)]
    lost = [one for one in parts if one.standing is Standing.DAMAGE]
    if lost:
        judged.damage.append(judge.sparse(lost))
    elif holes:
        message = (
            f"{total(holes):,} bytes of zeros that belong there are not stored (a sparse copy)."
        )
        judged.cautions.append(Caution("sparse-extent", message))


def _partly_zero(one: TensorFacts, part: Range, role: Role) -> Standing:
    """Judge zeros in a tensor that also has other values.

    Rows of an embedding that no token named stay zero, and so does the B of experts that no token
    reached. What ends where blocks of storage end, and not where rows do, is no value's doing.
    """
    dtype, shape = one.tensor.dtype, one.tensor.shape
    bits = DTYPE_BITS[dtype]
    row = max(1, shape[-1] * bits // 8) if len(shape) > 1 else one.span.size
    rows = _in_units(part, one.span, row)
    paged = _ends_on_pages(part, one.span)
    if dtype == "BOOL":
        return Standing.LAWFUL
    purpose = role.purpose
    if purpose is Purpose.LORA_B:
        if _is_fused(role):
            band = len(shape) == 2 and row >= _PAGE and not paged
            slab = len(shape) > 2 and _in_units(part, one.span, one.span.size // shape[0])
            return Standing.CAUTION if band or slab else Standing.DAMAGE
        if role.module.rpartition(".")[2] in _OUTPUTS:
            purpose = Purpose.EMBEDDING
    elif purpose is Purpose.WEIGHT and len(shape) < 2:
        purpose = Purpose.OTHER
    match purpose:
        case Purpose.EMBEDDING | Purpose.TOKEN_DELTA:
            lawful = rows and not (paged and row < _PAGE)
            if not lawful:
                return Standing.DAMAGE
            # Of a delta only a row that is zero in the base too, as that of padding, stays so.
            return Standing.CAUTION if purpose is Purpose.TOKEN_DELTA else Standing.LAWFUL
        case Purpose.EMBEDDING_A | Purpose.BIAS:  # a column a token; some of several biases
            return Standing.DAMAGE if paged else Standing.LAWFUL
        case Purpose.WEIGHT:
            return Standing.CAUTION if rows and not paged else Standing.DAMAGE
        case Purpose.OTHER:
            wide = one.max_abs is None and bits > 8  # indices and masks, not packed weights
            strict = Standing.CAUTION if wide else Standing.DAMAGE
            return strict if paged else Standing(strict - 1)
        case _:
            return Standing.DAMAGE


def _is_fused(role: Role) -> bool:
    """Tell a LoRA of all experts at once from that of a single one."""
    return role.module.removesuffix(".base_layer").rpartition(".")[2] == "experts"


def _in_units(part: Range, span: Range, unit: int) -> bool:
    """Tell whether a part covers whole rows, give or take a zero byte of the values beside it."""
    slack = min(_SLACK, unit // 8)
    start, stop = part.start - span.start, part.stop - span.start
    ends = [(edge + slack) % unit <= 2 * slack for edge in (start, stop)]
    return part.size + 2 * slack >= unit and (ends[0] and (ends[1] or part.stop == span.stop))


def _ends_on_pages(part: Range, span: Range) -> bool:
    """Tell whether each end inside the tensor is where a block of storage ends."""
    edges = [part.start] * (part.start > span.start) + [part.stop] * (part.stop < span.stop)
    return bool(edges) and all((edge + _SLACK) % _PAGE <= 2 * _SLACK for edge in edges)
