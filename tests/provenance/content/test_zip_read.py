"""Zips that honest tools made are read; of our own no byte can change without being noticed."""

from __future__ import annotations

import io
import os
import shutil
import struct
import subprocess
import sys
import time
import zipfile
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from zip_builder import Piece, build
from zips import contents, read_zip, zipped

from reefkit.errors import NotPermitted, ReefError, Unusable
from reefkit.provenance.content import zip_checksum
from reefkit.provenance.content.members import Member, MemberKind
from reefkit.provenance.content.zip_end import read_end
from reefkit.provenance.content.zip_read import ZipContent
from reefkit.provenance.content.zip_source import ZipSource
from reefkit.provenance.content.zip_streams import ZipFault
from reefkit.provenance.finding import FindingKind, Gravity

FILES = {"SHA256SUMS": b"x" * 70, "logs/ü.txt": "grün\n".encode(), "model.bin": bytes(range(99))}
needs_zip = pytest.mark.skipif(shutil.which("zip") is None, reason="zip is not installed")


def put(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def foreign_tree(folder: Path) -> dict[str, bytes]:
    files = {"a.txt": b"alpha\n" * 500, "sub/deep/b.bin": os.urandom(4000), "sub/empty": b""}
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    (folder / "nothing").mkdir()
    return files


def kinds(content: ZipContent) -> list[FindingKind]:
    return [each.kind for each in content.findings]


def only_notes(content: ZipContent) -> bool:
    return all(each.kind is FindingKind.DIALECT for each in content.findings)


def test_our_own_zip_is_read_without_any_finding(tmp_path: Path) -> None:
    with ZipContent(put(tmp_path / "z.zip", zipped(FILES))) as content:
        assert contents(content) == FILES
        assert content.findings == ()
        assert [m.name for m in content.members] == list(FILES)


def test_an_empty_zip_has_no_members(tmp_path: Path) -> None:
    with ZipContent(put(tmp_path / "z.zip", zipped({}))) as content:
        assert content.members == () and content.findings == ()


@needs_zip
@pytest.mark.parametrize("options", ["-qr", "-q0r", "-qrX", "-qrD", "-q9r", "-qrfz"])
def test_what_zip_writes_is_read_with_notes_only(tmp_path: Path, options: str) -> None:
    files = foreign_tree(tmp_path / "in")
    subprocess.run(["zip", options, "../z.zip", "."], cwd=tmp_path / "in", check=True)
    with ZipContent(tmp_path / "z.zip") as content:
        assert contents(content) == files
        assert content.findings and only_notes(content)


@needs_zip
def test_what_zip_writes_to_a_pipe_is_read_with_notes_only(tmp_path: Path) -> None:
    files = foreign_tree(tmp_path / "in")
    done = subprocess.run(
        ["zip", "-qr", "-", "."], cwd=tmp_path / "in", capture_output=True, check=True
    )
    with ZipContent(put(tmp_path / "z.zip", done.stdout)) as content:
        assert contents(content) == files
        assert only_notes(content)
        assert any("after the data" in each.diagnosis for each in content.findings)


@needs_zip
def test_what_zip_reads_from_a_pipe_is_read_with_notes_only(tmp_path: Path) -> None:
    done = subprocess.run(["zip", "-q"], input=b"piped" * 99, capture_output=True, check=True)
    with ZipContent(put(tmp_path / "z.zip", done.stdout)) as content:
        assert [(m.name, m.size) for m in content.members] == [("-", 495)]
        # Info-ZIP calls it `-` and keeps that it was a pipe.
        grave = [each for each in content.findings if each.gravity is not Gravity.NOTE]
        assert {each.kind for each in grave} <= {FindingKind.UNSAFE_NAME, FindingKind.SPECIAL_FILE}


@needs_zip
def test_a_link_that_zip_stored_is_a_link(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "link").symlink_to("../../etc/passwd")
    subprocess.run(["zip", "-qry", "../z.zip", "."], cwd=tmp_path / "in", check=True)
    with ZipContent(tmp_path / "z.zip") as content:
        assert [m.kind for m in content.members] == [MemberKind.LINK]


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("seekable", [True, False])
def test_what_zipfile_writes_is_read_with_notes_only(
    tmp_path: Path, compression: int, seekable: bool
) -> None:
    out = io.BytesIO()
    if not seekable:
        out.seekable = lambda: False  # type: ignore[method-assign]
        out.seek = _refuse  # type: ignore[method-assign]
        out.tell = _refuse  # type: ignore[method-assign]
    with zipfile.ZipFile(out, "w", compression) as file:
        for name, data in FILES.items():
            file.writestr(name, data)
        with file.open("large.bin", "w", force_zip64=True) as large:
            large.write(b"L" * 5000)
    with ZipContent(put(tmp_path / "z.zip", out.getvalue())) as content:
        assert contents(content) == {**FILES, "large.bin": b"L" * 5000}
        assert only_notes(content)


def _refuse(*_: object) -> int:
    raise OSError


def test_names_of_dos_are_read_in_its_character_set(tmp_path: Path) -> None:
    data = build([Piece("gr\u00fcn.txt".encode("cp437"), central={"made_by": 20})])
    with ZipContent(put(tmp_path / "z.zip", data)) as content:
        assert [m.name for m in content.members] == ["grün.txt"]
        assert only_notes(content)


def test_unmarked_names_of_unix_are_read_as_utf8(tmp_path: Path) -> None:
    with ZipContent(put(tmp_path / "z.zip", build([Piece("grün.txt".encode())]))) as content:
        assert [m.name for m in content.members] == ["grün.txt"]
        assert any("unmarked" in each.diagnosis for each in content.findings)


def test_folders_are_members_only_when_empty(tmp_path: Path) -> None:
    data = build([Piece(b"d/", b""), Piece(b"d/a"), Piece(b"e/", b"")])
    with ZipContent(put(tmp_path / "z.zip", data)) as content:
        assert content.members == (
            Member("d/a", MemberKind.FILE, 5),
            Member("e", MemberKind.EMPTY_FOLDER),
        )


def test_every_single_bit_of_our_own_zip_counts(tmp_path: Path) -> None:
    data = zipped({"a": b"alpha", "ü/b": b"\n"})
    path = put(tmp_path / "z.zip", data)
    with open(path, "r+b", buffering=0) as file:
        for at in range(len(data)):
            for bit in range(8):
                _put_byte(file, at, data[at] ^ 1 << bit)
                assert _is_noticed(path), (at, bit)
            _put_byte(file, at, data[at])
    assert not _is_noticed(path)


def test_every_single_bit_of_the_end_records_of_large_zips_counts(tmp_path: Path) -> None:
    data = zipped({f"{i:05}": b"" for i in range(0xFFFF)})[-98:]
    assert data.startswith(b"PK\6\6")
    directory = struct.unpack_from("<2Q", data, 40)
    path = tmp_path / "z.zip"
    with open(path, "wb", buffering=0) as file:
        file.seek(sum(directory))
        file.write(data)
        usual = read_end(ZipSource(path))
        assert usual.findings == () and usual.entries == 0xFFFF
        for at in range(len(data)):
            for bit in range(8):
                _put_byte(file, sum(directory) + at, data[at] ^ 1 << bit)
                try:
                    assert read_end(ZipSource(path)) != usual, (at, bit)
                except Unusable as error:
                    assert error.message
            _put_byte(file, sum(directory) + at, data[at])


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 255)), min_size=1, max_size=4),
    st.sampled_from(["stored", "deflated"]),
)
def test_no_change_passes_for_other_content(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]], how: str
) -> None:
    data = bytearray(zipped(FILES) if how == "stored" else _deflated())
    for at, difference in changes:
        data[at % len(data)] ^= difference
    path = tmp_path_factory.getbasetemp() / "mutated.zip"
    path.write_bytes(data)
    try:
        with ZipContent(path) as content:
            assert contents(content) == FILES or content.findings
    except ReefError as error:
        assert error.message


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400), st.integers(0, 400), st.integers(0, 400))
def test_no_bytes_raise_anything_else(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, start: int, stop: int
) -> None:
    data = zipped(FILES)
    path = tmp_path_factory.getbasetemp() / "noise.zip"
    path.write_bytes(data[:start] + noise + data[stop:])
    try:
        with ZipContent(path) as content:
            contents(content)
    except ReefError as error:
        assert error.message


def _deflated() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in FILES.items():
            file.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def _put_byte(file: io.FileIO, at: int, value: int) -> None:
    file.seek(at)
    file.write(bytes([value]))


def _is_noticed(path: Path) -> bool:
    try:
        with ZipContent(path) as content:
            contents(content)
            return bool(content.findings)
    except ReefError:
        return True


@pytest.mark.parametrize("make", [lambda: zipped(FILES), _deflated])
def test_members_are_seekable(tmp_path: Path, make: Callable[[], bytes]) -> None:
    with ZipContent(put(tmp_path / "z.zip", make())) as content:
        member = next(m for m in content.members if m.name == "model.bin")
        with content.open(member) as file:
            assert file.seek(-9, os.SEEK_END) == 90
            assert file.read() == bytes(range(90, 99))
            assert file.seek(5) == 5 and file.read(3) == bytes([5, 6, 7]) and file.tell() == 8
            assert file.seek(500) == 500 and file.read(1) == b""
            with pytest.raises(ValueError, match="negative"):
                file.seek(-1)


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("read", ["to the end", "all but the end", "at once"])
def test_a_wrong_checksum_is_a_finding_once_all_was_read(
    tmp_path: Path, large: bool, read: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zip_checksum, "LARGE", 0 if large else 1 << 40)
    monkeypatch.setattr(os, "sched_getaffinity", _two_cores, raising=False)
    path = put(tmp_path / "z.zip", build([Piece(b"a", b"data" * 999, crc=7)]))
    with ZipContent(path) as content:
        (member,) = content.members
        with content.open(member) as file:
            assert file.read(100)
        assert not kinds(content)
        for _ in range(2):
            with content.open(member) as file:
                if read == "to the end":
                    while file.read(100):
                        pass
                else:
                    assert file.read(3996 if read == "all but the end" else -1) == b"data" * 999
            assert kinds(content) == [FindingKind.CHECKSUM]


def _two_cores(_: int) -> set[int]:
    return {0, 1}


@pytest.mark.parametrize("size", [0, 9])
def test_data_that_cannot_be_had_are_raised_and_a_finding(tmp_path: Path, size: int) -> None:
    path = put(tmp_path / "z.zip", build([Piece(b"a", b"\xff" * 9, size=size, method=8)]))
    with ZipContent(path) as content:
        with pytest.raises(ZipFault, match="no valid"), content.open(content.members[0]) as file:
            file.read()
        assert [each.kind for each in content.findings][-1] is FindingKind.CHECKSUM


@pytest.mark.parametrize("missing", [(), ("preadv",), ("preadv", "pread", "sched_getaffinity")])
def test_members_are_read_by_several_threads_on_every_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: tuple[str, ...]
) -> None:
    for name in missing:
        monkeypatch.delattr(os, name, raising=False)
    monkeypatch.setattr(zip_checksum, "LARGE", 1000)
    files = {f"{i}.bin": os.urandom(200_000) for i in range(8)}
    with ZipContent(put(tmp_path / "z.zip", zipped(files))) as content:

        def read(member: Member) -> bytes:
            with content.open(member) as file:
                return b"".join(iter(lambda: file.read(777), b""))

        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(read, content.members)) == list(files.values())
        assert content.findings == ()


def test_twenty_thousand_members_open_within_a_second(tmp_path: Path) -> None:
    path = put(tmp_path / "z.zip", zipped({f"d/{i:05}": b"x" for i in range(20_000)}))
    start = time.perf_counter()
    with ZipContent(path) as content:
        assert len(content.members) == 20_000
    assert time.perf_counter() - start < 1


def test_reading_holds_no_large_member_in_memory(tmp_path: Path) -> None:
    script = (
        "import sys, pathlib\n"
        "from reefkit.provenance.content.zip_read import ZipContent\n"
        "with ZipContent(pathlib.Path(sys.argv[1])) as content:\n"
        "    with content.open(content.members[0]) as file:\n"
        "        while file.read(1 << 20): pass\n"
        "print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])\n"
    )
    data = bytes(1 << 20) + os.urandom(1 << 20)
    packer = zlib.compressobj(1, zlib.DEFLATED, -15)
    packed = b"".join(packer.compress(data) for _ in range(40)) + packer.flush()
    crc = 0
    for _ in range(40):
        crc = zlib.crc32(data, crc)
    piece = Piece(b"a", packed, size=80 << 20, crc=crc, method=8)
    path = put(tmp_path / "z.zip", build([piece]))
    done = subprocess.run(
        [sys.executable, "-c", script, path], capture_output=True, check=True, text=True
    )
    assert int(done.stdout) < 60_000


def test_files_that_cannot_be_opened_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="No such file"):
        ZipContent(tmp_path / "none")
    with pytest.raises(Unusable, match="no regular file"):
        ZipContent(tmp_path)
    with pytest.raises(Unusable, match="null"):
        ZipContent(tmp_path / "a\0b")


def test_a_fifo_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(Unusable, match="no regular file"):
        ZipContent(tmp_path / "fifo")


def test_a_zip_without_permission_is_not_permitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(NotPermitted, match="Permission denied"):
        ZipContent(tmp_path / "z.zip")


def test_a_zip_that_shrinks_is_refused(tmp_path: Path) -> None:
    path = put(tmp_path / "z.zip", zipped({"a": bytes(100_000)}))
    with ZipContent(path) as content, content.open(content.members[0]) as file:
        os.truncate(path, 5000)
        with pytest.raises(Unusable, match="shrank"):
            file.read()


def test_names_and_kinds_that_are_not_there_cannot_be_opened(tmp_path: Path) -> None:
    with ZipContent(put(tmp_path / "z.zip", zipped(FILES))) as content:
        with pytest.raises(Unusable, match="not in the zip"):
            content.open(Member("other"))
        assert read_zip(tmp_path / "z.zip") == FILES


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (b"a" * 4097, "longer than 4,096 bytes"),
        (b"d/" * 2000 + b"f", "256 folders deep"),
        (b"d/" * 257 + b"f", "256 folders deep"),
        (b"d/" * 32_000, "longer than"),
    ],
)
def test_names_beyond_all_measure_are_refused(name: bytes, says: str, tmp_path: Path) -> None:
    path = put(tmp_path / "z.zip", build([Piece(name)]))
    with pytest.raises(Unusable, match=says) as caught:
        ZipContent(path)
    assert len(caught.value.message) < 600


@pytest.mark.parametrize("name", [b"a" * 4096, b"d/" * 256 + b"f", b"d/" * 257])
def test_the_longest_and_deepest_names_are_read(name: bytes, tmp_path: Path) -> None:
    with ZipContent(put(tmp_path / "z.zip", build([Piece(name, b"")]))) as content:
        assert len(content.members) == 1


def test_sentences_about_long_names_stay_short(tmp_path: Path) -> None:
    pieces = [Piece(b"\x01" * 4000, external=0o120777 << 16, comment=b"c")] * 2
    with ZipContent(put(tmp_path / "z.zip", build(pieces))) as content:
        assert len(content.findings) > 3
        assert max(len(each.diagnosis) for each in content.findings) < 1000
