"""What every command shares: where it speaks, its tables, its sizes, its options."""

from __future__ import annotations

import json
import sys
import unicodedata

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from victims import HOSTILE_NAMES, unsafe_for_a_terminal

from reefkit.cli import run
from reefkit.commands.frame import Terminal, counted, declare, human_size, shortened, table

cells = st.text(max_size=12)


# --- the terminal --------------------------------------------------------------------------------


@pytest.mark.parametrize("quiet", [False, True])
@pytest.mark.parametrize("as_json", [False, True])
def test_stdout_carries_the_product_or_the_document_and_stderr_the_rest(
    as_json: bool, quiet: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal(as_json=as_json, quiet=quiet)
    terminal.document({"b": 1, "a": "\x1b"})
    terminal.product("product")
    terminal.say("news")
    terminal.warn("warning")
    out, err = capsys.readouterr()
    if as_json:
        assert json.loads(out) == {"a": "\x1b", "b": 1}
    else:
        assert out == "product\n"
    assert err == ("" if quiet else "news\n") + "warning\n"


@pytest.mark.parametrize("is_terminal", [False, True])
@pytest.mark.parametrize("quiet", [False, True])
def test_progress_is_drawn_on_a_terminal_unless_quiet(
    quiet: bool, is_terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    terminal = Terminal(as_json=False, quiet=quiet)
    assert terminal.shows_progress is (is_terminal and not quiet)


def declared() -> click.Group:
    @declare("try", help_text="Try it.", examples="\nreef-recover try\nreef-recover try --json\n")
    @click.option("--code", type=int, default=0)
    def command(terminal: Terminal, code: int) -> int:
        terminal.document({"quiet": terminal.quiet})
        terminal.product("done")
        terminal.say("news")
        return code

    return click.Group("reef-recover", commands={"try": command})


@pytest.mark.parametrize(
    ("arguments", "out", "err"),
    [
        ([], "done\n", "news\n"),
        (["--quiet"], "done\n", ""),
        (["--json"], '{\n  "quiet": false\n}\n', "news\n"),
        (["--json", "--quiet", "--debug"], '{\n  "quiet": true\n}\n', ""),
    ],
)
@pytest.mark.parametrize("code", [0, 1])
def test_a_declared_command_has_the_common_options_and_answers_with_its_code(
    arguments: list[str], out: str, err: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(declared(), ["try", "--code", str(code), *arguments]) == code
    assert capsys.readouterr() == (out, err)


def test_a_declared_command_shows_its_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(declared(), ["try", "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.endswith("Examples:\n    reef-recover try\n    reef-recover try --json\n")


# --- tables --------------------------------------------------------------------------------------


def test_columns_are_aligned_and_the_last_is_never_cut() -> None:
    long = "n" * 300
    rows = [("1", "yes", long), ("4242", "no", "x")]
    assert table(("PID", "ANY", "NAME"), rows).splitlines() == [
        "PID   ANY  NAME",
        f"1     yes  {long}",
        "4242  no   x",
    ]


@given(st.lists(st.tuples(cells, cells, cells)))
def test_a_table_has_a_line_a_row_whatever_the_cells(rows: list[tuple[str, str, str]]) -> None:
    shown = table(("A", "B", "C"), rows)
    assert len(shown.split("\n")) == 1 + len(rows)
    assert unsafe_for_a_terminal(shown) == []


@pytest.mark.parametrize("name", HOSTILE_NAMES, ids=ascii)
def test_hostile_cells_shift_no_column(name: bytes) -> None:
    text = name.decode("utf-8", "surrogateescape")
    headings, row = table(("A", "B", "C"), [(text, "b", "c")]).split("\n")
    assert headings.index("B") == row.rindex("b")
    assert unsafe_for_a_terminal(row) == []


@pytest.mark.parametrize("space", [" ", "\u00a0", "\u3000"])
def test_names_that_differ_in_trailing_spaces_are_shown_apart(space: str) -> None:
    assert unicodedata.category(space) == "Zs"
    one, two = table(("PID", "NAME"), [("1", "a"), ("1", f"a{space}")]).split("\n")[1:]
    assert one != two


# --- words ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (None, "?"),
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (174_685_208, "166.6 MiB"),
        (5 << 30, "5.0 GiB"),
        (3 << 40, "3.0 TiB"),
        (4096 << 40, "4096.0 TiB"),
    ],
)
def test_sizes_have_a_unit_that_fits(count: int | None, shown: str) -> None:
    assert human_size(count) == shown


@given(st.integers(0, 1 << 60))
def test_a_size_shown_is_within_a_twentieth_of_its_unit(count: int) -> None:
    number, unit = human_size(count).split()
    factor = 1024 ** ("B", "KiB", "MiB", "GiB", "TiB").index(unit)
    assert abs(float(number) * factor - count) <= factor * 0.051


@pytest.mark.parametrize(
    ("number", "shown"), [(0, "0 files"), (1, "1 file"), (2, "2 files"), (1234, "1,234 files")]
)
def test_a_number_agrees_with_its_noun(number: int, shown: str) -> None:
    assert counted(number, "file") == shown


def test_a_plural_of_its_own_is_used() -> None:
    assert counted(2, "process", "processes") == "2 processes"
    assert counted(1, "process", "processes") == "1 process"


@given(st.text(max_size=50), st.integers(1, 40))
def test_a_shortened_text_fits_and_begins_alike(text: str, width: int) -> None:
    short = shortened(text, width)
    assert len(short) <= width
    assert short == text or (short.endswith("…") and text.startswith(short[:-1]))
