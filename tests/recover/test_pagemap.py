"""The page map tells a process's own copies from the file's pages, on any kernel."""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from victims import PAGE, mapping

from reefkit.errors import ProcessGone
from reefkit.recover import pagemap
from reefkit.recover.pagemap import copied_ranges
from reefkit.recover.process import Process
from reefkit.recover.ranges import Range, merge

PAGES = 64
page_numbers = st.sets(st.integers(0, PAGES - 1))


def no_scan(fd: int, start: int, stop: int) -> Iterator[tuple[int, int]]:
    raise OSError(errno.ENOTTY, os.strerror(errno.ENOTTY))


@pytest.fixture(params=["PAGEMAP_SCAN", "pagemap", "pagemap, little by little"])
def each_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once with the system call of Linux 6.7, and twice as older kernels need it."""
    if request.param != "PAGEMAP_SCAN":
        monkeypatch.setattr(pagemap, "scan_copied_pages", no_scan)
    if request.param == "pagemap, little by little":
        monkeypatch.setattr(pagemap, "_ENTRIES_AT_ONCE", 7)


def pages(numbers: Iterable[int]) -> tuple[Range, ...]:
    return merge(Range(n * PAGE, (n + 1) * PAGE) for n in numbers)


def views(process: Process, path: Path) -> list[tuple[Range, int]]:
    """Give what a process maps of a file: the range of the file, and its address."""
    name = os.fsencode(path)
    return [(m.file_range, m.start) for m in process.mappings() if m.name == name]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * 16 * PAGES)
    return path


@pytest.mark.usefixtures("each_way")
def test_exactly_the_written_pages_are_copies(file: Path) -> None:
    dirty = [0, 3, 4, 5, 40, 63]
    plan = {"path": file, "kind": "private", "dirty": [n * PAGE + 17 for n in dirty]}
    with mapping(plan) as victim, Process(victim["pid"]) as held:
        assert copied_ranges(held, views(held, file)) == pages(dirty)


@pytest.mark.usefixtures("each_way")
def test_a_shared_mapping_has_no_copies(file: Path) -> None:
    plan = {"path": file, "kind": "shared", "dirty": [0, 5 * PAGE]}
    with mapping(plan) as victim, Process(victim["pid"]) as held:
        assert copied_ranges(held, views(held, file)) == ()


@pytest.mark.usefixtures("each_way")
def test_offsets_are_those_of_the_file(file: Path) -> None:
    plan = {
        "path": file,
        "kind": "private",
        "offset": 10 * PAGE,
        "stop": 20 * PAGE,
        "dirty": [10 * PAGE, 19 * PAGE],
    }
    with mapping(plan) as victim, Process(victim["pid"]) as held:
        assert copied_ranges(held, views(held, file)) == pages([10, 19])


@pytest.mark.usefixtures("each_way")
def test_a_view_that_ends_within_a_page_is_not_exceeded(file: Path) -> None:
    plan = {"path": file, "kind": "private", "dirty": [2 * PAGE, 3 * PAGE]}
    with mapping(plan) as victim, Process(victim["pid"]) as held:
        ((_, address),) = views(held, file)
        part = (Range(PAGE, 2 * PAGE + 5), address + PAGE)
        assert copied_ranges(held, [part]) == (Range(2 * PAGE, 2 * PAGE + 5),)
        assert copied_ranges(held, [(Range(0, 2 * PAGE), address)]) == ()
        assert copied_ranges(held, []) == ()


@pytest.mark.usefixtures("each_way")
def test_more_regions_than_one_call_gives_are_all_found(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(3000 * PAGE))
    dirty = range(0, 3000, 2)
    plan = {"path": path, "kind": "private", "dirty": [n * PAGE for n in dirty]}
    with mapping(plan) as victim, Process(victim["pid"]) as held:
        assert copied_ranges(held, views(held, path)) == pages(dirty)


@pytest.mark.usefixtures("each_way")
def test_copies_of_several_mappings_are_joined(file: Path) -> None:
    plans = [{"path": file, "kind": "private", "dirty": [n * PAGE]} for n in (1, 2, 7)]
    with mapping(*plans) as victim, Process(victim["pid"]) as held:
        assert len(views(held, file)) == 3
        assert copied_ranges(held, views(held, file)) == pages([1, 2, 7])


@contextmanager
def private(path: Path) -> Generator[mmap.mmap, None, None]:
    """Map a file into this process, privately."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as mapped:
        yield mapped


@pytest.mark.parametrize("scan", [True, False])
def test_pages_that_were_only_read_are_the_files_own(tmp_path: Path, scan: bool) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"\1" * PAGES * PAGE)

    @settings(deadline=None, max_examples=60)
    @given(read=page_numbers, written=page_numbers)
    def any_pages(read: set[int], written: set[int]) -> None:
        with private(path) as mapped, Process(os.getpid()) as own:
            assert all(mapped[n * PAGE] == 1 for n in read)
            for n in written:
                mapped[n * PAGE + n] = 1  # the same value: it is a copy all the same
            with pytest.MonkeyPatch.context() as patch:
                if not scan:
                    patch.setattr(pagemap, "scan_copied_pages", no_scan)
                assert copied_ranges(own, views(own, path)) == pages(written)

    any_pages()


def test_a_process_that_ended_has_no_page_map(file: Path) -> None:
    with mapping({"path": file, "kind": "private"}) as victim, Process(victim["pid"]) as held:
        found = views(held, file)
        victim["process"].kill()
        victim["process"].wait()
        with pytest.raises(ProcessGone):
            copied_ranges(held, found)
