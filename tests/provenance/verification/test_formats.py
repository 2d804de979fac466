"""The reports for machines: valid whatever files are called, and harmless to a runner."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from signed_evidence import put
from verifiable import FILES, key, listed, package, tell, trust

from reefkit.provenance.finding import Finding, FindingKind
from reefkit.provenance.verification.github import to_github
from reefkit.provenance.verification.junit import to_junit
from reefkit.provenance.verification.meaning import meaning_of
from reefkit.provenance.verification.result import SignerReport, Verification
from reefkit.provenance.verification.sarif import to_sarif
from reefkit.provenance.verification.text import headline, to_text_report

HOSTILE = (
    "a\n::error::pwned",
    "a\r\n::set-output name=x::y",
    "x,title=evil::z",
    "%0A::warning::q",
    "]]>&lt;<b>\"'",
    "\x1b[31mred\x07",
    "\u202egnp.exe",
    "\udcff\udcfe",
    "a:b c#d?e%f",
    "\ufffe\uffff",
)


def result(*findings: Finding, files: tuple[str, ...] = (), **more: Any) -> Verification:
    return Verification("target", len(files), findings, (), files=files, **more)


def hostile_findings() -> list[Finding]:
    return [Finding(FindingKind.EXTRA, name, "It is there.") for name in HOSTILE]


def test_every_kind_has_a_meaning() -> None:
    for kind in FindingKind:
        meaning = meaning_of(kind)
        assert meaning.title and meaning.text.endswith(".") and meaning.remedy.endswith("."), kind


def test_junit_is_xml_with_a_case_for_each_file_and_signature(tmp_path: Path) -> None:
    folder = package(tmp_path / "e")
    put(folder, {"a.bin": b"x", "extra": b""})
    told = tell(folder, trust(tmp_path, key()))
    root = ElementTree.fromstring(to_junit(told.result))
    (suite,) = root
    cases = {(case.get("classname"), case.get("name")): case for case in suite}
    assert {name for group, name in cases if group == "reefkit.verify.files"} == {*FILES, "extra"}
    assert sum(group == "reefkit.verify.signatures" for group, _ in cases) == 4
    failed = {name for (_, name), case in cases.items() if case.find("failure") is not None}
    assert failed == {"a.bin", "extra"}
    assert (suite.get("tests"), suite.get("failures")) == (str(len(cases)), "2")


def test_junit_counts_what_is_excused_as_skipped(tmp_path: Path) -> None:
    listed(tmp_path)
    suite = ElementTree.fromstring(to_junit(tell(tmp_path, integrity_only=True).result))[0]
    assert (suite.get("failures"), suite.get("skipped")) == ("0", "1")


def test_junit_holds_hostile_names() -> None:
    text = to_junit(result(*hostile_findings(), files=HOSTILE))
    assert len(ElementTree.fromstring(text)[0]) == len(HOSTILE) + 1


def test_sarif_has_the_shape_of_2_1_0(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    put(listed(tmp_path / "e"), {"a b#c.txt": b""})
    document = json.loads(to_sarif(tell("e").result))
    assert (document["version"], document["$schema"][:8]) == ("2.1.0", "https://")
    (run,) = document["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert len(set(rules)) == len(rules) == 2
    for rule in run["tool"]["driver"]["rules"]:
        assert rule["help"]["text"] and rule["shortDescription"]["text"]
        assert rule["defaultConfiguration"]["level"] in ("none", "note", "warning", "error")
    for found in run["results"]:
        assert rules[found["ruleIndex"]] == found["ruleId"]
        assert found["message"]["text"] and found["level"] in ("note", "warning", "error")
    uris = {
        found["ruleId"]: found["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        for found in run["results"]
    }
    assert uris == {"extra": "e/a%20b%23c.txt", "unsigned": "e"}


def test_sarif_encodes_hostile_names() -> None:
    run = json.loads(to_sarif(result(*hostile_findings(), base=".")))["runs"][0]
    for name, found in zip(HOSTILE, run["results"], strict=True):
        uri = found["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        assert re.fullmatch(r"[A-Za-z0-9._~/%-]+", uri)
        assert unquote(uri, errors="surrogateescape") == name


def test_a_member_of_a_zip_is_located_at_the_zip() -> None:
    found = Finding(FindingKind.EXTRA, "a", "It is there.")
    run = json.loads(to_sarif(result(found, container="x/e.zip")))["runs"][0]
    location = run["results"][0]["locations"][0]
    assert location["physicalLocation"]["artifactLocation"]["uri"] == "x/e.zip"
    assert location["logicalLocations"][0]["fullyQualifiedName"] == "target!/a"


def commands(text: str) -> list[str]:
    return text.rstrip("\n").split("\n")


def test_names_inject_no_workflow_command() -> None:
    lines = commands(to_github(result(*hostile_findings(), base=".")))
    assert len(lines) == len(HOSTILE) + 1
    for line in lines[:-1]:
        found = re.fullmatch(r"::error file=([^,:]*),title=([^,:]*)::(.*)", line)
        assert found is not None and found[2] == "Not listed"
    assert lines[-1].startswith("::error title=Evidence FAILED::FAILED")


def test_annotations_have_the_level_of_their_gravity() -> None:
    found = [
        Finding(FindingKind.DIALECT, None, "x"),
        Finding(FindingKind.UNSIGNED, None, "x"),
        Finding(FindingKind.MISMATCH, "a", "x"),
    ]
    levels = [line.split(" ")[0] for line in commands(to_github(result(*found)))]
    assert levels == ["::error", "::warning", "::notice", "::error"]


names = st.text(st.characters(exclude_categories=()), min_size=1, max_size=20)


@settings(max_examples=150, deadline=None)
@given(names, names, st.sampled_from(list(FindingKind)))
def test_every_format_holds_every_name(name: str, identity: str, kind: FindingKind) -> None:
    signer = SignerReport(identity, "sshsig", True, name, "SHA256:x", "because")
    found = Verification("t", 1, (Finding(kind, name, "Said."),), (signer,), files=(name,))
    ElementTree.fromstring(to_junit(found))
    json.loads(to_sarif(found))
    assert len(commands(to_github(found))) == 2
    json.dumps(found.to_json()).encode()
    text = to_text_report(found).replace("\n", "")
    assert not {unicodedata.category(character) for character in text} & {"Cc", "Cf", "Cs", "Zl"}


def test_the_first_line_says_verdict_count_and_signer(tmp_path: Path) -> None:
    folder = package(tmp_path / "e")
    line = headline(tell(folder, trust(tmp_path, key())).result)
    assert re.fullmatch(
        r"VERIFIED  \S+: 3 files checked, signed by evidence@lab \(SHA256:\S{43}\)", line
    )


def test_a_long_report_is_cut_and_says_so() -> None:
    found = [Finding(FindingKind.EXTRA, f"f{number}", "It is there.") for number in range(80)]
    text = to_text_report(result(*found))
    assert "and 30 more" in text and "f79" not in text
    assert "f79" in to_text_report(result(*found), every=True)


def test_the_text_says_what_to_do_next(tmp_path: Path) -> None:
    put(listed(tmp_path), {"a.bin": b"x"})
    assert "Next: Get the evidence from its source again" in to_text_report(tell(tmp_path).result)


@pytest.mark.parametrize("form", ["junit", "sarif", "github", "text"])
def test_a_report_goes_to_a_file_and_replaces_nothing(
    form: str, tmp_path: Path, reef_archive: Callable[..., Any]
) -> None:
    folder, out = listed(tmp_path / "e"), tmp_path / "report"
    words = ("verify", folder, "--integrity-only", "--format", form, "--out", out)
    assert reef_archive(*words).code == 0
    assert out.read_bytes().endswith(b"\n")
    assert reef_archive(*words).code == 2
    assert reef_archive(*words, "--force").code == 0
