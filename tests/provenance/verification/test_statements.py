"""What evidence says of itself: custody, withdrawal, records of runs and gates."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gates import simple
from public_reports import attempt, result_bundle
from signed_evidence import put, signed, signer_of
from verifiable import FILES, digest, key, listed, package, tell, trust

from reefkit.errors import Unusable
from reefkit.provenance.custody.head import HEAD, head_document
from reefkit.provenance.custody.statements import loose_statement
from reefkit.provenance.finding import FindingKind as Kind
from reefkit.provenance.sign import sshsig
from reefkit.provenance.sign.carriers import SUMS
from reefkit.provenance.sign.key import P256
from reefkit.records.custody import Artifact, Link, append

HEAD_SIGNATURE = f"{HEAD}.sig"


def chain(folder: Path, *stages: str) -> bytes:
    folder.mkdir(parents=True, exist_ok=True)
    for stage in stages:
        append(folder, Link(stage, outputs=(Artifact("a.bin", digest(FILES["a.bin"]), 6),)))
    return (folder / "custody.jsonl").read_bytes()


def headed(data: bytes) -> dict[str, bytes]:
    head = head_document(data)
    return {HEAD: head, HEAD_SIGNATURE: sshsig.sign(key(), head, sshsig.CUSTODY_NAMESPACE)}


@pytest.fixture
def parts(tmp_path: Path) -> dict[str, bytes]:
    data = chain(tmp_path / "work", "dump", "validate")
    return {**FILES, "custody.jsonl": data, **headed(data)}


def test_a_chain_with_a_signed_head_is_verified(parts: dict[str, bytes], tmp_path: Path) -> None:
    told = tell(package(tmp_path / "e", parts), trust(tmp_path, key()))
    assert (told.verdict, told.kinds) == ("VERIFIED", set())
    assert HEAD_SIGNATURE in {each.path for each in told.result.signers}


def cut(data: bytes) -> bytes:
    return data.split(b"\n")[0] + b"\n"


CASES: dict[str, tuple[Callable[[dict[str, bytes]], object], str, Kind]] = {
    "truncated": (
        lambda p: p.update({"custody.jsonl": cut(p["custody.jsonl"])}),
        "FAILED", Kind.CUSTODY_TRUNCATED,
    ),
    "edited": (
        lambda p: p.update({"custody.jsonl": p["custody.jsonl"].replace(b"dump", b"pump")}),
        "FAILED", Kind.CUSTODY_BROKEN,
    ),
    "another head": (
        lambda p: p.update({HEAD: p[HEAD].replace(b'"count": 2', b'"count": 3')}),
        "FAILED", Kind.INVALID_SIGNATURE,
    ),
    "a head signed for something else": (
        lambda p: p.update({HEAD_SIGNATURE: sshsig.sign(key(), p[HEAD], sshsig.SUMS_NAMESPACE)}),
        "FAILED", Kind.INVALID_SIGNATURE,
    ),
    "a head without a chain": (
        lambda p: p.pop("custody.jsonl"), "FAILED", Kind.CUSTODY_TRUNCATED,
    ),
    "no head": (lambda p: [p.pop(HEAD), p.pop(HEAD_SIGNATURE)], "VERIFIED", Kind.UNSIGNED_HEAD),
    "an unsigned head": (lambda p: p.pop(HEAD_SIGNATURE), "VERIFIED", Kind.UNSIGNED_HEAD),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_custody_is_judged_even_where_it_was_signed_so(
    case: str, parts: dict[str, bytes], tmp_path: Path
) -> None:
    change, verdict, kind = CASES[case]
    change(parts)
    told = tell(package(tmp_path / "e", parts), trust(tmp_path, key()))
    assert (told.verdict, kind.value in told.kinds) == (verdict, True), told.result.findings


def test_a_chain_alone_is_a_target(parts: dict[str, bytes], tmp_path: Path) -> None:
    folder = put(tmp_path / "e", parts)
    signers = trust(tmp_path, key())
    assert tell(folder / "custody.jsonl", signers).verdict == "VERIFIED"
    assert tell(folder / "custody.jsonl", trust(tmp_path, signer_of(P256, "x"))).verdict == (
        "UNTRUSTED"
    )
    (folder / "custody.jsonl").write_bytes(cut(parts["custody.jsonl"]))
    assert tell(folder / "custody.jsonl", signers).verdict == "FAILED"


@pytest.mark.parametrize(("by", "verdict"), [(None, "FAILED"), ("run-17", "VERIFIED")])
def test_a_statement_beside_the_evidence_counts(
    by: str | None, verdict: str, tmp_path: Path
) -> None:
    folder = package(tmp_path / "e")
    data = loose_statement((folder / SUMS).read_bytes(), "The fan was broken.", by=by)
    signature = sshsig.sign(key(), data, sshsig.CUSTODY_NAMESPACE)
    put(folder, {"withdrawn.json": data, "withdrawn.json.sig": signature})
    told = tell(folder, trust(tmp_path, key()))
    assert told.verdict == verdict
    assert "The fan was broken." in told.said_of("withdrawn.json")


def test_a_statement_about_other_evidence_does_not_belong_there(tmp_path: Path) -> None:
    folder = package(tmp_path / "e")
    put(folder, {"withdrawn.json": loose_statement(b"other", "x")})
    told = tell(folder, trust(tmp_path, key()))
    assert (told.verdict, told.kinds) == ("FAILED", {"extra"})


@pytest.fixture
def gate(tmp_path: Path, reef_archive: Callable[..., Any]) -> dict[str, bytes]:
    """Give the files of a gate's run, with the manifest where the run kept it."""
    out = tmp_path / "run"
    assert reef_archive("gate", simple(tmp_path / "repo").write(), "--out", out).code == 0
    return {
        path.relative_to(out).as_posix(): path.read_bytes()
        for path in out.rglob("*") if path.is_file()
    }  # fmt: skip


@pytest.mark.parametrize("prefix", ["", "gates/moe/"])
def test_a_gate_that_passed_is_judged_again(
    prefix: str, gate: dict[str, bytes], tmp_path: Path
) -> None:
    files = {prefix + name: data for name, data in gate.items()}
    told = tell(package(tmp_path / "e", files), trust(tmp_path, key()))
    assert told.verdict == "VERIFIED", told.result.findings


def test_a_gate_that_claims_more_than_its_artifacts_show_is_refused(
    gate: dict[str, bytes], tmp_path: Path
) -> None:
    (artifact,) = [name for name in gate if name.endswith("x.safetensors") and "first" in name]
    gate[artifact] = gate[artifact][:-1] + b"\x01"
    told = tell(package(tmp_path / "e", gate), trust(tmp_path, key()))
    assert (told.verdict, Kind.RECORD.value in told.kinds) == ("FAILED", True)


def test_a_claimed_pass_without_artifacts_is_called_a_claim(
    gate: dict[str, bytes], tmp_path: Path
) -> None:
    folder = package(tmp_path / "e", {"chain.json": gate["chain.json"]})
    told = tell(folder, trust(tmp_path, key()))
    assert (told.verdict, told.kinds) == ("VERIFIED", {"claimed"})


def test_a_result_bundle_is_held_against_its_digests(tmp_path: Path) -> None:
    bundle = result_bundle()
    path = tmp_path / "results.json"
    path.write_text(json.dumps(bundle))
    told = tell(path, integrity_only=True)
    assert (told.verdict, told.result.checked) == ("INCOMPLETE", 1)
    del bundle["artifacts"]["r.json"]
    path.write_text(json.dumps(bundle))
    assert tell(path, integrity_only=True).verdict == "VERIFIED"
    assert tell(path, trust(tmp_path, key())).verdict == "UNTRUSTED"
    bundle["artifacts"]["log.txt"]["content"] = "all failed\n"
    path.write_text(json.dumps(bundle))
    assert tell(path, integrity_only=True).verdict == "FAILED"


def test_json_of_another_kind_cannot_be_judged(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(Unusable):
        tell(tmp_path / "x.json")


def test_a_lone_list_speaks_only_of_what_it_names(tmp_path: Path) -> None:
    put(listed(tmp_path), {"other": b"", "more/x": b""})
    told = tell(tmp_path / SUMS, integrity_only=True)
    assert (told.verdict, told.kinds) == ("VERIFIED", {"unsigned", "unlisted"})
    assert "more, other" in told.said_of(None)
    assert tell(tmp_path, integrity_only=True).verdict == "FAILED"


def test_the_list_of_a_package_speaks_of_the_whole_folder(tmp_path: Path) -> None:
    folder = put(tmp_path / "e", signed(key(), {**FILES, "VERIFY.md": b""}))
    assert tell(folder / SUMS, trust(tmp_path, key())).verdict == "VERIFIED"
    put(folder, {"other": b""})
    assert tell(folder / SUMS, trust(tmp_path, key())).verdict == "FAILED"


def test_a_lone_list_follows_no_link(tmp_path: Path) -> None:
    folder = listed(tmp_path / "e", {"d/a": b"x"})
    (folder / "d").rename(tmp_path / "d")
    (folder / "d").symlink_to(tmp_path / "d")
    assert tell(folder / SUMS, integrity_only=True).verdict == "INCOMPLETE"


def test_the_marker_of_an_attempt_is_a_list(tmp_path: Path) -> None:
    marker = attempt()
    names = list(marker["artifact_sha256"])
    marker["artifact_sha256"] = {name: digest(name.encode()) for name in names}
    files = {name: name.encode() for name in names}
    put(tmp_path, {**files, "COMPLETE": json.dumps(marker).encode()})
    told = tell(tmp_path, integrity_only=True)
    assert (told.verdict, told.result.checked) == ("VERIFIED", len(names))
    put(tmp_path, {names[0]: b"x"})
    assert tell(tmp_path, integrity_only=True).verdict == "FAILED"
    (tmp_path / "COMPLETE").write_text("{}")
    with pytest.raises(Unusable):
        tell(tmp_path, integrity_only=True)
