from __future__ import annotations

import pytest

from reefkit.errors import Unusable
from reefkit.provenance.sums.write import write_sums

A, B = "a" * 64, "b" * 64


def test_the_portable_profile_byte_for_byte() -> None:
    written = write_sums({"b": A, "B": B, "a/c": A, "é": B, "\U0001f600": A, "\uffee": B})
    assert written == (f"{B}  B\n{A}  a/c\n{A}  b\n{B}  é\n{B}  \uffee\n{A}  \U0001f600\n".encode())


@pytest.mark.parametrize(
    "name", ["", "/a", "../a", "./a", "-", "C:a", "a\\b", "a\nb", "a\rb", " a", "a ", "a\udcff"]
)
def test_a_name_that_some_tool_misreads_is_refused(name: str) -> None:
    with pytest.raises(Unusable, match="cannot be listed"):
        write_sums({"fine": A, name: B})


def test_a_refused_name_is_fit_to_print() -> None:
    with pytest.raises(Unusable) as caught:
        write_sums({"a\x1b[31m": A})
    assert caught.value.message.isprintable()


def test_nothing_is_no_list() -> None:
    with pytest.raises(Unusable, match="nothing"):
        write_sums({})


@pytest.mark.parametrize("digest", ["", "A" * 64, "a" * 63, "a" * 64 + "\n", "g" * 64])
def test_what_is_no_digest_is_not_written(digest: str) -> None:
    with pytest.raises(ValueError, match="SHA-256"):
        write_sums({"a": digest})
