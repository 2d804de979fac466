"""The zip that is written: the same bytes everywhere, and nothing in it that is not needed."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import zipfile
import zlib
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from zips import contents, member_of, zipped

from reefkit.errors import DoesNotHold, Unusable
from reefkit.provenance.content.folder import FolderContent
from reefkit.provenance.content.members import Member
from reefkit.provenance.content.zip_read import ZipContent
from reefkit.provenance.content.zip_write import ZipMember, write_zip
from reefkit.provenance.finding import FindingKind

FILES = {"a.txt": b"alpha\n", "b/c.bin": bytes(range(256)), "b/ü.txt": b"", "z": b"z"}
SCRIPT = """
import pathlib, sys
from reefkit.provenance.content.folder import FolderContent
from reefkit.provenance.content.zip_write import ZipMember, write_zip
content = FolderContent(pathlib.Path(sys.argv[1]))
with open(sys.argv[2], "wb") as out:
    write_zip(
        out,
        [ZipMember(m.name, m.size, lambda m=m: content.open(m)) for m in content.members],
    )
"""


def test_the_bytes_are_these() -> None:
    """A change of the form is a change of every package's digest: it must be meant."""
    assert hashlib.sha256(zipped(FILES)).hexdigest() == (
        "c1817f509c36cf5352d5c3cca4d77d179cfdc2beb90cd324a2ab406824110a18"
    )


def test_zipfile_and_unzip_read_it(tmp_path: Path) -> None:
    path = tmp_path / "z.zip"
    path.write_bytes(zipped(FILES))
    with zipfile.ZipFile(path) as file:
        assert file.testzip() is None
        assert {i.filename: file.read(i) for i in file.infolist()} == FILES
        assert {i.date_time for i in file.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert {i.external_attr >> 16 for i in file.infolist()} == {0o100644}
    done = subprocess.run(["unzip", "-tq", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(
        st.text(st.characters(codec="utf-8"), max_size=12), st.binary(max_size=50), max_size=6
    )
)
def test_what_is_written_is_read_again_or_refused(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes]
) -> None:
    path = tmp_path_factory.getbasetemp() / "own.zip"
    try:
        path.write_bytes(zipped(files))
    except Unusable:
        return
    with ZipContent(path) as content:
        assert contents(content) == files


@pytest.mark.parametrize(
    "name",
    ["../a", "/a", "C:a", "a\\b", "", "a//b", "./a", "a\n", "x" * 65_536, "\udcff", "nul", "d./a"],
)
def test_names_that_are_none_everywhere_are_refused(name: str) -> None:
    with pytest.raises(Unusable):
        write_zip(io.BytesIO(), [member_of(name, b"")])


@pytest.mark.parametrize("names", [("b", "a"), ("a", "a"), ("ü", "z")])
def test_names_out_of_order_are_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(Unusable, match=r"order|twice"):
        write_zip(io.BytesIO(), [member_of(name, b"") for name in names])


@pytest.mark.parametrize("size", [4, 6])
def test_a_file_of_another_size_is_refused(size: int) -> None:
    with pytest.raises(DoesNotHold, match="size"):
        write_zip(io.BytesIO(), [ZipMember("a", size, lambda: io.BytesIO(b"12345"))])


def test_a_file_of_another_checksum_is_refused() -> None:
    with pytest.raises(DoesNotHold, match="changed"):
        write_zip(io.BytesIO(), [member_of("a", b"12345", crc32=1)])


class Pipe(io.BytesIO):
    """What cannot go back, and takes a few bytes at a time."""

    def seekable(self) -> bool:
        return False

    def seek(self, *_: object) -> int:
        raise OSError

    def tell(self) -> int:
        raise OSError

    def write(self, data: object, /) -> int:
        return super().write(bytes(memoryview(cast("bytes", data))[:1000]))


def test_a_pipe_gets_the_same_bytes() -> None:
    files = {"a": b"x" * 5000, "b": b"y"}
    for crcs in (True, False):
        out = Pipe()
        members = [member_of(n, d, zlib.crc32(d) if crcs else None) for n, d in files.items()]
        write_zip(out, members)
        assert out.getvalue() == zipped(files)


def test_the_place_in_the_output_does_not_matter() -> None:
    out = io.BytesIO(b"before")
    out.seek(0, os.SEEK_END)
    write_zip(out, [member_of("a", b"x")])
    assert out.getvalue() == b"before" + zipped({"a": b"x"})


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"TZ": "Pacific/Kiritimati", "LC_ALL": "C"},
        {
            "TZ": "America/St_Johns",
            "PYTHONUTF8": "0",
            "LC_ALL": "POSIX",
            "PYTHONCOERCECLOCALE": "0",
        },
        {"LC_ALL": "de_DE.ISO-8859-1", "PYTHONUTF8": "0", "SOURCE_DATE_EPOCH": "1700000000"},
    ],
)
@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_nothing_around_it_changes_the_bytes(
    tmp_path: Path, environment: dict[str, str], umask: int
) -> None:
    folder = tmp_path / "in"
    for number, name in enumerate(sorted(FILES, reverse=umask == 0)):  # order of the inodes
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(FILES[name])
        (folder / name).chmod(0o600 if number % 2 else 0o755)
        os.utime(folder / name, (number * 1e8, number * 2e8))
    subprocess.run(
        [sys.executable, "-c", SCRIPT, folder, tmp_path / "z.zip"],
        env={**os.environ, **environment},
        umask=umask,
        check=True,
    )
    assert (tmp_path / "z.zip").read_bytes() == zipped(FILES)


class Zeros(io.RawIOBase):
    """Many zeros; the reader's buffer must hold them already."""

    def __init__(self, size: int) -> None:
        self.left = size

    def readinto(self, buffer: bytearray, /) -> int:  # type: ignore[override]
        count = min(len(buffer), self.left)
        self.left -= count
        return count


class Sparse(io.FileIO):
    """Leaves a hole where zeros are written."""

    def write(self, data: object, /) -> int:
        view = memoryview(cast("bytes", data))
        if len(view) >= 1 << 16:
            self.seek(len(view), os.SEEK_CUR)
            return len(view)
        return super().write(view)


def test_files_and_offsets_beyond_4_gib(tmp_path: Path) -> None:
    path, size = tmp_path / "z.zip", (1 << 32) + (1 << 20)
    with Sparse(path, "wb") as out:
        write_zip(
            cast("BinaryIO", out),
            [
                ZipMember("a.bin", size, lambda: cast("BinaryIO", Zeros(size))),
                member_of("b.txt", b"after\n"),
            ],
        )
    with ZipContent(path) as content:
        assert content.findings == ()
        assert [(m.name, m.size) for m in content.members] == [("a.bin", size), ("b.txt", 6)]
        with content.open(content.members[1]) as file:
            assert file.read() == b"after\n"
    with zipfile.ZipFile(path) as theirs:
        assert [i.file_size for i in theirs.infolist()] == [size, 6]
        assert theirs.read("b.txt") == b"after\n"
    done = subprocess.run(["unzip", "-tq", path, "b.txt"], capture_output=True, check=False)
    assert done.returncode == 0


@pytest.mark.parametrize("count", [65_534, 65_535])
def test_more_entries_than_the_old_end_record_counts(tmp_path: Path, count: int) -> None:
    path = tmp_path / "z.zip"
    with open(path, "wb") as out:
        write_zip(out, (member_of(f"{i:06}", b"", 0) for i in range(count)))
    with ZipContent(path) as content:
        assert len(content.members) == count
        assert content.findings == ()
    with zipfile.ZipFile(path) as theirs:
        assert len(theirs.infolist()) == count


def test_a_folder_is_packed_and_read_again(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "12:00.log").write_bytes(b"noon\n")
    folder = FolderContent(tmp_path / "in")

    def opened(member: Member) -> BinaryIO:
        return cast("BinaryIO", folder.open(member))

    with open(tmp_path / "z.zip", "wb") as out:
        write_zip(out, [ZipMember(m.name, m.size, partial(opened, m)) for m in folder.members])
    with ZipContent(tmp_path / "z.zip") as content:
        assert contents(content) == {"12:00.log": b"noon\n"}
        assert [each.kind for each in content.findings] == [FindingKind.DIALECT]
