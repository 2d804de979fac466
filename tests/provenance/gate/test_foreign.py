"""Reports of public schemas: what they claim, what they lack, and that a claim is never a pass."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from public_reports import (
    COMMIT,
    DIGEST,
    REPORTS,
    attempt,
    chain_gate,
    chain_replay,
    evidence_summary,
    next_chain,
    norm_reuse,
    rank_file,
    result_bundle,
    source_list,
    validator,
)

from reefkit.errors import ExitCode, Unusable
from reefkit.provenance.gate.files import FolderFiles
from reefkit.provenance.gate.foreign import Claim, ForeignReport, read_report
from reefkit.provenance.gate.foreign.attempt import newest_attempts
from reefkit.provenance.gate.foreign.model import check_files
from reefkit.provenance.gate.model import (
    ChainReport,
    GateVerdict,
    Provenance,
    RankReport,
    Topology,
)

NAMES = sorted(REPORTS)


def read(document: object, name: str = "report.json") -> ForeignReport:
    found = read_report(json.dumps(document).encode(), name)
    assert isinstance(found, ForeignReport)
    return found


def _set(document: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    """Give a copy in which the value at a path (`a.0.b`) is another one."""
    document = deepcopy(document)
    at: Any = document
    *way, last = path.split(".")
    for step in way:
        at = at[int(step) if step.isdigit() else step]
    at[last] = value
    return document


@pytest.mark.parametrize("name", NAMES)
def test_a_good_report_is_a_claim_and_never_a_pass(name: str) -> None:
    document, _, claims = REPORTS[name]
    found = read(document, f"some/folder/{name}")
    assert found.claim is (Claim.PASSED if claims else Claim.NONE)
    assert found.verdict is GateVerdict.INCOMPLETE
    assert found.exit_code is ExitCode.DOES_NOT_HOLD
    assert found.faults == ()
    assert ("claimed, not recomputed" in found.statement) == claims
    assert json.loads(json.dumps(found.to_json()))["recomputed"] is False


@pytest.mark.parametrize("name", [n for n in NAMES if REPORTS[n][2] and n != "COMPLETE"])
def test_a_good_claim_leaves_no_gap(name: str) -> None:
    found = read(REPORTS[name][0], name)
    assert found.gaps == ()
    assert found.provenance.commit == COMMIT
    assert found.provenance.dirty is False
    assert found.provenance.environment


@pytest.mark.parametrize(
    ("name", "key"), [(name, key) for name in NAMES for key in REPORTS[name][1]]
)
def test_a_missing_key_is_unusable(name: str, key: str) -> None:
    document = {k: v for k, v in REPORTS[name][0].items() if k != key}
    with pytest.raises(Unusable) as caught:
        read_report(json.dumps(document).encode(), name)
    assert caught.value.exit_code is ExitCode.CANNOT_JUDGE


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("part", [0.0, 0.3, 0.99])
def test_a_truncated_report_is_unusable(name: str, part: float) -> None:
    data = json.dumps(REPORTS[name][0]).encode()
    with pytest.raises(Unusable):
        read_report(data[: int(len(data) * part)], name)


@pytest.mark.parametrize("data", [b"", b"[]", b"null", b"1", b'"x"', b"{}", b"{", b"\xff", b"nan"])
def test_what_is_no_object_or_has_no_key_is_unusable(data: bytes) -> None:
    with pytest.raises(Unusable):
        read_report(data, "rank-0.json")


def test_json_of_another_kind_is_not_known() -> None:
    assert read_report(b'{"a": 1}', "a.json") is None
    assert read_report(b'{"schema": "something/1", "passed": true, "errors": []}', "a.json") is None
    assert read_report(b'{"kind": 3, "rank": 0}', "a.json") is None


def test_what_is_called_a_rank_file_must_be_one() -> None:
    with pytest.raises(Unusable):
        read_report(b'{"status": "passed"}', "rank-0.json")
    with pytest.raises(Unusable, match="of rank 1"):
        read_report(json.dumps(rank_file(1)).encode(), "rank-0.json")


@pytest.mark.parametrize("data", [json.dumps(rank_file()).encode(), b'{"status": "pas', b""])
def test_a_partial_report_counts_for_nothing(data: bytes) -> None:
    found = read_report(data, "x/rank-0.json.partial")
    assert isinstance(found, ForeignReport)
    assert (found.claim, found.verdict) == (Claim.INCOMPLETE, GateVerdict.INCOMPLETE)
    assert "not finished" in found.gaps[0]


CLAIMING = [rank_file, norm_reuse, chain_gate, next_chain, validator]


@pytest.mark.parametrize("make", CLAIMING)
def test_a_dirty_tree_is_a_gap(make: Callable[[], dict[str, Any]]) -> None:
    document = make()
    key = "git_dirty" if "git_dirty" in document else "tracked_tree_dirty"
    assert "tracked files had changes when it was made" in read({**document, key: True}).gaps


@pytest.mark.parametrize("make", CLAIMING)
@pytest.mark.parametrize("value", [True, None, "false", 0, "no"])
def test_a_fallback_that_is_not_false_is_a_gap(
    make: Callable[[], dict[str, Any]], value: object
) -> None:
    found = read({**make(), "deep": [{"er": {"fallback": value}}]})
    assert any("fallback" in gap for gap in found.gaps)


@pytest.mark.parametrize("make", CLAIMING)
def test_a_pass_that_says_nothing_of_fallback_has_a_gap(
    make: Callable[[], dict[str, Any]],
) -> None:
    text = json.dumps(make()).replace('"fallback"', '"other"')
    assert "it does not say `fallback: false`" in read(json.loads(text)).gaps


@pytest.mark.parametrize("make", CLAIMING)
@pytest.mark.parametrize(
    "part", [{"skipped": 1}, {"skipped": ["a"]}, {"status": "skipped"}, {"status": "unavailable"}]
)
def test_what_was_skipped_is_a_gap(
    make: Callable[[], dict[str, Any]], part: dict[str, object]
) -> None:
    assert len(read({**make(), "cases": [part]}).gaps) == 1
    assert read({**make(), "cases": [{"skipped": 0}, {"skipped": False}]}).gaps == ()


@pytest.mark.parametrize("make", CLAIMING)
def test_a_quick_subset_is_incomplete(make: Callable[[], dict[str, Any]]) -> None:
    found = read({**make(), "quick": True})
    assert found.claim is Claim.INCOMPLETE
    assert "only a quick subset was run" in found.gaps


@pytest.mark.parametrize("commit", ["unknown", "", "9e6c4f2", "HEAD"])
def test_an_abbreviated_or_unknown_commit_is_a_gap(commit: str) -> None:
    assert "it names no commit" in read({**rank_file(), "rl_kernel_commit": commit}).gaps


def test_an_empty_environment_is_a_gap() -> None:
    assert len(read({**rank_file(), "environment": {}}).gaps) == 1


CONTRADICTIONS = [
    (_set(rank_file(), "moe", {"fallback": False, "inner": {"passed": False}}), "rank"),
    (_set(norm_reuse(), "results.rl_kernel.contract_gates.forward.returncode", 1), "code"),
    (_set(norm_reuse(), "results.rl_kernel.contract_gates.forward.failed_lines", ["x"]), "lines"),
    (_set(chain_gate(), "first_drift", "layers.3"), "drift"),
    (_set(chain_gate(), "train_infer_bn", {"passed": False}), "part"),
    (_set(next_chain(), "first_drift_cell", "moe-3"), "cell"),
    (_set(next_chain(), "first_drift_layer", 0), "layer 0"),
    (_set(next_chain(), "cells.0.passed", False), "part of a chain"),
    (_set(validator(), "errors", ["x"]), "errors"),
    (_set(attempt(), "mismatch_count", 1), "mismatches"),
    (_set(attempt(), "passed", False), "not passed"),
    (_set(attempt(), "comparable", False), "not comparable"),
    (_set(attempt(), "artifact_sha256", {"requested.json": DIGEST}), "other artifacts"),
    (_set(chain_replay(), "cases.0.first_drift", None), "drift hidden"),
    (_set(chain_replay(), "cases.0.first_drift", "norm"), "drift moved"),
    (_set(chain_replay(), "cases.0.first_isolated_drift", "mlp"), "isolated"),
    (_set(chain_replay(), "cases.0.stages.1.repeat_bitwise_equal", False), "no repeat"),
    (_set(chain_replay(), "stages", ["sinusoid", "mlp"]), "stages"),
    (_set(evidence_summary(), "full_report_header.remaining_acceptance", ["x"]), "remaining"),
]


@pytest.mark.parametrize(
    "document", [each for each, _ in CONTRADICTIONS], ids=[what for _, what in CONTRADICTIONS]
)
def test_a_report_that_contradicts_itself_fails(document: dict[str, Any]) -> None:
    found = read(document)
    assert found.faults
    assert found.verdict is GateVerdict.FAILED
    assert found.faults[0] in found.statement


FAILING = [
    _set(rank_file(), "status", "failed"),
    _set(norm_reuse(), "results.rl_kernel.contract_gates.forward.passed", False),
    _set(chain_gate(), "passed", False),
    _set(next_chain(), "passed", False),
    _set(validator(), "passed", False),
    _set(attempt(), "status", "fail"),
    _set(evidence_summary(), "full_report_header.status", "failed"),
]


@pytest.mark.parametrize("document", FAILING, ids=range(len(FAILING)))
def test_a_claimed_failure_fails(document: dict[str, Any]) -> None:
    found = read(document)
    assert (found.claim, found.verdict) == (Claim.FAILED, GateVerdict.FAILED)


def test_other_libraries_may_fail_their_gates() -> None:
    assert read(norm_reuse()).claim is Claim.PASSED
    document = norm_reuse()
    del document["results"]["rl_kernel"]["contract_gates"]
    assert read(document).claim is Claim.NONE


def test_the_first_drift_is_told() -> None:
    document = next_chain() | {
        "passed": False, "first_drift_family": "moe", "first_drift_layer": 7,
        "first_drift_cell": "router",
    }  # fmt: skip
    drift = read(document).first_drift
    assert drift is not None
    assert (drift.family, drift.layer, drift.cell) == ("moe", 7, "router")
    replay = read(chain_replay()).first_drift
    assert replay is not None
    assert replay.stage == "mlp"


@pytest.mark.parametrize(
    ("path", "value"),
    [("weight_source", "synthetic-v1"), ("weight_source", None), ("weight_hash", None),
     ("backward_executed", False), ("all_parameter_gradients", None), ("gpu_name", None)],
)  # fmt: skip
def test_the_chain_gate_has_its_own_rules(path: str, value: object) -> None:
    assert len(read(_set(chain_gate(), path, value)).gaps) == 1


def test_acceptance_that_remains_is_a_gap() -> None:
    document = _set(evidence_summary(), "full_report_header.acceptance_complete", False)
    document = _set(document, "full_report_header.remaining_acceptance", ["review"])
    document = _set(document, "production_qualified", False)
    document = _set(document, "full_report_header.provenance.git_status", "M a.py")
    assert len(read(document).gaps) == 3


def test_the_files_that_a_list_names_are_hashed(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    for name in ("a.py", "b/c.py"):
        (tmp_path / name).write_bytes(b"x")
    report = read(source_list())
    whole = check_files(report, FolderFiles(tmp_path))
    assert (whole.intact, whole.faults) == (True, ())
    (tmp_path / "a.py").write_bytes(b"y")
    changed = check_files(report, FolderFiles(tmp_path))
    assert changed.intact is False
    assert changed.verdict is GateVerdict.FAILED
    (tmp_path / "a.py").unlink()
    absent = check_files(report, FolderFiles(tmp_path))
    assert absent.intact is None
    assert "1 of 2 files it names are not here: a.py" in absent.gaps


@pytest.mark.parametrize("name", ["/etc/passwd", "../a", "-", "C:/x", "/dev/null", ""])
def test_names_that_lead_elsewhere_are_faults(name: str) -> None:
    assert read({**source_list(), "files": {name: DIGEST}}).verdict is GateVerdict.FAILED


def test_a_changed_text_of_a_bundle_is_a_fault() -> None:
    document = result_bundle()
    document["artifacts"]["log.txt"]["content"] += "!"
    assert read(document, "h100-results.json").verdict is GateVerdict.FAILED


def test_our_own_reports_come_as_they_are() -> None:
    report = RankReport("s", "0" * 64, 0, Topology(), (), Provenance())
    assert read_report(json.dumps(report.to_json()).encode(), "rank-0.json") == report
    chain = ChainReport("s", "0" * 64, (), GateVerdict.INCOMPLETE, ("why",))
    found = read_report(json.dumps(chain.to_json()).encode(), "chain.json")
    assert isinstance(found, ChainReport)
    with pytest.raises(Unusable):
        read_report(b'{"schema": "reefkit.chain/1"}', "chain.json")


def _write_attempt(folder: Path, case: str, name: str, **changes: object) -> Path:
    place = folder / "exp" / "cases" / case / name
    place.mkdir(parents=True)
    document = attempt(case, name)
    for each in document["artifact_sha256"]:
        (place / each).write_bytes(f"{name} {each}".encode())
        digest = hashlib.sha256(f"{name} {each}".encode()).hexdigest()
        document["artifact_sha256"][each] = digest
    (place / "COMPLETE").write_text(json.dumps({**document, **changes}))
    return place


def test_the_newest_whole_attempt_counts(tmp_path: Path) -> None:
    _write_attempt(tmp_path, "case-1", "attempt-9")
    newest = _write_attempt(tmp_path, "case-1", "attempt-10")
    partial = _write_attempt(tmp_path, "case-1", "attempt-11")
    (partial / "COMPLETE").unlink()

    def scope() -> ForeignReport:
        (found,) = newest_attempts(FolderFiles(tmp_path)).values()
        return found

    assert (scope().scope, scope().intact) == ("case-1 attempt-10", True)
    (newest / "token_diffs.pt").write_bytes(b"changed")
    assert scope().scope == "case-1 attempt-9"
    for name in ("actual.json", "COMPLETE"):
        (tmp_path / "exp/cases/case-1/attempt-9" / name).write_bytes(b"{")
    assert scope().verdict is GateVerdict.FAILED


def test_attempts_in_a_folder_are_claims_that_the_command_tells(
    tmp_path: Path, reef_archive: Callable[..., Any]
) -> None:
    place = _write_attempt(tmp_path, "case-1", "attempt-1")
    told = reef_archive("gate", tmp_path, "--json")
    assert (told.code, told.document["verdict"]) == (1, "INCOMPLETE")
    assert [cell["id"] for cell in told.document["cells"]] == ["exp/cases/case-1"]
    (place / "token_diffs.pt").write_bytes(b"changed")
    assert reef_archive("gate", tmp_path, "--json").document["verdict"] == "FAILED"


def test_a_marker_of_another_attempt_or_case_does_not_count(tmp_path: Path) -> None:
    _write_attempt(tmp_path, "case-1", "attempt-1", attempt_id="attempt-2")
    _write_attempt(tmp_path, "case-2", "attempt-1", case_id="case-1")
    found = newest_attempts(FolderFiles(tmp_path))
    assert list(found) == ["exp/cases/case-1", "exp/cases/case-2"]
    assert all(each.verdict is GateVerdict.FAILED for each in found.values())


def test_partial_attempts_alone_are_incomplete(tmp_path: Path) -> None:
    place = _write_attempt(tmp_path, "case-1", "attempt-1")
    (place / "COMPLETE").unlink()
    (found,) = newest_attempts(FolderFiles(tmp_path)).values()
    assert found.verdict is GateVerdict.INCOMPLETE


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.just(DIGEST),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)


def _keys(value: Any) -> list[Any]:
    """Give what leads further into a JSON value."""
    if isinstance(value, str) or not hasattr(value, "__len__"):
        return []
    return list(value.keys() if hasattr(value, "keys") else range(len(value)))


@given(st.sampled_from(NAMES), st.data())
@settings(max_examples=200, deadline=None)
def test_any_value_anywhere_is_read_or_refused_and_never_a_pass(
    name: str, data: st.DataObject
) -> None:
    document = deepcopy(REPORTS[name][0])
    at: Any = document
    while True:
        key = data.draw(st.sampled_from(_keys(at)))
        if not _keys(at[key]) or data.draw(st.booleans()):
            at[key] = data.draw(_json)
            break
        at = at[key]
    try:
        found = read_report(json.dumps(document).encode(), name)
    except Unusable as error:
        assert error.message.endswith(".")
        return
    assert found is None or isinstance(found, ForeignReport)
    assert found is None or found.verdict is not GateVerdict.PASSED


@given(st.sampled_from(NAMES), st.integers(0, 3000), st.binary(max_size=4))
@settings(max_examples=100, deadline=None)
def test_damaged_bytes_are_read_or_refused(name: str, at: int, junk: bytes) -> None:
    data = json.dumps(REPORTS[name][0]).encode()
    at %= len(data)
    try:
        read_report(data[:at] + junk + data[at + len(junk) :], name)
    except Unusable as error:
        assert error.remedy
