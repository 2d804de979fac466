"""Names are shown so that they cannot act on a terminal, and so that no two look alike."""

from __future__ import annotations

import json
import re
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from victims import HOSTILE_NAMES, unsafe_for_a_terminal

from reefkit.records.names import decoded, printable

# Every escape that `printable` writes, and nothing else that holds a backslash.
ESCAPE = re.compile(r"\\(?:(\\)|x([0-7][0-9a-f])|x([89a-f][0-9a-f])|(?:u(....)|U(.{8})))")
anything = st.text(st.characters(codec=None, exclude_categories=()))


def original(shown: str) -> str:
    """Undo `printable`, which proves that it is injective: for bytes, decode with surrogates."""

    def char(match: re.Match[str]) -> str:
        backslash, control, raw, short, long = match.groups()
        if raw:
            return chr(0xDC00 + int(raw, 16))
        return backslash or chr(int(control or short or long, 16))

    return ESCAPE.sub(char, shown)


@given(anything)
@example("\x1b[31m\u202e\n\\x1b\u2028\ue000\U000e0001\ud800\udcff\x9b")
def test_nothing_printed_acts_on_a_terminal(name: str) -> None:
    shown = printable(name)
    assert "\n" not in shown
    assert unsafe_for_a_terminal(shown) == []
    shown.encode()


@given(anything)
@example("\\\\x1b")
@example("\x80\udc80\\x80\\u0080")
def test_the_string_can_be_told_from_what_is_printed(name: str) -> None:
    assert original(printable(name)) == name


@given(st.binary())
@example(b"\xc2\x80\x80\\x80")
@example(b"\xed\xb2\x80")
def test_the_bytes_can_be_told_from_what_is_printed(name: bytes) -> None:
    shown = printable(name)
    assert original(shown).encode("utf-8", "surrogateescape") == name
    assert unsafe_for_a_terminal(shown) == []


@given(st.binary(), st.binary())
def test_two_names_never_print_alike(a: bytes, b: bytes) -> None:
    assert (printable(a) == printable(b)) is (a == b)


@given(st.binary())
def test_bytes_print_as_the_string_that_python_makes_of_them(name: bytes) -> None:
    assert printable(name) == printable(name.decode("utf-8", "surrogateescape"))


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"adapter_model.safetensors", "adapter_model.safetensors"),
        ("gr\u00f6\u00dfe/\u6a21\u578b", "gr\u00f6\u00dfe/\u6a21\u578b"),
        (b"a b  ", "a b  "),
        (b"", ""),
        (b"a\nb", r"a\x0ab"),
        (b"a\\012b", r"a\\012b"),
        (b"\x1b[31m", r"\x1b[31m"),
        (b"\x7f", r"\x7f"),
        (b"\xff", r"\xff"),
        ("\u202e", r"\u202e"),
        ("\u0085", r"\u0085"),
        ("\u200b\ufeff", r"\u200b\ufeff"),
        ("\u2028\u2029", r"\u2028\u2029"),
        ("\U000e0041", r"\U000e0041"),
        ("\U0010ffff", r"\U0010ffff"),
        ("\ud800", r"\ud800"),
        ("\udcff", r"\xff"),
    ],
)
def test_what_is_printed(name: bytes | str, shown: str) -> None:
    assert printable(name) == shown


def test_every_unsafe_character_is_escaped_and_every_other_shown() -> None:
    for code in range(0x110000):
        char = chr(code)
        safe = unicodedata.category(char)[0] != "C" and char not in "\u2028\u2029\\"
        assert (printable(char) == char) is safe


@pytest.mark.parametrize("name", HOSTILE_NAMES, ids=ascii)
def test_decoded_names_are_unicode_and_fit_json(name: bytes) -> None:
    text = decoded(name)
    assert json.loads(json.dumps(text, ensure_ascii=False).encode()) == text
    assert text == decoded(name.decode("utf-8", "surrogateescape"))


@given(st.binary())
def test_decoded_text_that_is_utf_8_is_unchanged(name: bytes) -> None:
    text = decoded(name)
    text.encode()
    try:
        assert name.decode() == text
    except UnicodeDecodeError:
        assert "\\x" in text
