"""Names that some systems take for one."""

from __future__ import annotations

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
        (["d/e/a", "d/E/b", "D/e/c"], 3),
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
