"""Many mismatches: explained until it is not worth its time. And files of nothing but zeros."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from plain_content import FilesInMemory, FilesOnDisk

from reefkit.provenance.content.members import Member
from reefkit.provenance.diagnosis import cut_off
from reefkit.provenance.diagnosis.diagnose import Diagnoses, diagnose
from reefkit.provenance.diagnosis.known import Known
from reefkit.provenance.diagnosis.subject import Subject
from reefkit.provenance.sums.model import SumsLine

GIVEN_UP = "not looked into any more"
IN_VAIN = "no simple change explains it"
LISTED = "ab" * 32


def line(name: str, listed: bytes | None = None) -> SumsLine:
    digest = LISTED if listed is None else hashlib.sha256(listed).hexdigest()
    return SumsLine(name, "sha256", digest, 1)


def test_it_gives_up_after_files_in_a_row_that_nothing_explains() -> None:
    content = FilesInMemory({f"{number}.bin": b"%d\x00x" % number for number in range(6)})
    diagnoses = Diagnoses(content, Known(), seconds=60, most_in_vain=3)
    said = [diagnoses.of(member, line(member.name)) for member in content.members]
    assert [IN_VAIN in each for each in said] == [True] * 3 + [False] * 3
    assert [GIVEN_UP in each for each in said] == [False] * 3 + [True] * 3


def test_an_explanation_begins_the_row_anew() -> None:
    files = {f"{number}.txt": b"a\r\n%d\r\n" % number for number in range(6)}
    content = FilesInMemory(files)
    diagnoses = Diagnoses(content, Known(), seconds=60, most_in_vain=1)
    for member in content.members:
        assert "CR LF" in diagnoses.of(
            member, line(member.name, files[member.name].replace(b"\r\n", b"\n"))
        )


def test_time_in_all_is_bounded() -> None:
    content = FilesInMemory({"a.bin": b"x\x00y"})
    assert GIVEN_UP in Diagnoses(content, Known(), seconds=0).of(content.members[0], line("a.bin"))


def test_what_costs_nothing_is_still_said_then() -> None:
    content = FilesInMemory({"a": b"a", "b": b"b"})
    known = Known({LISTED: ("b",)}, {"a": LISTED})
    said = Diagnoses(content, known, seconds=0).of(content.members[0], line("a", b"a"))
    assert "listed for `b`" in said


@pytest.mark.parametrize("written", [0, 1])
def test_a_large_file_of_zeros_is_told_in_time(
    written: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `written`, it has no hole at its start: then the sentence says how far was looked."""
    monkeypatch.setattr(Subject, "out_of_time", property(lambda _: True))
    with open(tmp_path / "z.bin", "wb") as file:
        file.write(bytes(written))
        file.truncate(64 << 20)
    content = FilesOnDisk(tmp_path)
    said = diagnose(content, content.member("z.bin"), line("z.bin"), Known())
    assert said.startswith("It consists of 67,108,864 zeros")
    assert ("as far as was looked" in said) == bool(written)


def test_zeros_at_the_end_that_were_not_all_counted_are_at_least_so_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Subject, "out_of_time", property(lambda _: True))
    content = FilesInMemory({"z.bin": b"x" + bytes(3 << 20)})
    member: Member = content.members[0]
    said = cut_off.zero_tail(Subject(content, member, line("z.bin"), Known()))
    assert said is not None and said.startswith("At least its last 1,048,576 bytes are zeros")
