"""The whole truth table of what a recovery may claim."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from itertools import product

import pytest

from reefkit.errors import ExitCode
from reefkit.recover.save.verdict import Observations, Verdict, judge, worst

UNCHANGED = {"source_changed": False, "reads_differ": False, "unexplained_difference": False}
WHOLE = {**UNCHANGED, "unread": False}
CLEAN = {**WHOLE, "from_memory": True, "pages_copied": False}
PROVEN = {"page_map_known": True, "length_known": True, "read_once": False}
# Whatever else was seen: these observations make that claim, and every observation is in a row.
RULES: list[tuple[Mapping[str, bool], Verdict]] = [
    ({"source_changed": True}, Verdict.CHANGED),
    ({"reads_differ": True}, Verdict.CHANGED),
    ({"unexplained_difference": True}, Verdict.CHANGED),
    ({**UNCHANGED, "unread": True}, Verdict.PARTIAL),
    ({**WHOLE, "from_memory": False, "read_once": False}, Verdict.FILE_EXACT),
    ({**WHOLE, "from_memory": False, "read_once": True}, Verdict.REBUILT_UNVERIFIED),
    ({**WHOLE, "from_memory": True, "pages_copied": True}, Verdict.MEMORY_DIRTY),
    ({**CLEAN, "page_map_known": False}, Verdict.REBUILT_UNVERIFIED),
    ({**CLEAN, "length_known": False}, Verdict.REBUILT_UNVERIFIED),
    ({**CLEAN, "read_once": True}, Verdict.REBUILT_UNVERIFIED),
    ({**CLEAN, **PROVEN}, Verdict.MEMORY_CLEAN),
]
FLAGS = [field.name for field in fields(Observations) if field.name != "matches_expected"]
EXACT = (Verdict.FILE_EXACT, Verdict.REBUILT_VERIFIED, Verdict.MEMORY_CLEAN)


def everything_with(fixed: Mapping[str, bool], *, expected: bool | None) -> Iterator[Observations]:
    free = [name for name in FLAGS if name not in fixed]
    for values in product((False, True), repeat=len(free)):
        flags = {**fixed, **dict(zip(free, values, strict=True))}
        yield Observations(**flags, matches_expected=expected)


@pytest.mark.parametrize("expected", [None, False])
@pytest.mark.parametrize(("fixed", "verdict"), RULES)
def test_a_claim_follows_from_what_was_seen(
    fixed: Mapping[str, bool], verdict: Verdict, expected: bool | None
) -> None:
    assert {judge(seen) for seen in everything_with(fixed, expected=expected)} == {verdict}


@pytest.mark.parametrize(("fixed", "verdict"), RULES)
def test_a_digest_known_beforehand_verifies_what_is_not_exact_by_itself(
    fixed: Mapping[str, bool], verdict: Verdict
) -> None:
    verified = verdict if verdict in EXACT else Verdict.REBUILT_VERIFIED
    assert {judge(seen) for seen in everything_with(fixed, expected=True)} == {verified}


def test_the_rules_leave_out_no_observation() -> None:
    covered = {seen for fixed, _ in RULES for seen in everything_with(fixed, expected=None)}
    assert covered == set(everything_with({}, expected=None))
    assert len(covered) == 2**9


@pytest.mark.parametrize("verdict", Verdict)
def test_only_what_is_exact_answers_with_success(verdict: Verdict) -> None:
    assert verdict.is_exact is (verdict in EXACT)
    assert (verdict.exit_code == ExitCode.HOLDS) is verdict.is_exact
    assert verdict.exit_code in (0, 1)


ORDER = [
    "FILE_EXACT",
    "REBUILT_VERIFIED",
    "MEMORY_CLEAN",
    "REBUILT_UNVERIFIED",
    "MEMORY_DIRTY",
    "PARTIAL",
    "CHANGED",
]


@pytest.mark.parametrize(("a", "b"), list(product(ORDER, ORDER)))
def test_the_worst_of_two_is_the_later_in_the_order(a: str, b: str) -> None:
    later = ORDER[max(ORDER.index(a), ORDER.index(b))]
    assert worst([Verdict(a), Verdict(b)]).value == later


def test_a_run_without_files_has_no_verdict() -> None:
    with pytest.raises(ValueError, match="empty"):
        worst([])
