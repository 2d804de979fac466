"""What the bytes of one copy prove wrong by themselves, by the rules of `validate`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from ...records.names import printable
from ..checkpoint import Shard
from ..ranges import Range, merge
from ..validation.content.facts import Claims, ContentFacts, Purpose
from ..validation.content.roles import roles
from ..validation.content.scan import scan_content
from ..validation.content.zero_runs import judge_zero_runs, lost_ranges
from ..validation.content.zero_tensors import judge_zero_tensors
from .copies import Copy
from .not_finite import not_finite_runs
from .padded_rank import PaddedRanks
from .places import TensorMap

_BLOCK = 1 << 20
_BY_CHANCE = 64  # so many zeros at the start of the data are no accident of its values


class Content(NamedTuple):
    """Ranges that the file cannot have held, what is worth a word, and what leaves doubt."""

    zero: tuple[Range, ...]
    not_finite: tuple[Range, ...]
    notes: tuple[str, ...]
    doubts: tuple[str, ...]


def judge_content(copy: Copy, tensors: TensorMap) -> Content:
    """Read a whole copy once and judge its zeros and what is not finite.

    Runs of 4 KiB of zeros and whole tensors are damage where `validate` calls them so. NaNs and
    infinities are where 128 bytes of them follow one another; fewer, as a training that diverged
    leaves, are only a doubt. Raises what reading raises.
    """
    header = tensors.header
    shard = Shard("", copy.readable, header)
    facts = scan_content(shard)
    for gap in facts.unreadable:
        copy.read(gap.start, gap.size)
    by_name = roles(tensor.name for tensor in header.tensors)
    zero = judge_zero_tensors(facts.tensors, by_name, Claims())
    padded = PaddedRanks(copy, facts.tensors, by_name)
    runs = merge([*facts.zero_runs, *_behind_lost_head(copy, tensors)])
    facts = replace(facts, zero_runs=tuple(run for run in runs if not padded.holds(run)))
    judged = judge_zero_runs(shard, facts, by_name, zero)
    trained = [
        one
        for one in facts.tensors
        if one.nan + one.inf and by_name[one.name].purpose is not Purpose.OTHER
    ]
    return Content(
        zero=lost_ranges(shard, facts, by_name, zero),
        not_finite=not_finite_runs(copy, trained),
        notes=tuple(caution.message for caution in (*zero.cautions, *judged.cautions)),
        doubts=tuple(_doubts(facts, [one.name for one in trained])),
    )


def _behind_lost_head(copy: Copy, tensors: TensorMap) -> Iterator[Range]:
    """Give the zeros with which the data begins where the head before it ends in zeros."""
    start = tensors.header.data_start
    if copy.size <= start or copy.read(start - 1, 1) != b"\0":
        return
    block = copy.read(start, min(_BLOCK, copy.size - start, tensors.header.file_size - start))
    run = Range(start, start + len(block) - len(block.lstrip(b"\0")))
    if run.size >= _BY_CHANCE:
        yield run


def _doubts(facts: ContentFacts, not_finite: list[str]) -> Iterator[str]:
    if facts.runs_left_out:
        yield f"{facts.runs_left_out:,} further runs of zeros were not judged."
    if not_finite:
        more = "" if len(not_finite) == 1 else f" and {len(not_finite) - 1:,} other tensors"
        yield f"{printable(not_finite[0])}{more} hold NaN or infinity."
