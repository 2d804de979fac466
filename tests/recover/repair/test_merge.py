"""Dumps are joined only where all copies but one are proven wrong; nothing is ever guessed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from broken_adapters import Bytes, adapter, copy, header_of, lora, outcome, span, write, zeroed
from hypothesis import given, settings
from hypothesis import strategies as st

from reefkit.errors import DoesNotHold
from reefkit.recover.ranges import Range, intersect, subtract, total
from reefkit.recover.readable import FileReadable
from reefkit.recover.repair.copies import Copy, Reason, copy_of
from reefkit.recover.repair.stage import Plan, Request, plan
from reefkit.recover.save.rescue_map import RescueMap
from reefkit.recover.save.verdict import Verdict

PAGE = 4096
WHOLE = adapter()
HEAD = header_of(WHOLE).data_start
NAN = b"\xff\x7f"


def merged(*copies: bytes | Copy) -> Plan:
    return plan(Request(tuple(c if isinstance(c, Copy) else copy(c) for c in copies)))


def filled_with_nan(file: bytes, start: int, stop: int) -> bytes:
    start += start % 2
    stop -= stop % 2
    return file[:start] + NAN * ((stop - start) // 2) + file[stop:]


def test_zeros_in_one_dump_are_filled_from_the_other_whichever_comes_first() -> None:
    broken = zeroed(WHOLE, (HEAD + 10_001, HEAD + 30_007))
    for copies in ((broken, WHOLE), (WHOLE, broken)):
        assert outcome(merged(*copies)) == WHOLE
    (change,) = merged(broken, WHOLE).result.changes
    assert (change.what, change.how_known) == ("data", Reason.ZERO)
    assert change.range.start <= HEAD + 10_001 and change.range.stop >= HEAD + 30_007


def test_damage_in_different_places_of_two_dumps_leaves_none() -> None:
    a = zeroed(WHOLE, (0, HEAD + 20_000))
    b = zeroed(WHOLE, (len(WHOLE) - 50_000, len(WHOLE)))
    assert outcome(merged(a, b)) == outcome(merged(b, a)) == WHOLE


def test_heads_that_are_damaged_in_different_places_are_joined() -> None:
    a, b = zeroed(WHOLE, (100, 3000)), zeroed(WHOLE, (3000, HEAD))
    assert outcome(merged(a, b)) == WHOLE


def test_a_shorter_dump_is_completed() -> None:
    assert outcome(merged(WHOLE[:-77_777], WHOLE)) == WHOLE


def test_a_difference_that_nothing_proves_is_a_conflict_and_never_a_vote() -> None:
    place = span(WHOLE, "layers.1.mlp.up_proj.lora_A").start + 100
    other = bytearray(WHOLE)
    other[place] ^= 1
    worked_out = merged(bytes(other), WHOLE, WHOLE)
    assert not worked_out.writes
    assert worked_out.result.verdict is Verdict.PARTIAL
    (first, *_) = worked_out.result.conflicts
    assert first.offset <= place < first.offset + PAGE


def test_stating_where_a_copy_is_wrong_decides_a_conflict() -> None:
    place = HEAD + 9000
    other = WHOLE[:place] + bytes([WHOLE[place] ^ 1]) + WHOLE[place + 1 :]
    stated = copy(other, stated=[Range(place, place + 1)])
    assert outcome(merged(stated, WHOLE)) == WHOLE


def test_a_nan_that_the_other_dump_does_not_have_is_damage() -> None:
    broken = filled_with_nan(WHOLE, HEAD + 12_000, HEAD + 12_002)
    for copies in ((broken, WHOLE), (WHOLE, broken)):
        assert outcome(merged(*copies)) == WHOLE
    assert merged(broken, WHOLE).result.changes[0].how_known == Reason.NOT_FINITE


def test_a_nan_in_every_dump_proves_nothing() -> None:
    file = filled_with_nan(WHOLE, HEAD + 12_000, HEAD + 12_002)
    other = file[: HEAD + 12_100] + bytes([file[HEAD + 12_100] ^ 1]) + file[HEAD + 12_101 :]
    assert merged(file, file).result.verdict is None
    assert merged(file, other).result.conflicts


def test_what_all_dumps_lack_is_lost_and_named() -> None:
    tensor = span(WHOLE, "layers.1.mlp.up_proj.lora_A")
    gone = Range(tensor.start + 100, tensor.start + 6000)
    result = merged(zeroed(WHOLE, gone), zeroed(WHOLE, gone)).result
    assert result.verdict is Verdict.PARTIAL
    assert total(result.lost) >= gone.size
    assert {d.place.tensor for d in result.damaged} == {
        "base_model.model.model.layers.1.mlp.up_proj.lora_A.weight"
    }
    assert (result.damaged[0].place.first_element, result.whole_tensors) == (50, 41)


def test_dumps_of_two_files_of_one_layout_are_no_dumps_of_one_file() -> None:
    worked_out = merged(zeroed(WHOLE, (HEAD, HEAD + 50_000)), adapter(seed=1))
    assert not worked_out.writes and worked_out.result.conflicts


def test_dumps_with_other_headers_are_refused() -> None:
    with pytest.raises(DoesNotHold, match="disagree"):
        merged(WHOLE, adapter(lora(rank=8)))


def test_unread_ranges_of_a_map_beside_a_dump_count_as_damage(tmp_path: Path) -> None:
    gone = Range(HEAD + 5000, HEAD + 5600)
    path = write(tmp_path, "a.safetensors.partial", zeroed(WHOLE, gone))
    read = (Range(0, gone.start), Range(gone.stop, len(WHOLE)))
    text = RescueMap(len(WHOLE), finished=read, bad=(gone,)).to_text()
    (tmp_path / "a.safetensors.rescue.map").write_text(text)
    with FileReadable(path) as file:
        assert outcome(merged(copy_of(file, path), WHOLE)) == WHOLE


def test_unread_ranges_of_a_record_count_as_damage(tmp_path: Path) -> None:
    gone = Range(HEAD + 5000, HEAD + 5600)
    path = write(tmp_path, "a.safetensors", zeroed(WHOLE, gone))
    entry = {"path": "a.safetensors", "size": len(WHOLE), "unread": [gone.to_json()]}
    write(tmp_path, "recovery.json", json.dumps({"files": [entry]}).encode())
    with FileReadable(path) as file:
        assert outcome(merged(copy_of(file, path), WHOLE)) == WHOLE


# --- planted damage ------------------------------------------------------------------------------

KINDS = ("zero", "nan", "unread", "garbage-unread")


@st.composite
def damage(draw: st.DrawFn) -> list[tuple[str, Range]]:
    """Up to 3 ranges that do not overlap, of sizes at which their kind can be told."""
    found: list[tuple[str, Range]] = []
    for _ in range(draw(st.integers(0, 3))):
        kind = draw(st.sampled_from(KINDS))
        least = {"zero": 5000, "nan": 4}.get(kind, 1)
        start = draw(st.integers(HEAD, len(WHOLE) - least))
        size = draw(st.integers(least, 40_000))
        piece = Range(start, min(start + size, len(WHOLE)))
        if not intersect((other for _, other in found), piece):
            found.append((kind, piece))
    return found


def planted(parts: list[tuple[str, Range]]) -> Copy:
    data = WHOLE
    unread: list[Range] = []
    for kind, piece in parts:
        if kind == "nan":
            data = filled_with_nan(data, *piece)
            continue
        garbage = kind == "garbage-unread"
        data = (
            data[: piece.start] + (b"\x3c" if garbage else b"\0") * piece.size + data[piece.stop :]
        )
        if kind != "zero":
            unread.append(piece)
    return copy_of(Bytes(data), None).with_flaws(unread, Reason.UNREAD)


def pages(parts: list[tuple[str, Range]]) -> set[int]:
    return {page for _, r in parts for page in range(r.start // PAGE, (r.stop - 1) // PAGE + 1)}


def wrong_bytes(claimed: Range, found: bytes, a: Copy, b: Copy) -> list[int]:
    """Give the places that are not what was; what both dumps agree on, nothing can tell."""
    return [
        place
        for start in range(claimed.start, claimed.stop, PAGE)
        if found[start : start + PAGE] != WHOLE[start : start + PAGE]
        for place in range(start, min(start + PAGE, claimed.stop))
        if found[place] != WHOLE[place] and a.read(place, 1) != b.read(place, 1)
    ]


@given(damage(), damage())
@settings(max_examples=60, deadline=None)
def test_damage_is_undone_or_owned_up_to(
    in_a: list[tuple[str, Range]], in_b: list[tuple[str, Range]]
) -> None:
    a, b = planted(in_a), planted(in_b)
    worked_out = merged(a, b)
    result = worked_out.result
    found = outcome(worked_out)
    open_ranges = [*result.lost, *(Range(c.offset, c.offset + c.bytes) for c in result.conflicts)]
    for claimed in subtract(Range(0, len(WHOLE)), open_ranges):
        assert wrong_bytes(claimed, found, a, b) == []
    if not pages(in_a) & pages(in_b):
        assert found == WHOLE
        assert not open_ranges
