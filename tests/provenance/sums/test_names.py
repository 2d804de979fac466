from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reefkit.provenance.sums.names import fault_in, is_portable, portability_fault


@pytest.mark.parametrize(
    "name",
    [
        "a",
        "a/b",
        ".gitattributes",
        "..a",
        "a..",
        "a/..b",
        "a b",
        "ä/é",
        "-x",
        "#x",
        "*x",
        "ab:c",
        "+",
    ],
)
def test_ordinary_names_are_listed(name: str) -> None:
    assert fault_in(name) is None
    assert portability_fault(name) is None


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "empty"),
        ("a\0b", "NUL"),
        ("-", "standard input"),
        ("/dev/null", "a device"),
        ("/a", "an absolute path"),
        ("\\\\host\\share", "network share"),
        ("\\\\.\\NUL", "device"),
        ("\\a", "absolute path of Windows"),
        ("C:a", "on a drive"),
        ("c:\\a", "on a drive"),
        ("..", "leads out"),
        ("a/../b", "leads out"),
        ("a\\..\\b", "leads out"),
        ("a//b", "empty part"),
        ("a/", "empty part"),
        ("a/.", "a `.`"),
        ("./a", "a `.`"),
        ("a" * 40_000, "longer"),
    ],
)
def test_names_that_lead_elsewhere_are_refused(name: str, said: str) -> None:
    assert said in (fault_in(name) or "")
    assert portability_fault(name) == f"is {fault_in(name)}"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a\\b", "backslash"),
        ("a\nb", "control"),
        ("a\rb", "control"),
        ("a\tb", "control"),
        ("a\x85b", "control"),
        (" a", "space"),
        ("a ", "space"),
        ("a\udcffb", "not UTF-8"),
    ],
)
def test_names_that_need_escapes_may_be_read_but_not_written(name: str, said: str) -> None:
    assert fault_in(name) is None
    assert said in (portability_fault(name) or "")


@settings(max_examples=200)
@given(st.text(alphabet=st.sampled_from("ab.-/\\ \n:\x00é\udc80"), max_size=8))
def test_a_portable_name_has_no_fault_and_stays_in_the_folder(name: str) -> None:
    assert is_portable(name) == (portability_fault(name) is None)
    if fault_in(name) is None:
        assert not name.startswith("/")
        assert not {"", ".", ".."} & set(name.split("/"))
