"""A folder that was zipped together with its name."""

from __future__ import annotations

from pathlib import Path

import pytest
from zip_builder import Piece, build
from zips import contents

from reefkit.errors import Unusable
from reefkit.provenance.content.inner import inner_folder
from reefkit.provenance.content.members import Content, Member
from reefkit.provenance.content.zip_read import ZipContent
from reefkit.provenance.finding import FindingKind

SUMS = "SHA256SUMS"


def inner(path: Path, *pieces: Piece) -> Content | None:
    path.write_bytes(build(pieces))
    return inner_folder(ZipContent(path), lambda name: name == SUMS)


def names(content: Content | None) -> list[str]:
    assert content is not None
    return [member.name for member in content.members]


def test_members_lose_the_name_of_the_folder(tmp_path: Path) -> None:
    found = inner(tmp_path / "z", Piece(b"ev-1/"), Piece(b"ev-1/SHA256SUMS", b"s"),
                  Piece(b"ev-1/a/x", b"ax"))  # fmt: skip
    assert found is not None
    assert contents(found) == {SUMS: b"s", "a/x": b"ax"}
    assert [each.diagnosis for each in found.findings if "folder ev-1" in each.diagnosis]
    with pytest.raises(Unusable):
        found.open(Member("ev-1/a/x"))


def test_what_finder_adds_stays_a_member(tmp_path: Path) -> None:
    beside = Piece(b"__MACOSX/ev/._a", b"fork")
    found = inner(tmp_path / "z", Piece(b"ev/SHA256SUMS"), Piece(b"ev/a"), beside)
    assert names(found) == [SUMS, "__MACOSX/ev/._a", "a"]
    assert found is not None and contents(found)["__MACOSX/ev/._a"] == b"fork"


@pytest.mark.parametrize(
    "entries",
    [
        [b"SHA256SUMS", b"a"],
        [b"ev/SHA256SUMS", b"a"],
        [b"ev/SHA256SUMS", b"b/a"],
        [b"ev/a", b"ev/b/SHA256SUMS"],
        [b"__MACOSX/SHA256SUMS"],
        [b"ev/SHA256SUMS", b"ev/__MACOSX/a", b"__MACOSX/a"],
        [b"ev/SHA256SUMS", b"ev"],
        [],
    ],
)
def test_other_zips_have_no_inner_folder(entries: list[bytes], tmp_path: Path) -> None:
    assert inner(tmp_path / "z", *(Piece(name) for name in entries)) is None


def test_findings_stay_and_call_members_as_they_are_called_now(tmp_path: Path) -> None:
    link = Piece(b"ev/a", b"/etc/passwd", external=0o120777 << 16)
    damaged = Piece(b"ev/b", b"beta", crc=1)
    found = inner(tmp_path / "z", Piece(b"ev/SHA256SUMS"), link, damaged)
    assert found is not None
    assert (FindingKind.LINK, "a") in [(each.kind, each.path) for each in found.findings]
    with found.open(next(each for each in found.members if each.name == "b")) as file:
        assert file.read() == b"beta"
    assert (FindingKind.CHECKSUM, "b") in [(each.kind, each.path) for each in found.findings]
