"""What once went wrong in a repair, each with the answer that is right."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from broken_adapters import (
    Bytes,
    Entries,
    adapter,
    copy,
    header_of,
    lora,
    outcome,
    span,
    write,
    write_config,
    zeroed,
)
from victims import Answer, reef

from reefkit.errors import DestinationExists, DoesNotHold, Unusable
from reefkit.recover.formats.safetensors import write_header
from reefkit.recover.ranges import Range, subtract
from reefkit.recover.readable import FileReadable
from reefkit.recover.repair.copies import Copy, copy_of
from reefkit.recover.repair.header_candidate import agreement, changed_ranges
from reefkit.recover.repair.header_sources import HeaderSources
from reefkit.recover.repair.known_headers import from_sibling
from reefkit.recover.repair.result import Repair
from reefkit.recover.repair.stage import Plan, Request, open_destination, plan
from reefkit.recover.repair.stage import write as write_plan
from reefkit.recover.repair.written import Destination
from reefkit.recover.save.rescue_map import RescueMap
from reefkit.recover.save.verdict import Verdict

PAGE = 4096
WHOLE = adapter()
HEADER = header_of(WHOLE)
HEAD = HEADER.data_start
SHA256 = hashlib.sha256(WHOLE).hexdigest()
BROKEN = zeroed(WHOLE, (0, HEAD))
AT = 20 * PAGE
NAN = b"\xc0\x7f"


def repair(path: Path | str, *arguments: str | Path) -> Answer:
    return reef("repair", path, "--json", *arguments)


def planned(*copies: bytes | Copy) -> Plan:
    return plan(Request(tuple(c if isinstance(c, Copy) else copy(c) for c in copies)))


def judged(file: bytes) -> Repair:
    return planned(file).result


def put(file: bytes, *changes: tuple[int, bytes]) -> bytes:
    changed = bytearray(file)
    for place, data in changes:
        changed[place : place + len(data)] = data
    return bytes(changed)


def flipped(file: bytes, place: int) -> bytes:
    return put(file, (place, bytes([file[place] ^ 0x40])))


# --- two runs on one output ----------------------------------------------------------------------


def test_a_run_that_comes_second_neither_writes_nor_deletes_what_the_first_writes(
    tmp_path: Path,
) -> None:
    first, second = planned(put(WHOLE, (0, bytes(8)))), planned(put(adapter(seed=1), (0, bytes(8))))
    out = tmp_path / "out"
    with open_destination(out, (), force=True) as one:
        assert first.composed is not None and second.composed is not None
        one.write(first.composed, 0o600)
        with open_destination(out, (), force=True) as two:
            with pytest.raises(Unusable, match="Another run is writing"):
                two.write(second.composed, 0o600)
        one.finish({})
    assert out.read_bytes() == WHOLE
    assert sorted(os.listdir(tmp_path)) == ["out", "out.recovery.json"]


def test_what_was_put_in_the_place_of_the_temporary_file_gets_no_name(tmp_path: Path) -> None:
    worked_out = planned(put(WHOLE, (0, bytes(8))))
    assert worked_out.composed is not None
    with Destination(tmp_path / "out", (), force=False) as place:
        place.write(worked_out.composed, 0o600)
        (temporary,) = tmp_path.iterdir()
        temporary.unlink()
        temporary.write_bytes(b"another's")
        with pytest.raises(Unusable):
            place.finish({})
    assert temporary.read_bytes() == b"another's"
    assert os.listdir(tmp_path) == [temporary.name]


def test_what_a_dead_run_left_is_in_nobodys_way(tmp_path: Path) -> None:
    path, sibling = write(tmp_path, "a", BROKEN), write(tmp_path, "b", adapter(seed=4))
    out = tmp_path / "out"
    with Destination(out, (), force=False) as place:
        composed = planned(put(WHOLE, (0, bytes(8)))).composed
        assert composed is not None
        place.write(composed, 0o400)
        (temporary,) = tmp_path.glob(".*")
        os.link(temporary, tmp_path / "kept")
    os.rename(tmp_path / "kept", temporary)
    assert repair(path, "--like", sibling, "--out", out).code == 1
    assert out.read_bytes() == WHOLE and not list(tmp_path.glob(".*"))


def test_a_locked_temporary_file_is_reported_in_one_sentence(tmp_path: Path) -> None:
    path, sibling = write(tmp_path, "a", BROKEN), write(tmp_path, "b", WHOLE)
    name = Destination(tmp_path / "out", (), force=False)._temporary  # pyright: ignore[reportPrivateUsage]
    with (tmp_path / name).open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        answer = repair(path, "--like", sibling, "--out", tmp_path / "out")
    assert answer.code == 2 and "Another run" in answer.json["message"] and answer.json["remedy"]


# --- zeros ---------------------------------------------------------------------------------------


def at_step_0() -> bytes:
    return zeroed(WHOLE, *(HEADER.span(t) for t in HEADER.tensors if "lora_B" in t.name))


STEP_0 = at_step_0()
B = span(WHOLE, "layers.0.mlp.up_proj.lora_B")


def page_with(place: int) -> Range:
    return Range(place // PAGE * PAGE, place // PAGE * PAGE + PAGE)


def test_zeros_beside_a_lora_b_of_step_0_do_not_condemn_it() -> None:
    lost = page_with(B.start - 100)
    broken = zeroed(STEP_0, lost)
    (damaged,) = judged(broken).damaged
    assert (damaged.place.offset, damaged.place.bytes) == (lost.start, B.start - lost.start)
    result = planned(broken, flipped(STEP_0, B.start + 9000)).result
    assert result.conflicts and not any(damaged.restored for damaged in result.damaged)


def test_zeros_at_both_ends_of_a_lora_b_of_step_0_are_restored() -> None:
    ends = [zeroed(STEP_0, page_with(place)) for place in (B.start - 100, B.stop)]
    worked_out = planned(*ends)
    assert outcome(worked_out) == STEP_0
    assert worked_out.result.verdict is Verdict.REBUILT_UNVERIFIED and not worked_out.result.lost


@pytest.mark.parametrize("before", [8, 16, 56])
def test_a_zero_page_across_a_border_is_seen_and_restored_in_both_tensors(before: int) -> None:
    entries: Entries = [(f"{name}.lora_A.weight", "BF16", (64, 256)) for name in "ab"]
    size = 64 * 256 * 2
    raws = (write_header(entries, {"format": "pt", "x": "y" * more}) for more in range(0, PAGE, 8))
    raw = next(raw for raw in raws if (len(raw) + size) % PAGE == before)
    whole = raw + adapter(entries)[-2 * size :]
    broken = zeroed(whole, page_with(len(raw) + size))
    assert judged(broken).verdict is Verdict.PARTIAL
    assert outcome(planned(broken, whole)) == whole


def packed() -> Entries:
    """A model in four bits, as bitsandbytes stores it."""
    entries: Entries = []
    for layer in range(3):
        for module in ("self_attn.q_proj", "mlp.up_proj"):
            name = f"model.layers.{layer}.{module}.weight"
            entries += [
                (name, "U8", (32768, 1)),
                (f"{name}.absmax", "F32", (1024,)),
                (f"{name}.quant_map", "F32", (16,)),
            ]
    return entries


CLASSES: dict[str, Entries] = {
    "four-bit": packed(),
    "I8": [(f"model.layers.{i}.q_proj.weight", "I8", (256, 256)) for i in range(4)],
    "norms": [(f"model.layers.{i}.input_layernorm.weight", "F32", (4096,)) for i in range(4)],
    "embeddings": [
        ("lm_head.weight", "BF16", (512, 256)),
        ("model.embed_tokens.weight", "BF16", (512, 256)),
    ],
}


@pytest.mark.parametrize("kind", CLASSES)
def test_a_file_whose_second_half_is_zero_is_never_intact_and_comes_back(kind: str) -> None:
    whole = adapter(CLASSES[kind])
    broken = zeroed(whole, (len(whole) // 2 + 1234, len(whole)))
    assert judged(broken).verdict is Verdict.PARTIAL
    assert outcome(planned(broken, whole)) == whole


@pytest.mark.parametrize("tensor", ["lm_head", "input_layernorm"])
def test_a_zero_page_inside_a_row_is_seen(tensor: str) -> None:
    whole = adapter(
        [
            ("lm_head.weight", "BF16", (64, 4096)),
            ("model.layers.0.input_layernorm.weight", "BF16", (4096,)),
        ]
    )
    start = span(whole, tensor).start // PAGE * PAGE + PAGE
    assert judged(zeroed(whole, (start, start + PAGE))).verdict is Verdict.PARTIAL


def padded_rank() -> bytes:
    """An adapter of rank 8 that was stored with rank 16."""
    file = bytearray(WHOLE)
    for tensor in HEADER.tensors:
        place = HEADER.span(tensor)
        if "lora_A" in tensor.name:
            file[place.start + place.size // 2 : place.stop] = bytes(place.size // 2)
        else:
            for row in range(place.start, place.stop, 32):
                file[row + 16 : row + 32] = bytes(16)
    return bytes(file)


def test_an_adapter_that_was_padded_to_a_larger_rank_is_whole() -> None:
    file = padded_rank()
    assert judged(file).exit_code == 0
    row = span(file, "layers.1.self_attn.q_proj.lora_B").start + 32 * 7
    assert judged(put(file, (row + 20, b"\1"))).verdict is Verdict.PARTIAL


def test_pruned_rows_of_experts_are_whole() -> None:
    name = "model.layers.0.mlp.experts.down_proj"
    whole = adapter([(name, "BF16", (4, 64, 4096))])
    start = header_of(whole).data_start
    result = judged(zeroed(whole, (start + 3 * 8192, start + 5 * 8192)))
    assert result.exit_code == 0 and any("rows" in note for note in result.notes)


# --- what is not finite --------------------------------------------------------------------------


@pytest.mark.parametrize("value", [NAN, b"\x80\xff"], ids=["nan", "minus-infinity"])
def test_what_is_not_finite_condemns_only_itself(value: bytes) -> None:
    first = put(WHOLE, (AT + 10, value))
    result = planned(first, flipped(WHOLE, AT + 3000)).result
    assert not result.changes
    places = [(place.offset, place.offset + place.bytes) for place in result.conflicts]
    assert any(start <= AT + 3000 < stop for start, stop in places)


def test_nans_at_different_places_of_one_page_undo_each_other() -> None:
    copies = [put(WHOLE, (AT + place, NAN)) for place in (10, 2000)]
    assert outcome(planned(*copies)) == WHOLE


def test_a_nan_does_not_replace_what_another_copy_lost() -> None:
    tensor = span(WHOLE, "layers.1.mlp.up_proj.lora_A")
    result = planned(zeroed(WHOLE, tensor), put(WHOLE, (tensor.start + 64, NAN))).result
    assert result.lost == (Range(tensor.start + 64, tensor.start + 66),)


def test_a_tail_of_ff_is_damage_and_a_single_nan_a_doubt() -> None:
    tail = judged(put(WHOLE, (len(WHOLE) - 20_000, b"\xff" * 20_000)))
    assert tail.verdict is Verdict.PARTIAL and sum(r.size for r in tail.lost) == 20_000
    single = judged(put(WHOLE, (AT + 10, NAN)))
    assert single.verdict is None and single.doubts and single.exit_code == 1


# --- records and maps beside a dump --------------------------------------------------------------

LOST = Range(40 * PAGE, 56 * PAGE)
GARBLED = put(WHOLE, (LOST.start, b"\x3c" * LOST.size))


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("absolute", [False, True])
def test_what_a_partial_repair_could_not_restore_is_known_ever_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, absolute: bool, moved: bool
) -> None:
    folder = tmp_path / "sub"
    folder.mkdir()
    path = write(folder, "a", put(GARBLED, (0, bytes(8))))
    monkeypatch.chdir(tmp_path)
    named = path if absolute else Path("sub/a")
    assert repair(named, "--damaged", f"{LOST.start}:{LOST.stop}").json["verdict"] == "PARTIAL"
    if moved:
        folder = folder.rename(tmp_path / "elsewhere")
    answer = repair(folder / "a.repaired")
    assert (answer.code, answer.json["verdict"]) == (1, "PARTIAL")
    assert answer.json["files"][0]["unread"] == [LOST.to_json()]


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"verdict": "MEMORY_DIRTY"}, "MEMORY_DIRTY"),
        ({"verdict": "CHANGED"}, "CHANGED"),
        ({"verdict": "FILE_EXACT", "matches_expected": False}, "not the expected"),
        ({"verdict": "FILE_EXACT", "sha256": "0" * 64}, "other bytes"),
        ({"verdict": "FILE_EXACT", "size": 1}, "other bytes"),
    ],
)
def test_a_record_that_does_not_vouch_for_a_file_is_a_doubt(
    tmp_path: Path, said: dict[str, object], words: str
) -> None:
    path = write(tmp_path, "a", WHOLE)
    entry = {"path": "a", "size": len(WHOLE), "sha256": SHA256, **said}
    write(tmp_path, "recovery.json", json.dumps({"files": [entry]}).encode())
    answer = repair(path)
    (doubt,) = answer.json["doubts"]
    assert answer.code == 1 and words in doubt
    assert repair(path, "--expect-sha256", SHA256).code == 0


def test_a_record_beside_a_file_that_speaks_of_another_one_is_a_doubt(tmp_path: Path) -> None:
    path = write(tmp_path, "a", WHOLE)
    entry = {"path": "b", "size": len(WHOLE), "sha256": SHA256}
    write(tmp_path, "a.recovery.json", json.dumps({"files": [entry]}).encode())
    assert repair(path).code == 1


def test_a_record_that_vouches_for_a_file_is_none(tmp_path: Path) -> None:
    path = write(tmp_path, "a", WHOLE)
    entry = {"path": "a", "size": len(WHOLE), "sha256": SHA256, "verdict": "MEMORY_CLEAN"}
    write(tmp_path, "recovery.json", json.dumps({"files": [entry]}).encode())
    assert repair(path).code == 0


def test_tensors_recorded_as_dirty_are_damaged(tmp_path: Path) -> None:
    path = write(tmp_path, "a", WHOLE)
    names = [tensor.name for tensor in HEADER.tensors[5:7]]
    entry = {"path": "a", "size": len(WHOLE), "verdict": "MEMORY_DIRTY", "dirty_tensors": names}
    write(tmp_path, "recovery.json", json.dumps({"files": [entry]}).encode())
    answer = repair(path)
    assert [damaged["tensor"] for damaged in answer.json["damaged"]] == names
    assert answer.json["verdict"] == "PARTIAL"


@pytest.mark.parametrize("kept", [0, 4, 5], ids=["empty", "comments", "first-block"])
def test_what_a_map_that_was_cut_short_does_not_name_was_not_read(
    tmp_path: Path, kept: int
) -> None:
    path = write(tmp_path, "a.partial", GARBLED)
    read = subtract(Range(0, len(WHOLE)), [LOST])
    lines = RescueMap(len(WHOLE), read, (LOST,)).to_text().splitlines(keepends=True)
    write(tmp_path, "a.rescue.map", "".join(lines[:kept]).encode())
    with FileReadable(path) as file:
        (unread, *_) = copy_of(file, path).flawed
    assert unread == (Range(LOST.start, len(WHOLE)) if kept == 5 else Range(0, len(WHOLE)))


def test_a_map_that_is_none_is_named_with_a_remedy(tmp_path: Path) -> None:
    path = write(tmp_path, "a", WHOLE)
    write(tmp_path, "a.rescue.map", b"0x0 0 +\n0x0")
    answer = repair(path)
    assert answer.code == 2 and "a.rescue.map" in answer.json["message"] and answer.json["remedy"]


# --- a file that changes under the run -----------------------------------------------------------


@pytest.mark.parametrize("change", ["cut", "rewritten"])
def test_nothing_is_written_from_a_file_that_changes_while_it_is_read(
    tmp_path: Path, change: str
) -> None:
    path = write(tmp_path, "a", put(WHOLE, (0, bytes(8))))
    with FileReadable(path) as file:
        worked_out = plan(Request((copy_of(file, path),)))
        if change == "cut":
            os.truncate(path, 200_000)
        else:
            time.sleep(0.02)
            with path.open("r+b") as other:
                other.seek(AT)
                other.write(b"\x3c")
        with (
            pytest.raises(DoesNotHold, match="changed while it was read"),
            open_destination(tmp_path / "out", (), force=False) as place,
        ):
            write_plan(worked_out, place)
    assert os.listdir(tmp_path) == ["a"]


# --- headers that disagree -----------------------------------------------------------------------

OTHER_METADATA = WHOLE.replace(b'"pt"', b'"qt"', 1)


def test_copies_with_other_metadata_leave_a_doubt_unless_a_sibling_decides() -> None:
    copies = (copy(OTHER_METADATA, "first"), copy(WHOLE, "second"))
    result = plan(Request(copies)).result
    assert result.exit_code == 1 and "metadata" in result.doubts[0]
    sibling = HeaderSources(siblings=(from_sibling(Bytes(adapter(seed=3), "sibling")),))
    assert outcome(plan(Request(copies, sibling.candidates))) == WHOLE


def test_metadata_that_no_copy_shares_with_a_sibling_is_no_exit_0() -> None:
    sibling = HeaderSources(siblings=(from_sibling(Bytes(WHOLE, "sibling")),))
    result = plan(Request((copy(OTHER_METADATA),), sibling.candidates)).result
    assert result.exit_code == 1 and result.verdict is None


def test_a_head_that_disagrees_is_named_by_its_copy() -> None:
    other = put(WHOLE, (WHOLE.index(b"down_proj"), b"D"))
    with pytest.raises(DoesNotHold, match="second") as caught:
        plan(Request((copy(WHOLE, "first"), copy(other, "second"))))
    assert "second are damaged, leave it out" in (caught.value.remedy or "")


def test_a_copy_of_other_tensors_is_refused_though_a_sibling_confirms_the_first() -> None:
    sibling = HeaderSources(siblings=(from_sibling(Bytes(WHOLE, "sibling")),))
    other = adapter(lora(rank=8))
    with pytest.raises(DoesNotHold, match="disagree"):
        plan(Request((copy(WHOLE), copy(other)), sibling.candidates))


def test_the_head_of_a_file_that_was_cut_short_comes_from_a_sibling() -> None:
    sibling = HeaderSources(siblings=(from_sibling(Bytes(WHOLE, "sibling")),))
    worked_out = plan(Request((copy(BROKEN[:-5000]),), sibling.candidates))
    assert outcome(worked_out)[:-5000] == WHOLE[:-5000]
    assert worked_out.result.lost == (Range(len(WHOLE) - 5000, len(WHOLE)),)


def test_a_lora_of_integers_is_no_exit_0() -> None:
    file = adapter(lora(dtype="F16")).replace(b'"F16"', b'"I16"', 1)
    assert judged(file).exit_code == 1


def manifest(folder: Path, *files: tuple[str, bytes]) -> Path:
    entries = [
        {
            "path": name,
            "size": len(file),
            "sha256": hashlib.sha256(file).hexdigest(),
            "header": base64.b64encode(file[:HEAD]).decode(),
        }
        for name, file in files
    ]
    document = {"schema": "reefkit.manifest/1", "files": entries}
    return write(folder, "manifest.json", json.dumps(document).encode())


@pytest.mark.parametrize("broken", [False, True])
def test_any_digest_that_a_manifest_keeps_for_a_header_proves_the_file(
    tmp_path: Path, broken: bool
) -> None:
    later = adapter(seed=9)
    known = manifest(tmp_path, ("step_7/a", WHOLE), ("step_8/a", later))
    path = write(tmp_path, "a", zeroed(later, (0, HEAD)) if broken else later)
    answer = repair(path, "--manifest", known)
    assert (answer.code, answer.json["files"][0]["matches_expected"]) == (0, True)
    unknown = write(tmp_path, "a", adapter(seed=2))
    assert repair(unknown, "--manifest", known).code == 1


def test_a_manifest_of_another_name_gives_a_header_and_expects_no_digest(tmp_path: Path) -> None:
    known = manifest(tmp_path, ("other", WHOLE))
    answer = repair(write(tmp_path, "a", adapter(seed=9)), "--manifest", known)
    assert (answer.code, answer.json["files"][0]["expected_sha256"]) == (0, None)


# --- what is never overwritten, and what is said -------------------------------------------------


@pytest.mark.parametrize(
    "victim", ["sibling", "config.json", "manifest.json", "a.rescue.map", "adapter_config.json"]
)
def test_no_operand_is_overwritten_even_by_force(tmp_path: Path, victim: str) -> None:
    path, sibling = write(tmp_path, "a", BROKEN), write(tmp_path, "sibling", WHOLE)
    known = manifest(tmp_path, ("a", WHOLE))
    config = write_config(tmp_path)
    write(tmp_path, "adapter_config.json", b'{"peft_type": "LORA", "r": 16}')
    write(
        tmp_path, "a.rescue.map", RescueMap(len(WHOLE), (Range(0, len(WHOLE)),)).to_text().encode()
    )
    before = (tmp_path / victim).read_bytes()
    options: list[str | Path] = ["--like", sibling, "--manifest", known, "--base", config]
    answer = repair(path, *options, "--out", tmp_path / victim, "--force")
    assert answer.code == 2 and "never written to" in answer.json["message"]
    assert (tmp_path / victim).read_bytes() == before


def test_a_record_is_not_written_over_an_input(tmp_path: Path) -> None:
    path, sibling = write(tmp_path, "x.recovery.json", BROKEN), write(tmp_path, "b", WHOLE)
    answer = repair(path, "--like", sibling, "--out", tmp_path / "x", "--force")
    assert answer.code == 2 and path.read_bytes() == BROKEN


@pytest.mark.parametrize("what", ["pipe", "link"])
def test_only_a_file_is_ever_replaced(tmp_path: Path, what: str) -> None:
    path, sibling = write(tmp_path, "a", BROKEN), write(tmp_path, "b", WHOLE)
    out = tmp_path / "out"
    if what == "pipe":
        os.mkfifo(out)
    else:
        out.symlink_to("nowhere")
    mode = out.lstat().st_mode
    assert repair(path, "--like", sibling, "--out", out, "--force").code == 2
    assert out.lstat().st_mode == mode


def test_an_existing_result_is_in_the_way_only_of_a_new_one(tmp_path: Path) -> None:
    write(tmp_path, "a.repaired", b"precious")
    assert repair(write(tmp_path, "a", WHOLE)).code == 0
    path = write(tmp_path, "a", put(WHOLE, (0, bytes(8))))
    assert repair(path).json["code"] == DestinationExists.__name__


def test_a_conflict_is_named_to_the_byte_and_claims_nothing(tmp_path: Path) -> None:
    lost = page_with(40 * PAGE)
    first = write(tmp_path, "a", flipped(zeroed(WHOLE, lost), 80 * PAGE + 5))
    second = write(tmp_path, "b", WHOLE)
    document = repair(first, "--with", second).json
    (conflict,) = document["conflicts"]
    assert (conflict["offset"], conflict["bytes"]) == (80 * PAGE + 5, 1)
    assert [damaged["restored"] for damaged in document["damaged"]] == [False]
    text = reef("repair", first, "--with", second).out
    assert "Nothing was written." in text and " from " not in text
    place = f"{80 * PAGE + 5}:{80 * PAGE + 6}"
    assert f"--damaged {place}" in text
    ranges = reef("repair", first, "--with", second, "--ranges").out
    assert "differ" in ranges and "No damaged range" not in ranges


def test_headers_that_leave_a_choice_are_named_by_ranges_too(tmp_path: Path) -> None:
    file = adapter(lora(modules=("self_attn.q_proj", "self_attn.v_proj")))
    path = write(tmp_path, "a", zeroed(file, (0, header_of(file).data_start)))
    answer = reef("repair", path, "--base", write_config(tmp_path), "--ranges")
    assert answer.code == 1 and "headers fit" in answer.out and "No damaged" not in answer.out


def test_digits_of_another_script_are_no_range(tmp_path: Path) -> None:
    assert repair(write(tmp_path, "a", WHOLE), "--damaged", "٣:٩").code == 2


# --- redundancy and hostile heads ----------------------------------------------------------------


def fused(layers: int) -> bytes:
    """An adapter in which gate and up have one A."""
    modules = ("mlp.gate_proj", "mlp.up_proj")
    file = bytearray(adapter(lora(rank=64, layers=layers, modules=modules)))
    for layer in range(layers):
        gate, up = (span(bytes(file), f"layers.{layer}.{m}.lora_A") for m in modules)
        file[up.start : up.stop] = file[gate.start : gate.stop]
    return bytes(file)


def test_of_a_twin_something_must_survive() -> None:
    file = fused(layers=5)
    gone = span(file, "layers.1.mlp.up_proj.lora_A")
    assert not planned(zeroed(file, gone)).result.changes
    assert outcome(planned(zeroed(file, (gone.start + 200, gone.stop)))) == file


def test_two_other_groups_prove_no_pattern() -> None:
    file = fused(layers=3)
    gone = span(file, "layers.1.mlp.up_proj.lora_A")
    assert not planned(zeroed(file, (gone.start + 200, gone.stop))).result.changes


def holes(file: bytes, layers: int) -> Iterator[Range]:
    for layer in range(3, layers):
        tensor = span(file, f"layers.{layer}.mlp.up_proj.lora_A")
        yield from (Range(at, at + 4) for at in range(tensor.start + 8, tensor.stop - 8, 8))


def test_many_lost_ranges_take_linear_time() -> None:
    file = fused(layers=8)
    gone = list(holes(file, 8))
    assert len(gone) > 20_000
    started = time.perf_counter()
    worked_out = planned(copy(zeroed(file, *gone), stated=gone))
    assert time.perf_counter() - started < 15
    assert outcome(worked_out) == file


def test_a_large_head_that_disagrees_takes_little_time_and_names_few_ranges() -> None:
    raw = bytes(range(1, 251)) * 40_000
    other = bytearray(raw)
    other[::2] = b"\xff" * len(other[::2])
    started = time.perf_counter()
    found = agreement(raw, bytes(other), ())
    assert found.disagreeing == len(raw) // 2 and len(found.differing) <= 1000
    assert len(changed_ranges(raw, raw[:100] + bytes(other[100:]))) <= 1000
    assert time.perf_counter() - started < 2
