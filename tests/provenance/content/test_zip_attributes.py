"""What an entry becomes by its attributes, whichever system it claims to be from."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from zip_builder import Piece, build

from reefkit.provenance.content.members import MemberKind
from reefkit.provenance.content.zip_read import ZipContent
from reefkit.provenance.finding import FindingKind


def seen(path: Path, external: int, system: int = 3, name: bytes = b"a") -> ZipContent:
    central = {"made_by": system << 8 | 20}
    path.write_bytes(build([Piece(name, b"/etc/passwd", external=external, central=central)]))
    return ZipContent(path)


def kinds(content: ZipContent) -> set[FindingKind]:
    return {each.kind for each in content.findings} - {FindingKind.DIALECT}


@pytest.mark.parametrize("system", range(0, 256, 1))
def test_a_link_is_one_on_every_system(system: int, tmp_path: Path) -> None:
    content = seen(tmp_path / "z", 0o120777 << 16, system)
    assert [member.kind for member in content.members] == [MemberKind.LINK]
    assert kinds(content) == {FindingKind.LINK}


@pytest.mark.skipif(shutil.which("unzip") is None, reason="unzip is not installed")
def test_nothing_that_unzip_makes_a_link_passes(tmp_path: Path) -> None:
    made = 0
    for system in range(20):
        path = tmp_path / f"{system}.zip"
        content = seen(path, 0o120777 << 16, system)
        out = tmp_path / str(system)
        subprocess.run(["unzip", "-q", path, "-d", out], capture_output=True, check=False)
        if (out / "a").is_symlink():
            made += 1
            assert FindingKind.LINK in kinds(content)
    assert made > 3


@pytest.mark.parametrize("system", [0, 2, 3, 5, 10, 16, 19])
@pytest.mark.parametrize("mode", [0o010644, 0o020644, 0o060644, 0o140644, 0o040755, 0o030000])
def test_other_types_are_special_files_on_every_system(
    system: int, mode: int, tmp_path: Path
) -> None:
    content = seen(tmp_path / "z", mode << 16, system)
    assert kinds(content) == {FindingKind.SPECIAL_FILE}
    assert [member.kind for member in content.members] == [MemberKind.SPECIAL]


@pytest.mark.parametrize(
    ("external", "kind"),
    [
        (0x400, FindingKind.LINK),
        (0o100644 << 16 | 0x400, FindingKind.LINK),
        (0x8, FindingKind.SPECIAL_FILE),
        (0x40, FindingKind.SPECIAL_FILE),
        (0x10, FindingKind.HEADERS_DIFFER),
    ],
)
def test_attributes_of_windows_count(external: int, kind: FindingKind, tmp_path: Path) -> None:
    assert kinds(seen(tmp_path / "z", external, 0)) == {kind}


@pytest.mark.parametrize("external", [0, 0x20, 0x21, 0x80, 0o100600 << 16 | 0x20])
def test_ordinary_attributes_are_notes_at_most(external: int, tmp_path: Path) -> None:
    assert kinds(seen(tmp_path / "z", external, 0)) == set()


@pytest.mark.parametrize("bit", [0o4000, 0o2000, 0o1000])
def test_modes_that_give_rights_are_noted(bit: int, tmp_path: Path) -> None:
    content = seen(tmp_path / "z", (0o100755 | bit) << 16)
    assert any("set-user-ID" in each.diagnosis for each in content.findings)
    assert kinds(content) == set()
