"""What a reader of a chain of custody finds: every edit, and what the links say themselves."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from victims import unsafe_for_a_terminal

from reefkit.errors import Unusable
from reefkit.provenance.custody.chain import against_files, final_outputs, read_chain
from reefkit.provenance.custody.head import head_document
from reefkit.provenance.custody.statements import (
    loose_statement,
    read_statement,
    supersede,
    withdraw,
)
from reefkit.provenance.finding import FindingKind
from reefkit.records.custody import Artifact, Link, append, extended, read

FILE = Artifact("a.safetensors", "a" * 64, 10, action="carried")
OTHER = Artifact("a.safetensors", "b" * 64, 10)


def chain_of(*links: Link) -> bytes:
    data = b""
    for link in links:
        data = extended(data, link)
    return data


CHAIN = chain_of(
    Link("dump", outputs=[FILE]),
    Link("validate", inputs=[FILE]),
    Link("repair", inputs=[FILE], outputs=[OTHER]),
    Link("pack", inputs=[OTHER]),
)
HEAD = head_document(CHAIN)
LINES = CHAIN.splitlines(keepends=True)


def kinds(data: bytes, head: bytes | None = None) -> list[FindingKind]:
    return [finding.kind for finding in read_chain(data, head).findings]


def test_a_whole_chain_has_no_findings() -> None:
    chain = read_chain(CHAIN, HEAD)
    assert chain.findings == ()
    assert [(link.seq, link.stage) for link in chain.links] == [
        (0, "dump"),
        (1, "validate"),
        (2, "repair"),
        (3, "pack"),
    ]


def test_the_head_says_where_the_chain_ends() -> None:
    document = json.loads(HEAD)
    assert (document["schema"], document["seq"], document["count"]) == (
        "reefkit.custody-head/1",
        3,
        4,
    )
    assert document["hash"] == read_chain(CHAIN, None).links[-1].sha256


@pytest.mark.parametrize("kept", range(len(LINES)))
def test_links_cut_off_at_the_end_are_missed_by_the_head_alone(kept: int) -> None:
    data = b"".join(LINES[:kept])
    assert kinds(data) == ([] if kept else [FindingKind.NOTHING_VERIFIED])
    assert kinds(data, HEAD) == [FindingKind.CUSTODY_TRUNCATED]


def test_links_after_the_signed_head_break_the_chain() -> None:
    data = extended(CHAIN, Link("push", inputs=[OTHER]))
    assert kinds(data) == []
    (finding,) = read_chain(data, HEAD).findings
    assert finding.kind is FindingKind.CUSTODY_BROKEN
    assert "after the signed head" in finding.diagnosis


CHANGES: list[tuple[Callable[[list[bytes]], list[bytes]], str]] = [
    (lambda ls: [ls[0], ls[2], ls[3]], "line 2 (repair) is link 2, where 1 must follow 0"),
    (lambda ls: ls[1:], "names a predecessor, but nothing comes before it"),
    (lambda ls: [ls[0], ls[2], ls[1], ls[3]], "reordered or inserted"),
    (lambda ls: [*ls[:2], ls[1], *ls[2:]], "repeats the number of the one before it, 1"),
    (lambda ls: [ls[0].replace(b"dump", b"dumb"), *ls[1:]], "another predecessor"),
    (lambda ls: [*ls[:3], ls[3][:-1]], "line 4 is torn"),
    (lambda ls: [*ls[:3], b"\n", ls[3]], "line 4 is no statement"),
    (lambda ls: [*ls[:3], b"[]\n"], "is not a JSON object"),
    (lambda ls: [*ls[:3], b'{"_type":"x"}\n'], "no in-toto Statement"),
]


@pytest.mark.parametrize(("change", "says"), CHANGES)
def test_every_edit_is_told_with_its_line(
    change: Callable[[list[bytes]], list[bytes]], says: str
) -> None:
    found = read_chain(b"".join(change(LINES)), None).findings
    assert {finding.kind for finding in found} == {FindingKind.CUSTODY_BROKEN}
    assert any(says in finding.diagnosis for finding in found)


def test_another_predicate_type_is_a_finding_of_its_own() -> None:
    foreign = json.loads(LINES[3])
    foreign["predicateType"] = "https://slsa.dev/provenance/v1"
    data = b"".join([*LINES[:3], json.dumps(foreign).encode() + b"\n"])
    (finding,) = read_chain(data, None).findings
    assert finding.kind is FindingKind.PREDICATE_TYPE
    assert "https://slsa.dev/provenance/v1" in finding.diagnosis


def test_an_input_that_is_not_what_an_earlier_stage_wrote_breaks_the_chain() -> None:
    data = chain_of(Link("dump", outputs=[FILE]), Link("validate", inputs=[OTHER]))
    (finding,) = read_chain(data, head_document(data)).findings
    assert finding.kind is FindingKind.CUSTODY_BROKEN
    assert "line 2 (validate) used a.safetensors with another sha256" in finding.diagnosis


def test_a_file_elsewhere_is_another_file_unless_it_has_the_name_of_one_here() -> None:
    elsewhere = Artifact(f"../{OTHER.name}", OTHER.sha256, 10, elsewhere=True)
    assert kinds(chain_of(Link("dump", outputs=[FILE]), Link("repair", inputs=[elsewhere]))) == []
    disguised = Artifact(OTHER.name, OTHER.sha256, 10, elsewhere=True)
    data = chain_of(Link("dump", outputs=[FILE]), Link("repair", inputs=[disguised]))
    assert kinds(data) == [FindingKind.CUSTODY_BROKEN]


def subject_of(listed: list[Any]) -> list[Any]:
    files: list[dict[str, Any]] = [each for each in listed if isinstance(each, dict)]
    return [{"name": each.get("name"), "digest": {"sha256": each.get("sha256")}} for each in files]


def rewritten(data: bytes, at: int, change: Callable[[dict[str, Any]], object]) -> bytes:
    """Change the predicate of one link, and hash all that follow anew."""
    statements: list[dict[str, Any]] = [json.loads(line) for line in data.splitlines()]
    change(statements[at]["predicate"])
    made: list[bytes] = []
    for statement in statements:
        predicate = statement["predicate"]
        if made:
            predicate["previous"] = {"sha256": hashlib.sha256(made[-1]).hexdigest()}
        listed: Any = predicate.get("outputs") or predicate.get("inputs")
        if type(listed).__name__ == "list":
            statement["subject"] = subject_of(listed)
        made.append(json.dumps(statement).encode())
    return b"".join(line + b"\n" for line in made)


def of_input(**change: object) -> Callable[[dict[str, Any]], object]:
    return lambda predicate: predicate["inputs"][0].update(change)


def of_output(**change: object) -> Callable[[dict[str, Any]], object]:
    return lambda predicate: predicate["outputs"][0].update(change)


def with_keys(**change: object) -> Callable[[dict[str, Any]], object]:
    return lambda predicate: predicate.update(change)


Lie = tuple[int, Callable[[dict[str, Any]], object]]


def inputs_with(key: str, *values: object) -> list[Lie]:
    return [(1, of_input(**{key: value})) for value in values]


def outputs_with(key: str, *values: object) -> list[Lie]:
    return [(0, of_output(**{key: value})) for value in values]


def keys_with(at: int, key: str, *values: object) -> list[Lie]:
    return [(at, with_keys(**{key: value})) for value in values]


def without_key(key: str) -> Lie:
    return 1, lambda predicate: predicate.pop(key)


NO_LISTS: list[object] = [{"name": "a.safetensors"}, None, "", 0, [[]], ["a"]]
LIES: list[Lie] = [
    *((1, of_input(name=name, sha256="c" * 64)) for name in
      ("./a.safetensors", "x/../a.safetensors", "a.safetensors/", "/a.safetensors",
       "x//a.safetensors", "", "a.safetensors\0", 7, None)),
    (1, of_input(elsewhere=True, sha256="c" * 64)),
    *inputs_with("elsewhere", "true", 1, None),
    *inputs_with("size", -1, 11, 10.0, "10", True),
    *inputs_with("sha256", "A" * 64, "a" * 63, "a" * 64 + "\n", None),
    *outputs_with("elsewhere", True),
    *outputs_with("action", "kept", "Carried", "carried\n", None, 1, []),
    *outputs_with(
        "tensors", [], {"w": None}, {"w": {}}, {"w": {"action": "kept"}},
        {"w": {"action": "copied", "ranges": [{"offset": -1, "bytes": 1}]}},
        {"w": {"action": "copied", "ranges": [{"offset": 0, "bytes": 1, "from": "x"}]}},
    ),
    *outputs_with("header", {"action": "kept"}),
    *keys_with(1, "inputs", *NO_LISTS),
    *keys_with(1, "outputs", *NO_LISTS),
    *keys_with(
        1, "stage", "Withdrawn", "withdrawn\n", " withdrawn", "WITHDRAWN", "with-drawn",
        "supersededby", "superseded_by", "Superseded-By", "continued ", "Validate", "", None,
        "w\u0456thdrawn", "withdrawn", "superseded-by", "continued",
    ),
    (1, with_keys(stage="superseded-by", reason="a reason")),
    (1, with_keys(stage="continued", reason="a reason")),
    *keys_with(1, "run_id", None, "", "f" * 31, "F" * 32, 1),
    *keys_with(
        1, "time", "2026-01-01", "2026-13-01T00:00:00Z", "2026-01-01T00:00:00Z\n", 0,
        "2026-01-01T00:00:00+02:00",
    ),
    *keys_with(1, "verdict", 1, ["holds"], {}),
    *keys_with(
        1, "tool", None, "reefkit", {}, {"name": "reefkit", "version": 1, "commit": None}
    ),
    *keys_with(1, "resumes", "", 1, "a" * 63),
    *keys_with(1, "unrecorded", 1, []),
    *keys_with(1, "damage", "0", -1, None, 0.0),
    *keys_with(1, "not_checked", "", None, [1]),
    *keys_with(1, "sources", [], {"stated": "3"}),
    *keys_with(1, "process", [], 1),
    *keys_with(3, "redaction", "None", "none ", "", None, []),
    *map(without_key, ("run_id", "time", "inputs", "outputs", "verdict", "tool")),
]  # fmt: skip


@pytest.mark.parametrize(("at", "change"), LIES)
def test_what_a_hashed_anew_link_hides_breaks_the_chain(
    at: int, change: Callable[[dict[str, Any]], object]
) -> None:
    data = rewritten(CHAIN, at, change)
    assert FindingKind.CUSTODY_BROKEN in kinds(data)


def test_hashing_anew_alone_changes_nothing_that_a_link_says() -> None:
    assert kinds(rewritten(CHAIN, 0, lambda predicate: None)) == []
    assert kinds(rewritten(CHAIN, 1, with_keys(time="2026-01-01T00:00:00Z"))) == []


def timed(*times: str | None) -> list[FindingKind]:
    return kinds(chain_of(*(Link("validate", inputs=[FILE], time=time) for time in times)))


def test_time_that_runs_backwards_breaks_the_chain_and_clocks_that_differ_do_not() -> None:
    noon = "2026-01-01T12:00:00Z"
    assert timed(noon, None, "2026-01-01T11:56:00Z") == []
    assert timed(noon, None, "2026-01-01T11:54:00Z") == [FindingKind.CUSTODY_BROKEN]
    assert timed("2026-01-01T11:58:00Z", noon, "2026-01-01T11:54:00Z") == [
        FindingKind.CUSTODY_BROKEN
    ]


def test_the_stated_date_of_a_package_is_no_clock() -> None:
    packed = Link("pack", inputs=[FILE], run_id=None, time="1980-01-01T00:00:00Z")
    assert kinds(chain_of(Link("dump", outputs=[FILE], time="2026-01-01T12:00:00Z"), packed)) == []


def test_a_run_id_that_stands_twice_breaks_the_chain() -> None:
    links = [Link(stage, inputs=[FILE], run_id="1" * 32) for stage in ("validate", "rebuild")]
    (finding,) = read_chain(chain_of(*links), None).findings
    assert finding.kind is FindingKind.CUSTODY_BROKEN
    assert "line 2 (rebuild) repeats the run id of line 1 (validate)" in finding.diagnosis


def test_a_name_in_another_normal_form_is_the_same_file() -> None:
    composed = Artifact("\u00e9.safetensors", "a" * 64)
    apart = Artifact("e\u0301.safetensors", "b" * 64)
    data = chain_of(Link("dump", outputs=[composed]), Link("validate", inputs=[apart]))
    assert kinds(data) == [FindingKind.CUSTODY_BROKEN]


def test_what_is_packed_must_be_what_was_judged() -> None:
    judged, packed = Link("validate", inputs=[FILE]), Link("pack", inputs=[OTHER])
    assert kinds(chain_of(judged, packed)) == [FindingKind.CUSTODY_BROKEN]


def test_the_last_word_on_each_file_is_held_against_the_files() -> None:
    config = Artifact("adapter_config.json", "c" * 64)
    lost = Artifact("lost", "d" * 64, action="dropped")
    chain = read_chain(
        chain_of(
            Link("dump", outputs=[FILE, Artifact("lost", "e" * 64)]),
            Link("repair", inputs=[FILE, config], outputs=[OTHER, lost]),
        ),
        None,
    )
    assert final_outputs(chain) == {"a.safetensors": "b" * 64}
    held = {"a.safetensors": "b" * 64, "adapter_config.json": "c" * 64, "lost": "0" * 64}
    assert list(against_files(chain, held)) == []
    assert list(against_files(chain, {})) == []
    edited = {"a.safetensors": "a" * 64, "adapter_config.json": "0" * 64}
    found = {each.path: each for each in against_files(chain, edited)}
    assert {each.kind for each in found.values()} == {FindingKind.CUSTODY_BROKEN}
    assert "not what stage `repair` wrote" in found["a.safetensors"].diagnosis
    assert "not what stage `repair` used" in found["adapter_config.json"].diagnosis
    below = {f"run/{name}": digest for name, digest in edited.items()}
    assert list(against_files(chain, below)) == []
    assert len(list(against_files(chain, below, folder="run"))) == 2


def test_a_subject_that_is_not_what_the_link_lists_is_a_contradiction() -> None:
    statement = json.loads(LINES[0])
    statement["subject"][0]["digest"]["sha256"] = "f" * 64
    (finding,) = read_chain(json.dumps(statement).encode() + b"\n", None).findings
    assert "contradicts itself" in finding.diagnosis


def test_a_resumed_run_is_said_and_a_missing_one_breaks_the_chain() -> None:
    first = chain_of(Link("dump", outputs=[FILE]))
    link = read_chain(first, None).links[0]
    data = extended(first, Link("dump", outputs=[FILE], resumes=link.sha256))
    assert kinds(data) == [FindingKind.RESUMED]
    other = extended(data, Link("validate", inputs=[FILE], resumes=link.sha256))
    assert kinds(other) == [FindingKind.RESUMED, FindingKind.CUSTODY_BROKEN]


def test_a_chain_that_starts_anew_beside_a_damaged_one_says_so(tmp_path: Path) -> None:
    (tmp_path / "custody.broken.jsonl").write_bytes(LINES[0][:100])
    append(tmp_path, Link("repair", outputs=[FILE]))
    (finding,) = read_chain(read(tmp_path) or b"", None).findings
    assert finding.kind is FindingKind.NOT_CHECKED
    assert "custody.broken.jsonl" in finding.diagnosis


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"{}",
        b"[1]",
        HEAD.replace(b"custody-head/1", b"custody-head/2"),
        HEAD.replace(b'"count": 4', b'"count": true'),
        HEAD.replace(b'"seq": 3', b'"seq": 2'),
        HEAD.replace(b'"count": 4', b'"count": 0'),
        HEAD[:-20],
        b" " * (1 << 17),
    ],
)
def test_an_unusable_head_is_never_passed_over(head: bytes) -> None:
    (finding,) = read_chain(CHAIN, head).findings
    assert (finding.kind, finding.path) == (FindingKind.CUSTODY_BROKEN, "custody.head.json")


@pytest.mark.parametrize("data", [b"", CHAIN[:-1], b"".join(LINES[1:])])
def test_only_a_whole_chain_gets_a_head(data: bytes) -> None:
    with pytest.raises(Unusable):
        head_document(data)


def test_withdrawn_and_superseded_evidence_says_why(tmp_path: Path) -> None:
    (tmp_path / "SHA256SUMS").write_bytes(b"sums")
    append(tmp_path, Link("dump", outputs=[FILE]))
    withdraw(tmp_path, "  the wrong seed  ")
    supersede(tmp_path, "run-2.zip", "repeated with the right seed")
    data = read(tmp_path) or b""
    found = {finding.kind: finding for finding in read_chain(data, head_document(data)).findings}
    assert found[FindingKind.WITHDRAWN].diagnosis.endswith("withdrawn: the wrong seed")
    assert "superseded by run-2.zip" in found[FindingKind.SUPERSEDED].diagnosis


def test_a_loose_statement_speaks_of_its_sums_alone() -> None:
    withdrawn = read_statement(loose_statement(b"sums", "a reason"))
    assert withdrawn.speaks_of(b"sums") and not withdrawn.speaks_of(b"other")
    assert withdrawn.finding("withdrawn.json").kind is FindingKind.WITHDRAWN
    superseded = read_statement(loose_statement(b"sums", "a reason", by="f" * 64))
    assert superseded.successor == "f" * 64
    assert superseded.finding("withdrawn.json").kind is FindingKind.SUPERSEDED


@pytest.mark.parametrize("reason", ["", "   ", "x" * 2001])
def test_evidence_is_not_withdrawn_without_a_reason(tmp_path: Path, reason: str) -> None:
    (tmp_path / "SHA256SUMS").write_bytes(b"sums")
    with pytest.raises(Unusable, match="reason"):
        withdraw(tmp_path, reason)
    assert not (tmp_path / "custody.jsonl").exists()


def test_an_empty_folder_has_nothing_to_withdraw(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="holds no SHA256SUMS"):
        withdraw(tmp_path, "a reason")


@given(st.binary(max_size=300) | st.just(LINES[1]))
@settings(max_examples=150, deadline=None)
def test_a_statement_that_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(Unusable):
        read_statement(data)


EDITS = st.one_of(
    st.tuples(st.just("byte"), st.integers(0, len(CHAIN) - 1), st.integers(0, 255)),
    st.tuples(st.just("cut"), st.integers(0, len(CHAIN) - 1), st.integers(1, 400)),
    st.tuples(st.just("drop"), st.integers(0, 3), st.just(0)),
    st.tuples(st.just("copy"), st.integers(0, 3), st.integers(0, 4)),
    st.tuples(st.just("insert"), st.integers(0, len(CHAIN)), st.integers(0, 255)),
    st.tuples(st.just("end"), st.integers(0, len(CHAIN) - 1), st.just(0)),
)


def edited(what: str, at: int, value: int) -> bytes:
    if what == "byte":
        return CHAIN[:at] + bytes([value]) + CHAIN[at + 1 :]
    if what == "cut":
        return CHAIN[:at] + CHAIN[at + value :]
    if what == "insert":
        return CHAIN[:at] + bytes([value]) + CHAIN[at:]
    if what == "end":
        return CHAIN[:at]
    changed = list(LINES)
    if what == "drop":
        del changed[at]
    else:
        changed.insert(value, LINES[at])
    return b"".join(changed)


@given(EDITS)
@settings(max_examples=200, deadline=None)
def test_with_a_head_no_edit_stays_unseen(edit: tuple[str, int, int]) -> None:
    data = edited(*edit)
    if data != CHAIN:
        assert any(finding.gravity > 0 for finding in read_chain(data, HEAD).findings)


@given(st.permutations(LINES))
@settings(max_examples=30, deadline=None)
def test_with_a_head_no_other_order_stays_unseen(order: list[bytes]) -> None:
    data = b"".join(order)
    assert (read_chain(data, HEAD).findings == ()) == (data == CHAIN)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=8,
)


@given(
    st.sampled_from(["stage", "seq", "previous", "inputs", "outputs", "resumes", "unrecorded"]),
    VALUES,
)
@settings(max_examples=150, deadline=None)
def test_a_predicate_of_any_shape_is_read_without_a_crash(key: str, value: object) -> None:
    statement = json.loads(LINES[0])
    statement["predicate"][key] = value
    data = json.dumps(statement).encode() + b"\n"
    for finding in read_chain(data, HEAD).findings:
        assert not unsafe_for_a_terminal(finding.diagnosis)


@given(st.lists(st.binary(max_size=60), max_size=6), st.binary(max_size=200))
@settings(max_examples=150, deadline=None)
def test_bytes_of_any_kind_are_findings_and_no_crash(pieces: list[bytes], head: bytes) -> None:
    assert read_chain(b"\n".join(pieces), head).findings
