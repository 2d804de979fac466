"""What a reader of a chain of custody finds: every edit, and what the links say themselves."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from victims import unsafe_for_a_terminal

from reefkit.errors import Unusable
from reefkit.provenance.custody.chain import read_chain
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
    assert kinds(data) == []
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


def test_a_file_elsewhere_of_the_same_name_is_another_file() -> None:
    elsewhere = Artifact(OTHER.name, OTHER.sha256, 10, elsewhere=True)
    assert kinds(chain_of(Link("dump", outputs=[FILE]), Link("repair", inputs=[elsewhere]))) == []


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
