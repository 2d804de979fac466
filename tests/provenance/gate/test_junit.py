"""JUnit XML: read safely, counted anew, joined to a gate."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reefkit.errors import Unusable
from reefkit.provenance.gate.chain import Findings
from reefkit.provenance.gate.junit import JUnitReport, join, read_junit
from reefkit.provenance.gate.model import CellStatus, GateVerdict

PYTEST_FILE = """
import pytest
def test_good(): pass
@pytest.mark.parametrize("n", ["a/b", "c::d"])
def test_many(n): pass
class TestGroup:
    def test_inner(self): pass
"""
OTHERS = """
def test_bad(): assert 0
@pytest.mark.skip(reason="no GPU")
def test_skipped(): pass
@pytest.mark.xfail
def test_expected(): assert 0
@pytest.fixture
def broken(): raise OSError("broken")
def test_error(broken): pass
"""
GTEST = b"""<?xml version="1.0" encoding="UTF-8"?>
<testsuites tests="4" failures="1" disabled="1" errors="0" time="0.1" name="AllTests">
 <testsuite name="Norm" tests="4" failures="1" disabled="1" skipped="1" errors="0">
  <testcase name="Bits" status="run" result="completed" classname="Norm"/>
  <testcase name="Nan" status="run" result="completed" classname="Norm">
   <failure message="a.cc:1&#x0A;Expected equality" type=""><![CDATA[more]]></failure>
   <failure message="second" type=""/>
  </testcase>
  <testcase name="DISABLED_Slow" status="notrun" result="suppressed" classname="Norm"/>
  <testcase name="Gpu" status="run" result="skipped" classname="Norm">
   <skipped message="no GPU"/></testcase>
 </testsuite>
</testsuites>"""
SUREFIRE = b"""<testsuite xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
 xsi:noNamespaceSchemaLocation="s.xsd" name="a.B" tests="3" errors="0" skipped="0" failures="0">
 <properties><property name="user.name" value="x"/></properties>
 <testcase name="one" classname="a.B"/>
 <testcase name="flaky" classname="a.B"><flakyFailure message="once">t</flakyFailure></testcase>
 <testcase name="two" classname="a.B"><system-out>out</system-out></testcase>
</testsuite>"""
NESTED = b"""<testsuites tests="3"><testsuite name="outer" tests="3">
 <testsuite name="inner" tests="2"><testcase name="a"/><testcase name="b"/></testsuite>
 <testcase name="c"/></testsuite></testsuites>"""


def _suite(*cases: str, attributes: str = "") -> bytes:
    return f"<testsuite name='s' {attributes}>{''.join(cases)}</testsuite>".encode()


def _pytest(folder: Path, text: str) -> JUnitReport:
    (folder / "test_made.py").write_text(text)
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml=r.xml",
         "--rootdir=.", "-c", "/dev/null", "test_made.py"],
        cwd=folder, capture_output=True, check=False,
    )  # fmt: skip
    return read_junit((folder / "r.xml").read_bytes(), "r.xml")


def test_what_pytest_writes_is_counted_as_pytest_counts(tmp_path: Path) -> None:
    good = _pytest(tmp_path, PYTEST_FILE)
    assert good.counts["passed"] == good.counts["tests"] == 4
    assert join([good]).verdict is GateVerdict.PASSED
    all_of_them = _pytest(tmp_path, PYTEST_FILE + OTHERS)
    assert all_of_them.counts == {
        "passed": 4, "failed": 1, "error": 1, "skipped": 1, "xfailed": 1, "flaky": 0, "unknown": 0,
        "tests": 8,
    }  # fmt: skip
    assert all_of_them.disagreements == ()
    assert join([all_of_them]).verdict is GateVerdict.FAILED


def test_required_tests_are_named_as_pytest_names_them(tmp_path: Path) -> None:
    report = _pytest(tmp_path, PYTEST_FILE)
    ids = [
        "test_made.py::test_good",
        "test_made.py::test_many[a/b]",
        "test_made.py::test_many[c::d]",
        "test_made.py::TestGroup::test_inner",
        "test_made.TestGroup::test_inner",
    ]
    assert join([report], ids).verdict is GateVerdict.PASSED
    gone = join([report], [*ids, "test_made.py::test_vanished"])
    assert gone.verdict is GateVerdict.FAILED
    assert gone.missing == ("test_made.py::test_vanished",)


def test_googletest_disabled_and_skipped_are_no_pass() -> None:
    report = read_junit(GTEST, "g.xml")
    assert report.counts["failed"] == 1
    assert report.counts["skipped"] == 2
    assert report.disagreements == ()
    assert join([report]).reasons[0] == "The test `Norm::Nan` failed: a.cc:1."


def test_surefire_flaky_is_no_pass() -> None:
    joined = join([read_junit(SUREFIRE, "s.xml")])
    assert joined.counts["flaky"] == 1
    assert joined.verdict is GateVerdict.INCOMPLETE
    assert "run again" in joined.reasons[0]


def test_nested_suites_are_counted_once() -> None:
    report = read_junit(NESTED, "n.xml")
    assert report.counts["tests"] == 3
    assert report.disagreements == ()


@pytest.mark.parametrize(
    ("child", "verdict"),
    [
        ("", GateVerdict.PASSED),
        ("<skipped/>", GateVerdict.INCOMPLETE),
        ("<skipped type='pytest.xfail'/>", GateVerdict.INCOMPLETE),
        ("<failure/>", GateVerdict.FAILED),
        ("<error/>", GateVerdict.FAILED),
        ("<skipped/><failure/>", GateVerdict.FAILED),
        ("<system-out/>", GateVerdict.PASSED),
    ],
)
def test_only_a_pass_is_a_pass(child: str, verdict: GateVerdict) -> None:
    data = _suite("<testcase name='a'/>", f"<testcase name='b'>{child}</testcase>")
    assert join([read_junit(data, "r")]).verdict is verdict


FAILS, OPEN = GateVerdict.FAILED, GateVerdict.INCOMPLETE


@pytest.mark.parametrize(
    ("attributes", "child", "verdict"),
    [
        ("status='failed'", "", FAILS),
        ("result='failure'", "", FAILS),
        ("Result='FAILED'", "", FAILS),
        ("outcome='error'", "", FAILS),
        ("success='false'", "", FAILS),
        ("failed='true'", "", FAILS),
        ("failures='1'", "", FAILS),
        ("status='failed'", "<skipped/>", FAILS),
        ("status='ignored'", "", OPEN),
        ("status='disabled'", "", OPEN),
        ("status='Not-Run'", "", OPEN),
        ("status='purple'", "", OPEN),
        ("success='perhaps'", "", OPEN),
        ("status='run' result='completed'", "", GateVerdict.PASSED),
        ("status='passed' success='true'", "<properties><property name='a'/></properties>",
         GateVerdict.PASSED),
        ("", "<rerunFailure/>", FAILS),
        ("", "<rerunError/>", FAILS),
        ("", "<Failure/>", FAILS),
        ("", "<flakyFailure/>", OPEN),
        ("", "<ignored/>", OPEN),
        ("", "<Skipped/>", OPEN),
        ("", "<assertion/>", OPEN),
        ("", "<group><failure/></group>", FAILS),
        ("", "<system-out><failure/></system-out>", FAILS),
        ("", "<testcase name='c'/>", OPEN),
        ("", "<testcase name='c'><failure/></testcase>", FAILS),
        ("", "<testcase name='c' status='failed'/>", FAILS),
    ],
)  # fmt: skip
def test_a_test_passes_only_if_all_that_is_said_of_it_is_known_and_good(
    attributes: str, child: str, verdict: GateVerdict
) -> None:
    data = _suite("<testcase name='a'/>", f"<testcase name='b' {attributes}>{child}</testcase>")
    joined = join([read_junit(data, "r")])
    assert joined.verdict is verdict, joined.reasons
    assert (joined.reasons == ()) == (verdict is GateVerdict.PASSED)


@pytest.mark.parametrize(
    ("data", "verdict"),
    [
        ("<testsuites failed='1'><testcase name='a'/></testsuites>", OPEN),
        ("<testsuites><testsuite Failures='1'><testcase name='a'/></testsuite></testsuites>", OPEN),
        ("<testsuites skip='1'><testcase name='a'/></testsuites>", OPEN),
        ("<testsuite status='failed'><testcase name='a'/></testsuite>", FAILS),
        ("<testsuite success='false'><testcase name='a'/></testsuite>", FAILS),
        ("<testsuite><testcase name='a'/><rerunFailure/></testsuite>", FAILS),
        ("<testsuite><testcase name='a'/><group><testcase name='b'/></group></testsuite>", OPEN),
        ("<testsuite><group><testcase name='a'><failure/></testcase></group></testsuite>", FAILS),
        ("<testsuite><testcase name='a'/><properties><testcase name='b'><error/></testcase>"
         "</properties></testsuite>", FAILS),
        ("<testsuite><testcase name='a'/><hint/></testsuite>", OPEN),
        ("<TestSuite tests='1'><TestCase name='a'/></TestSuite>", GateVerdict.PASSED),
        ("<TestSuite><TestCase name='a'><Error/></TestCase></TestSuite>", FAILS),
        ("<testsuite><properties><property name='a' value='b'/></properties>"
         "<testcase name='a'/><system-out>x</system-out></testsuite>", GateVerdict.PASSED),
    ],
)  # fmt: skip
def test_a_suite_passes_only_if_all_in_it_is_known_and_good(
    data: str, verdict: GateVerdict
) -> None:
    joined = join([read_junit(data.encode(), "r")])
    assert joined.verdict is verdict, joined.reasons


@pytest.mark.parametrize("data", [b"<testsuites/>", b"<testsuite tests='0'/>"])
def test_no_test_at_all_is_no_pass(data: bytes) -> None:
    joined = join([read_junit(data, "r.xml")])
    assert joined.verdict is GateVerdict.INCOMPLETE
    assert joined.reasons == ("r.xml holds no test.",)
    assert join([]).verdict is GateVerdict.INCOMPLETE


@pytest.mark.parametrize(
    "attributes",
    [
        "tests='2'",
        "tests='0'",
        "failures='1'",
        "errors='1'",
        "skipped='1'",
        "tests='x'",
        "tests=''",
    ],
)
def test_counts_that_the_cases_do_not_bear_out_are_said(attributes: str) -> None:
    report = read_junit(_suite("<testcase name='a'/>", attributes=attributes), "r.xml")
    assert len(report.disagreements) == 1
    assert join([report]).verdict is GateVerdict.INCOMPLETE


def test_one_id_twice_is_no_pass_even_when_both_passed() -> None:
    case = "<testcase classname='c' name='a'/>"
    report = read_junit(_suite(case, case), "r.xml")
    assert report.twice == ("c::a",)
    assert join([report]).verdict is GateVerdict.INCOMPLETE
    single = read_junit(_suite(case), "r.xml")
    assert join([single, single]).verdict is GateVerdict.INCOMPLETE


def test_with_required_ids_only_theirs_may_not_be_skipped() -> None:
    report = read_junit(
        _suite("<testcase name='a'/>", "<testcase name='b'><skipped message='no GPU'/></testcase>"),
        "r.xml",
    )
    only_a = join([report], ["a"])
    assert only_a.verdict is GateVerdict.PASSED
    assert only_a.notes == ("The test `b` was skipped: no GPU.",)
    assert join([report], ["a", "b"]).verdict is GateVerdict.INCOMPLETE


def test_an_error_of_the_whole_suite_fails() -> None:
    report = read_junit(_suite("<testcase name='a'/>", "<error message='import'/>"), "r.xml")
    assert join([report]).verdict is GateVerdict.FAILED


def test_the_counts_join_a_chain() -> None:
    good = join([read_junit(_suite("<testcase name='a'/>"), "r.xml")])
    assert (good.cell("ops").status, good.cell("ops").compared) == (CellStatus.PASSED, 0)
    bad = join([read_junit(_suite("<testcase name='a'><failure/></testcase>"), "r.xml")])
    findings = Findings()
    bad.add_to(findings)
    assert findings.verdict is GateVerdict.FAILED
    assert bad.cell().status is CellStatus.FAILED
    assert bad.to_json()["counts"] == {
        "passed": 0, "failed": 1, "error": 0, "skipped": 0, "xfailed": 0, "flaky": 0, "unknown": 0,
        "tests": 1,
    }  # fmt: skip
    assert join([]).cell().status is CellStatus.MISSING


def test_names_cannot_act_on_a_terminal() -> None:
    data = _suite("<testcase name='a\u202eb'><failure message='x\u202ey'/></testcase>")
    assert "\u202e" not in "".join(join([read_junit(data, "r")]).reasons)


BOMB = (
    b'<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>'
    b'<testsuite><testcase name="&b;"/></testsuite>'
)
HOSTILE = [
    BOMB,
    b'<!DOCTYPE x SYSTEM "file:///etc/passwd"><testsuite/>',
    b"<!DOCTYPE testsuite><testsuite/>",
    b'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY % p SYSTEM "http://h/"> %p;]><testsuite/>',
    BOMB.decode().encode("utf-16"),
    b"<testsuite>" * 10_000,
    b"<testsuite>" * 70 + b"</testsuite>" * 70,
    b"<testsuite><testcase name='a'>",
    b"<testsuite><testcase name='&x;'/></testsuite>",
    b"<testsuite a='1' a='2'/>",
    b"<testsuite/><testsuite/>",
    b"<html><body/></html>",
    b"<testsuite><testcase/></testsuite>",
    b"<testsuite><testcase name=''/></testsuite>",
    b"",
    b"{}",
    b"\xff\xfe",
    b"<?xml version='1.0' encoding='utf-7'?><testsuite/>",
    b"<?xml version='1.0' encoding='shift_jis'?><testsuite/>",
    b"<?xml version='1.0' encoding='nothing'?><testsuite/>",
    b"<testsuite>\x00</testsuite>",
]


@pytest.mark.parametrize("data", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_and_broken_xml_is_refused(data: bytes) -> None:
    with pytest.raises(Unusable) as caught:
        read_junit(data, "r.xml")
    assert caught.value.message.startswith("r.xml")
    assert caught.value.remedy


def test_other_encodings_are_read() -> None:
    for encoding in ("utf-16", "iso-8859-1", "utf-8"):
        text = f"<?xml version='1.0' encoding='{encoding}'?>"
        text += "<testsuite><testcase name='\xe9'/></testsuite>"
        assert read_junit(text.encode(encoding), "r").cases[0].id == "\xe9"


@given(st.integers(0, len(GTEST)), st.binary(max_size=6))
@settings(max_examples=200, deadline=None)
def test_damaged_reports_are_read_or_refused(at: int, junk: bytes) -> None:
    try:
        report = read_junit(GTEST[:at] + junk + GTEST[at + len(junk) :], "r.xml")
    except Unusable as error:
        assert error.message.startswith("r.xml")
        return
    assert sum(report.counts.values()) == 2 * len(report.cases)


@given(st.binary(max_size=80))
@settings(max_examples=100, deadline=None)
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with pytest.raises(Unusable):
        read_junit(data, "r.xml")


_child = st.sampled_from(["", "<failure/>", "<error/>", "<skipped/>"])


@given(st.lists(_child, max_size=6))
@settings(max_examples=60, deadline=None)
def test_it_passes_exactly_when_every_case_does(children: list[str]) -> None:
    cases = [f"<testcase name='{n}'>{child}</testcase>" for n, child in enumerate(children)]
    joined = join([read_junit(_suite(*cases), "r")])
    assert (joined.verdict is GateVerdict.PASSED) == (bool(children) and not any(children))
