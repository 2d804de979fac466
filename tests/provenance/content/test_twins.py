"""Names that some systems take for one."""

from __future__ import annotations

import tracemalloc
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reefkit.provenance.content.twins import twins_among


@pytest.mark.parametrize(
    ("names", "count"),
    [
        (["a", "b", "c/a", "c/b"], 0),
        (["a", "A"], 1),
        (["a", "A", "á", "Á"], 2),
        (["d/a", "D/a"], 2),
        (["d/a", "D/b"], 1),
        (["d/e/a", "d/E/b", "D/e/c"], 2),
        (["a", "a/b"], 1),
        (["A", "a/b/c"], 1),
        (["a/b", "a/b/c"], 1),
        (["stra\u00dfe", "STRASSE"], 1),
        (["\u00e9", "e\u0301"], 1),
        (["x\ny", "x"], 0),
        ([], 0),
    ],
)
def test_twins_are_counted(names: list[str], count: int) -> None:
    assert len(twins_among(names)) == count


def test_a_name_and_its_folder_are_told_apart_in_words() -> None:
    (clash,) = twins_among(["a", "a/b"])
    assert "at once" in clash.diagnosis
    (case,) = twins_among(["x\u202e", "X\u202e"])
    assert "only in case" in case.diagnosis and case.diagnosis.isprintable()


@settings(max_examples=150, deadline=None)
@given(st.lists(st.text("aAé\u0301e/\n", min_size=1, max_size=4), max_size=6, unique=True))
def test_no_finding_means_that_all_keys_differ(names: list[str]) -> None:
    if twins_among(names):
        return
    keys = {unicodedata.normalize("NFC", name).casefold() for name in names}
    assert len(keys) == len(names)


@pytest.mark.parametrize(
    ("names", "points"),
    [
        (["caf\u00e9.txt", "cafe\u0301.txt"], "U+00E9 against U+0065 U+0301"),
        (["\uac00", "\u1100\u1161"], "U+AC00 against U+1100 U+1161"),
        (["\u212a", "K"], "U+212A against U+004B"),
        (["\u00b5", "\u03bc"], "U+00B5 against U+03BC"),
        (["\u00e9/a", "e\u0301/b"], "U+00E9 against U+0065 U+0301"),
    ],
)
def test_names_that_look_alike_are_told_by_code_points(names: list[str], points: str) -> None:
    (twins,) = twins_among(names)
    ours, theirs = points.split(" against ")
    assert points in twins.diagnosis or f"{theirs} against {ours}" in twins.diagnosis


def test_long_names_are_cut_in_sentences() -> None:
    (twins,) = twins_among(["a" * 4000, "A" * 4000])
    assert len(twins.diagnosis) < 600 and "\u2026" in twins.diagnosis


@pytest.mark.parametrize("part", ["d", "\u00e9"])
def test_memory_grows_as_the_names_do_however_deep(part: str) -> None:
    names = [f"{number:04d}/{'/'.join([part] * 2000)}/f" for number in range(50)]
    tracemalloc.start()
    try:
        assert twins_among(names) == ()
        assert tracemalloc.get_traced_memory()[1] < 40 * sum(map(len, names))
    finally:
        tracemalloc.stop()
