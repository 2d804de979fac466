"""Ranges behave as the sets of integers that they stand for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from reefkit.recover.ranges import Range, intersect, merge, subtract, total

numbers = st.integers(0, 40)
any_range = st.builds(Range, numbers, numbers)  # some end before they start, and cover nothing
any_ranges = st.lists(any_range, max_size=8)


def members(ranges: Iterable[Range]) -> set[int]:
    return {number for piece in ranges for number in range(piece.start, piece.stop)}


def assert_normal(ranges: Sequence[Range]) -> None:
    """In order, none empty, none touching the next."""
    assert all(piece.size > 0 for piece in ranges)
    assert all(a.stop < b.start for a, b in pairwise(ranges))


@given(any_ranges)
def test_merge_keeps_the_set_and_gives_the_only_normal_form(ranges: list[Range]) -> None:
    merged = merge(ranges)
    assert members(merged) == members(ranges)
    assert_normal(merged)
    assert merge(reversed(ranges)) == merge(merged) == merged


@given(any_ranges, any_range)
def test_intersect_is_the_common_part(ranges: list[Range], window: Range) -> None:
    common = intersect(ranges, window)
    assert members(common) == members(ranges) & members([window])
    assert_normal(common)


@given(any_range, any_ranges)
def test_subtract_is_the_difference(window: Range, ranges: list[Range]) -> None:
    left = subtract(window, ranges)
    assert members(left) == members([window]) - members(ranges)
    assert_normal(left)


@given(any_ranges)
def test_total_counts_the_members(ranges: list[Range]) -> None:
    assert total(merge(ranges)) == len(members(ranges))


@given(any_range, any_ranges)
def test_what_is_kept_and_what_is_left_make_the_window(window: Range, ranges: list[Range]) -> None:
    assert merge((*subtract(window, ranges), *intersect(ranges, window))) == merge([window])


def test_iterators_are_taken_once() -> None:
    ranges = [Range(5, 7), Range(0, 2)]
    assert merge(iter(ranges)) == (Range(0, 2), Range(5, 7))
    assert subtract(Range(0, 8), iter(ranges)) == (Range(2, 5), Range(7, 8))
    assert intersect(iter(ranges), Range(1, 6)) == (Range(1, 2), Range(5, 6))


def test_json_gives_an_offset_and_a_number_of_bytes() -> None:
    assert Range(4096, 8192).to_json() == {"offset": 4096, "bytes": 4096}
