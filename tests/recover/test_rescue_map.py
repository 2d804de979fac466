"""Rescue maps: what one run writes the next reads, and GNU ddrescue as well."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reefkit.errors import Unusable
from reefkit.recover.ranges import Range, intersect, merge, total
from reefkit.recover.save.rescue_map import RescueMap

PAGE = 4096
FACTS = {"source": "file", "inode": "4242", "mtime_ns": "1600000000123456789", "boot_id": "a: b"}
needs_ddrescue = pytest.mark.skipif(
    shutil.which("ddrescuelog") is None, reason="ddrescuelog is not there: install gddrescue"
)


@st.composite
def maps(draw: st.DrawFn, unit: int = 1) -> RescueMap:
    """A map of up to 40 pieces, each of which has one of the four states."""
    sizes = draw(st.lists(st.integers(1, 2**34).map(lambda n: n * unit), max_size=40))
    states: dict[str, list[Range]] = {"finished": [], "bad": [], "doubtful": [], "untried": []}
    position = 0
    for size in sizes:
        state = draw(st.sampled_from(list(states)))
        states[state].append(Range(position, position + size))
        position += size
    return RescueMap(
        size=position,
        finished=merge(states["finished"]),
        bad=merge(states["bad"]),
        doubtful=merge(states["doubtful"]),
        facts=draw(st.sampled_from([{}, FACTS])),
    )


@given(maps())
def test_a_map_that_is_read_back_is_the_same(written: RescueMap) -> None:
    assert RescueMap.from_text(written.to_text()) == written


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"size": 0}, ["0x00000000     +     1"]),
        ({"size": PAGE}, ["0x00000000     ?     1", "0x00000000  0x00001000  ?"]),
        (
            {"size": 3 * PAGE, "finished": (Range(0, PAGE),), "bad": (Range(PAGE, 2 * PAGE),)},
            [
                "0x00002000     ?     1",
                "0x00000000  0x00001000  +",
                "0x00001000  0x00001000  -",
                "0x00002000  0x00001000  ?",
            ],
        ),
        (
            {"size": 2**33, "finished": (Range(1, 2**33),), "doubtful": (Range(0, 1),)},
            [
                "0x00000000     +     1",
                "0x00000000  0x00000001  *",
                "0x00000001  0x1FFFFFFFF  +",
            ],
        ),
    ],
)
def test_the_text_is_that_of_the_manual(changes: dict[str, object], expected: list[str]) -> None:
    text = RescueMap(**changes).to_text()  # type: ignore[arg-type]
    assert [line for line in text.splitlines() if not line.startswith("#")] == expected
    assert text.endswith("\n")
    assert text.isascii()


def ddrescuelog(*arguments: str | Path) -> str:
    command = ["ddrescuelog", *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@needs_ddrescue
@pytest.mark.parametrize(
    "states",
    ["+", "?", "-", "*", "+-*?", "+?+?+", "-+-", "??++**--"],
)
def test_ddrescuelog_reads_the_same_states(tmp_path: Path, states: str) -> None:
    pieces = [(Range(i * PAGE, (i + 1) * PAGE), state) for i, state in enumerate(states)]
    written = RescueMap(
        size=len(states) * PAGE,
        finished=merge(r for r, state in pieces if state == "+"),
        bad=merge(r for r, state in pieces if state == "-"),
        doubtful=merge(r for r, state in pieces if state == "*"),
        facts=FACTS,
    )
    file = tmp_path / "a.rescue.map"
    file.write_text(written.to_text())
    for state in "?*-+":
        blocks = [int(n) for n in ddrescuelog(f"-l{state}", "-b", str(PAGE), file).split()]
        assert blocks == [i for i, s in enumerate(states) if s == state]
    assert ddrescuelog("-t", file)


@needs_ddrescue
@pytest.mark.parametrize("size", [1, 4095, 4097, 2**40 + 1])
def test_ddrescuelog_reads_odd_sizes(tmp_path: Path, size: int) -> None:
    written = RescueMap(size, finished=(Range(0, size - 1),), bad=(Range(size - 1, size),))
    file = tmp_path / "a.rescue.map"
    file.write_text(written.to_text())
    assert ddrescuelog("-l-", "-b1", file).split() == [str(size - 1)]
    ended = ["ddrescuelog", "--done-status", str(file)]
    assert subprocess.run(ended, check=False).returncode == 1
    file.write_text(RescueMap(size, finished=(Range(0, size),)).to_text())
    assert subprocess.run(ended, check=False).returncode == 0


@needs_ddrescue
def test_what_ddrescuelog_wrote_is_read(tmp_path: Path) -> None:
    written = RescueMap(
        8 * PAGE, finished=(Range(0, 3 * PAGE),), bad=(Range(4 * PAGE, 5 * PAGE),), facts=FACTS
    )
    file = tmp_path / "a.rescue.map"
    file.write_text(written.to_text())
    inverted = RescueMap.from_text(ddrescuelog("-n", file))
    assert (inverted.size, inverted.finished) == (8 * PAGE, (Range(3 * PAGE, 8 * PAGE),))


@given(maps(), st.integers(0, 2**35), st.integers(0, 2**35))
def test_no_byte_is_both_finished_and_not(written: RescueMap, start: int, stop: int) -> None:
    read = RescueMap.from_text(written.to_text())
    states = (read.finished, read.bad, read.doubtful)
    everything = merge(piece for pieces in states for piece in pieces)
    assert sum(map(total, states)) == total(everything)
    assert intersect(everything, Range(0, read.size)) == everything


# --- hostile text --------------------------------------------------------------------------------

lines = st.one_of(
    st.text(max_size=40),
    st.from_regex(r"#[^\n]{0,20}"),
    st.builds(
        "{}  {}  {}".format,
        *[st.one_of(st.integers(-(2**70), 2**70).map(hex), st.text(max_size=5))] * 2,
        st.sampled_from(["?", "*", "/", "-", "+", "", "x", "++"]),
    ),
)


@given(st.one_of(st.text(), st.lists(lines, max_size=10).map("\n".join)))
def test_hostile_text_raises_nothing_but_unusable(text: str) -> None:
    try:
        read = RescueMap.from_text(text)
    except Unusable:
        return
    assert read.size >= 0
    assert total(read.finished) + total(read.bad) + total(read.doubtful) <= read.size


STATE = "0x00000000     ?     1\n"


@pytest.mark.parametrize(
    "text",
    [
        STATE + "0x00001000  0x00001000  +\n",
        STATE + "0x00000000  0x00001000  +\n0x00002000  0x00001000  +\n",
        STATE + "0x00000000  0x00001000  +\n0x00000800  0x00001000  +\n",
        STATE + "0x00000000  0x00000000  +\n",
        STATE + "0x00000000  -0x00001000  +\n",
        STATE + "-0x00001000  0x00001000  +\n",
        STATE + "0x00000000  0x00001000  x\n",
        STATE + "0x00000000  0x00001000  +-\n",
        STATE + "0x00000000  0x00001000\n",
        STATE + "0x00000000  0x00001000  +  +\n",
        STATE + "zero  0x00001000  +\n",
        STATE + "9" * 5000 + "  0x00001000  +\n",
        STATE + "garbage\n",
    ],
)
def test_a_damaged_map_is_refused(text: str) -> None:
    with pytest.raises(Unusable, match=r"^The mapfile (holds|has) "):
        RescueMap.from_text(text)
