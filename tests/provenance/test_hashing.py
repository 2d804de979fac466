from __future__ import annotations

import errno
import hashlib
import os
import threading
import time
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import pytest
from plain_content import FilesInMemory, FilesOnDisk

from reefkit.errors import Unusable
from reefkit.provenance import hashing
from reefkit.provenance.content.folder import FolderContent
from reefkit.provenance.content.members import Content, Member, MemberKind
from reefkit.provenance.finding import FindingKind
from reefkit.provenance.hashing import LARGE, Hashed, hash_members

SHA256 = frozenset({"sha256"})


def hash_all(content: Content, algorithms: frozenset[str] = SHA256) -> list[Hashed]:
    return list(hash_members(content, [(each, algorithms) for each in content.members]))


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashing, "_cores", lambda: 2)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, bytes]:
    sizes = {"a": 0, "b": 1, "c": 3 * LARGE + 7, "d": 2048, "e": LARGE, "f": 2 * LARGE - 1, "g": 5}
    made = {name: os.urandom(size) for name, size in sizes.items()}
    for name, data in made.items():
        (tmp_path / name).write_bytes(data)
    return made


@pytest.mark.parametrize("kind", [FilesOnDisk, FolderContent])
@pytest.mark.usefixtures("two_cores")
def test_order_and_digests_are_as_asked(
    tmp_path: Path, files: dict[str, bytes], kind: type[FilesOnDisk] | type[FolderContent]
) -> None:
    content = kind(tmp_path)
    wanted = [(each, SHA256) for each in reversed(content.members)]
    found = list(hash_members(content, wanted))
    assert [each.member for each in found] == [member for member, _ in wanted]
    for each in found:
        data = files[each.member.name]
        assert each.size == len(data)
        assert each.digests == {"sha256": hashlib.sha256(data).hexdigest()}
        assert each.fault is None


class Counting(FilesInMemory):
    """Counts how often each file was opened, and by which threads."""

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(files)
        self.opened: list[str] = []
        self.threads: set[int] = set()

    def open(self, member: Member) -> AbstractContextManager[BinaryIO]:
        self.opened.append(member.name)
        self.threads.add(threading.get_ident())
        return super().open(member)


def test_one_read_gives_all_digests() -> None:
    content = Counting({"a": b"data" * LARGE})
    algorithms = frozenset({"sha256", "sha512", "md5", "blake2b", "sha3_256"})
    (found,) = hash_all(content, algorithms)
    assert found.digests == {
        name: hashlib.new(name, b"data" * LARGE).hexdigest() for name in algorithms
    }
    assert content.opened == ["a"]


@pytest.mark.usefixtures("two_cores")
def test_small_files_are_read_without_threads_and_one_large_file_too() -> None:
    content = Counting({**{str(number): b"x" for number in range(50)}, "large": bytes(LARGE)})
    hash_all(content)
    assert content.threads == {threading.get_ident()}


@pytest.mark.usefixtures("two_cores")
def test_large_files_are_read_at_once_unless_the_content_cannot() -> None:
    both = threading.Barrier(2, timeout=20)

    class Waiting(Counting):
        def open(self, member: Member) -> AbstractContextManager[BinaryIO]:
            both.wait()
            return super().open(member)

    data = {"a": bytes(LARGE), "b": bytes(LARGE)}
    hash_all(Waiting(data))
    content = Counting(data)
    content.one_at_a_time = True  # type: ignore[attr-defined]
    hash_all(content)
    assert content.threads == {threading.get_ident()}


@pytest.mark.usefixtures("two_cores")
def test_progress_counts_every_byte_and_is_told_by_one_at_a_time() -> None:
    files = {str(number): bytes(3 * LARGE + number) for number in range(8)} | {"small": b"abc"}
    content = FilesInMemory(files)
    told: list[int] = []
    inside = 0

    def progress(count: int) -> None:
        nonlocal inside
        assert inside == 0
        inside += 1
        time.sleep(0.0005)
        told.append(count)
        inside -= 1

    wanted = [(each, SHA256) for each in content.members]
    assert len(list(hash_members(content, wanted, progress=progress))) == 9
    assert sum(told) == sum(map(len, files.values()))


@pytest.mark.usefixtures("two_cores")
def test_what_progress_raises_ends_the_work() -> None:
    content = FilesInMemory({str(number): bytes(2 * LARGE) for number in range(20)})

    def progress(count: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(hash_members(content, [(each, SHA256) for each in content.members], progress=progress))


@pytest.mark.usefixtures("two_cores")
def test_closing_the_iterator_stops_the_threads() -> None:
    content = Counting({f"{number:04}": bytes(LARGE) for number in range(500)})
    wanted = [(each, SHA256) for each in content.members]
    found = cast("Generator[Hashed]", hash_members(content, wanted))
    assert next(found).member.name == "0000"
    found.close()
    assert len(content.opened) < 400
    assert not [each for each in threading.enumerate() if each.name.startswith("hash")]


class Failing(FilesInMemory):
    """Fails at the member of a name in one of the ways there are."""

    def __init__(self, error: Exception, *, late: bool, size: int) -> None:
        super().__init__({"a": b"x" * size, "bad": b"y" * size, "c": b"z" * size})
        self._error = error
        self._late = late

    def open(self, member: Member) -> AbstractContextManager[BinaryIO]:
        if member.name != "bad":
            return super().open(member)
        if not self._late:
            raise self._error
        return self._breaking(member)

    @contextmanager
    def _breaking(self, member: Member) -> Generator[BinaryIO]:
        with super().open(member) as file:
            yield file
        raise self._error


@pytest.mark.parametrize("size", [10, LARGE])
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(
    ("error", "said"),
    [
        (PermissionError(errno.EACCES, "Denied"), "It cannot be read: Denied."),
        (FileNotFoundError(errno.ENOENT, "No such file"), "It cannot be read: No such file."),
        (OSError("odd"), "It cannot be read: odd."),
        (OSError(), "It cannot be read: OSError."),
        (Unusable("The checksum of the zip differs."), "The checksum of the zip differs."),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("two_cores")
def test_a_file_that_fails_is_a_fault_of_that_file(
    error: Exception, late: bool, size: int, said: str
) -> None:
    first, bad, last = hash_all(Failing(error, late=late, size=size))
    assert bad.fault == said
    assert bad.kind is FindingKind.UNREADABLE
    assert bad.digests == {}
    assert first.fault is last.fault is None


def test_a_file_that_vanished_or_cannot_be_read_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "b").write_bytes(b"2")
    content = FolderContent(tmp_path)
    (tmp_path / "a").unlink()
    gone, there = hash_all(content)
    assert gone.fault is not None and gone.kind is FindingKind.UNREADABLE
    assert there.fault is None


def test_what_is_no_file_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("/dev/zero")
    (found,) = hash_all(FolderContent(tmp_path))
    assert found.member.kind is MemberKind.LINK
    assert found.fault is not None and found.digests == {}


@pytest.mark.parametrize("change", ["append", "truncate", "rewrite"])
def test_a_file_that_changes_while_it_is_read_is_a_fault(tmp_path: Path, change: str) -> None:
    path = tmp_path / "a"
    path.write_bytes(bytes(3 << 20))
    os.utime(path, (0, 0))
    content = FilesOnDisk(tmp_path)
    changed = False

    def progress(count: int) -> None:
        nonlocal changed
        if changed:
            return
        changed = True
        if change == "append":
            with path.open("ab") as file:
                file.write(b"more")
        elif change == "truncate":
            os.truncate(path, 1 << 20)
        else:
            with path.open("r+b") as file:
                file.write(b"other")

    (found,) = hash_members(content, [(content.members[0], SHA256)], progress=progress)
    assert found.kind is FindingKind.CHANGED_MEANWHILE
    assert found.fault is not None and found.digests == {}


@pytest.mark.parametrize(("size", "found_then"), [(0, "0"), (5, "5"), (20, "more")])
def test_a_size_other_than_listed_is_a_fault(tmp_path: Path, size: int, found_then: str) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"0123456789")
    content = FilesOnDisk(tmp_path)
    path.write_bytes(bytes(size))
    (found,) = hash_all(content)
    assert found.kind is FindingKind.CHANGED_MEANWHILE
    assert found.fault == f"It had 10 bytes when it was listed, and {found_then} when it was read."


def test_a_digest_that_cannot_be_computed_is_a_fault() -> None:
    (found,) = hash_all(FilesInMemory({"a": b""}), frozenset({"sha256", "crc9"}))
    assert found.fault == "This Python cannot compute crc9."
    assert found.kind is FindingKind.NOT_CHECKED
