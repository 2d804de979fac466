from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reefkit.errors import Unusable
from reefkit.provenance.sums.names import fault_in, is_portable, portability_fault, size_fault
from reefkit.provenance.sums.read import read_sums


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


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("a" * 4096, None),
        ("a" * 4097, "longer than 4,096 bytes"),
        ("\u00e9" * 2048, None),
        ("\u00e9" * 2049, "longer than 4,096 bytes"),
        ("\udc80" * 2000, "longer than 4,096 bytes"),
        ("d/" * 256 + "f", None),
        ("d/" * 257 + "f", "more than 256 folders deep"),
    ],
)
def test_length_and_depth_are_bounded(name: str, fault: str | None) -> None:
    assert size_fault(name) == fault
    assert fault_in(name) == fault


@pytest.mark.parametrize("line", ["{d}  {n}\n", "{d} *{n}\n"])
@pytest.mark.parametrize("name", ["d/" * 257 + "f", "a" * 5000])
def test_a_list_with_such_a_name_is_refused_in_every_dialect(line: str, name: str) -> None:
    with pytest.raises(Unusable, match="which is") as caught:
        read_sums(line.format(d="ab" * 32, n=name).encode(), "S")
    assert len(caught.value.message) < 400
