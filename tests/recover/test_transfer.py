"""One pass reads twice, compares, hashes and writes; what could not be read is told exactly."""

from __future__ import annotations

import errno
import hashlib
import os
import random
import threading
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reefkit.recover.ranges import Range, intersect, merge, subtract
from reefkit.recover.routes import Route
from reefkit.recover.save import transfer as module
from reefkit.recover.save.transfer import BLOCK, Plan, Progress, Transfer, fill, transfer
from reefkit.recover.sources import Source

PAGE = 4096
SIZES = [0, 1, PAGE - 1, PAGE, PAGE + 1, BLOCK - 1, BLOCK, BLOCK + 1, 5 * BLOCK + 123]


def noise(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size).replace(b"\0", b"\1")


@dataclass
class Fake:
    """Bytes of which some cannot be read.

    A read that begins in a `bad` range fails. One that reaches it ends before it, or fails, too,
    when `all_or_nothing`. No read gives more than `at_most` bytes.
    """

    data: bytes
    bad: tuple[Range, ...] = ()
    at_most: int = 1 << 30
    all_or_nothing: bool = False
    code: int = errno.EIO
    reach: tuple[Range, ...] | None = None
    route: Route = Route.FD
    size: int | None = None
    reads: list[Range] = field(default_factory=list[Range])

    @property
    def extents(self) -> tuple[Range, ...]:
        return merge([Range(0, len(self.data))]) if self.reach is None else self.reach

    def read_into(self, buffer: memoryview, offset: int) -> int:
        window = Range(offset, min(offset + len(buffer), len(self.data), offset + self.at_most))
        self.reads.append(window)
        for lost in intersect(self.bad, window):
            if lost.start == offset or self.all_or_nothing:
                raise OSError(self.code, os.strerror(self.code))
            window = Range(offset, lost.start)
            break
        if window.size <= 0:
            return 0
        buffer[: window.size] = self.data[window.start : window.stop]
        return window.size

    def close(self) -> None:
        """Nothing is held."""


class Destination:
    """A file in memory: takes the blocks in any order, and each at most once."""

    def __init__(self, before: bytes) -> None:
        self.data = bytearray(before)
        self.written: list[Range] = []
        self._lock = threading.Lock()

    def place(self, offset: int, block: memoryview) -> None:
        with self._lock:
            self.written.append(Range(offset, offset + len(block)))
            self.data[offset : offset + len(block)] = block


def pages(*numbers: int) -> tuple[Range, ...]:
    return merge(Range(n * PAGE, (n + 1) * PAGE) for n in numbers)


def run(size: int, first: Source, second: Source, **options: object) -> tuple[Transfer, bytes]:
    destination = Destination(bytes(size))
    plan = Plan(size, first, second, place=destination.place, **options)  # type: ignore[arg-type]
    return transfer(plan), bytes(destination.data)


def digest(data: bytes | bytearray) -> str:
    return hashlib.sha256(data).hexdigest()


# --- sizes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("at_most", [1 << 30, 100_003])
@pytest.mark.parametrize("size", SIZES)
def test_every_size_is_read_twice_and_written_once(size: int, at_most: int) -> None:
    data = noise(size)
    first, second = Fake(data, at_most=at_most), Fake(data, at_most=at_most)
    result, written = run(size, first, second)
    assert written == data
    assert result == Transfer(digest(data), size, (), (), (), ())
    assert merge(first.reads) == merge(second.reads) == merge([Range(0, size)])


@pytest.mark.parametrize("size", SIZES)
def test_a_follower_gets_everything_in_order(size: int) -> None:
    data = noise(size)
    got: list[bytes] = []

    def follow(offset: int, block: memoryview) -> None:
        assert offset == sum(map(len, got))
        got.append(bytes(block))

    transfer(Plan(size, Fake(data), Fake(data), follow=follow))
    assert b"".join(got) == data


def test_progress_ends_at_the_size_and_never_goes_back() -> None:
    size = 5 * BLOCK + 123
    seen: list[Progress] = []
    source = Fake(noise(size), bad=pages(1))
    transfer(Plan(size, source, Fake(noise(size)), progress=seen.append))
    positions = [progress.position for progress in seen]
    assert positions == sorted(set(positions))
    assert positions[-1] == size
    assert all(progress.unread == pages(1) for progress in seen)


# --- what cannot be read -------------------------------------------------------------------------


@pytest.mark.parametrize("all_or_nothing", [False, True])
def test_one_bad_page_costs_one_page(all_or_nothing: bool) -> None:
    size = BLOCK + 10 * PAGE
    data = noise(size)
    first = Fake(data, bad=pages(3, 511), all_or_nothing=all_or_nothing)
    second = Fake(data, bad=pages(7), all_or_nothing=all_or_nothing)
    result, written = run(size, first, second)
    expected = bytearray(data)
    for lost in pages(3, 511):
        expected[lost.start : lost.stop] = bytes(lost.size)
    assert written == expected
    assert result == Transfer(digest(expected), size, pages(3, 511), pages(7), (), ())


@pytest.mark.parametrize("all_or_nothing", [False, True])
def test_an_error_within_a_page_costs_what_was_not_read_of_it(all_or_nothing: bool) -> None:
    size = 4 * PAGE
    first = Fake(noise(size), bad=(Range(PAGE + 100, PAGE + 200),), all_or_nothing=all_or_nothing)
    result, written = run(size, first, Fake(noise(size)))
    lost = Range(PAGE + (0 if all_or_nothing else 100), 2 * PAGE)
    assert result.first_unread == (lost,)
    assert written == noise(size)[: lost.start] + bytes(lost.size) + noise(size)[lost.stop :]


def test_a_short_read_before_a_bad_page_loses_nothing_more() -> None:
    size = 4 * PAGE
    first = Fake(noise(size), bad=pages(1), at_most=PAGE - 9, all_or_nothing=True)
    result, _ = run(size, first, Fake(noise(size)))
    assert result.first_unread == pages(1)


def test_what_only_the_first_read_could_give_counts_as_read_once() -> None:
    size = 4 * PAGE
    first, second = Fake(noise(size), bad=pages(0)), Fake(noise(size), bad=pages(0, 2))
    result, _ = run(size, first, second)
    assert (result.first_unread, result.second_unread) == (pages(0), pages(0, 2))
    assert result.read_once == pages(2)


@pytest.mark.parametrize("missing", [1, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE])
def test_a_source_that_ends_early_is_unread_from_there(missing: int) -> None:
    size = 4 * PAGE + 5
    short = Fake(noise(size)[:-missing], reach=(Range(0, size),))
    result, written = run(size, short, Fake(noise(size)))
    assert result.first_unread == (Range(size - missing, size),)
    assert result.second_unread == result.differing == ()
    assert written == noise(size)[:-missing] + bytes(missing)


def test_what_is_out_of_reach_is_never_asked_for() -> None:
    size = 10 * PAGE
    reach = (Range(0, PAGE), Range(3 * PAGE, 4 * PAGE))
    first, second = Fake(noise(size), reach=reach), Fake(noise(size))
    result, _ = run(size, first, second)
    assert result.first_unread == subtract(Range(0, size), reach)
    assert all(intersect(reach, read) for read in first.reads)


def test_a_process_that_ends_costs_one_attempt_a_block() -> None:
    size = 2 * BLOCK
    gone = Fake(noise(size), bad=(Range(0, size),), code=errno.ESRCH)
    result, written = run(size, gone, Fake(noise(size)))
    assert (result.first_unread, written) == ((Range(0, size),), bytes(size))
    assert len(gone.reads) == 2


def test_reads_that_bypass_the_page_cache_get_whole_pages() -> None:
    size = BLOCK + PAGE + 1

    @dataclass
    class Direct(Fake):
        def read_into(self, buffer: memoryview, offset: int) -> int:
            assert offset % PAGE == len(buffer) % PAGE == 0
            return super().read_into(buffer, offset)

    result, written = run(size, Fake(noise(size)), Direct(noise(size)))
    assert written == noise(size)
    assert result.second_unread == ()


# --- what differs --------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [0, PAGE - 1, PAGE, BLOCK - 1, BLOCK, BLOCK + 2 * PAGE])
def test_a_differing_byte_is_told_by_its_page(at: int) -> None:
    size = BLOCK + 2 * PAGE + 1
    changed = bytearray(noise(size))
    changed[at] ^= 0xFF
    result, written = run(size, Fake(noise(size)), Fake(bytes(changed)))
    start = at - at % PAGE
    assert result.differing == (Range(start, min(start + PAGE, size)),)
    assert written == noise(size)
    assert result.sha256 == digest(noise(size))


def test_pages_that_only_one_read_got_are_not_called_different() -> None:
    size = 4 * PAGE
    result, _ = run(size, Fake(noise(size), bad=pages(1)), Fake(noise(size, 1), bad=pages(2)))
    assert (result.first_unread, result.second_unread) == (pages(1), pages(2))
    assert result.differing == pages(0, 3)


# --- what an earlier run read --------------------------------------------------------------------


def test_kept_blocks_that_equal_the_source_need_no_second_read() -> None:
    size = 3 * BLOCK
    kept = (Range(0, BLOCK + PAGE), Range(2 * BLOCK, size))
    first, second = Fake(noise(size)), Fake(noise(size))
    result, written = run(
        size, first, second, kept=kept, kept_source=Fake(noise(size)), keep_first=True
    )
    again = Range(BLOCK, 2 * BLOCK)
    assert merge(first.reads) == (Range(0, size),)
    assert merge(second.reads) == (again,)
    assert result.kept == (Range(0, BLOCK), Range(2 * BLOCK, size))
    assert result.sha256 == digest(noise(size))
    assert written == bytes(BLOCK) + noise(size)[BLOCK : 2 * BLOCK] + bytes(BLOCK)


def test_kept_ranges_fill_only_what_is_lost_when_they_are_not_trusted() -> None:
    size = 6 * PAGE
    old = noise(size, seed=1)
    first = Fake(noise(size), bad=pages(1, 2))
    result, written = run(size, first, Fake(noise(size)), kept=pages(0, 2), kept_source=Fake(old))
    expected = bytearray(noise(size))
    expected[PAGE : 2 * PAGE] = bytes(PAGE)
    expected[2 * PAGE : 3 * PAGE] = old[2 * PAGE : 3 * PAGE]
    assert written == expected
    assert result == Transfer(digest(expected), size, pages(1), (), (), pages(2), pages(2))


def test_kept_blocks_that_are_not_the_source_any_more_are_read_anew() -> None:
    size = 2 * BLOCK
    first, second = Fake(noise(size)), Fake(noise(size))
    result, written = run(
        size,
        first,
        second,
        kept=(Range(0, size),),
        kept_source=Fake(noise(size, seed=1)),
        keep_first=True,
    )
    assert (result.kept, result.sha256, written) == ((), digest(noise(size)), noise(size))
    assert merge(second.reads) == (Range(0, size),)


def test_a_trusted_block_that_cannot_be_read_back_is_read_anew() -> None:
    size = 2 * BLOCK
    kept_source = Fake(noise(size), bad=pages(1))
    everything = (Range(0, size),)
    result, written = run(
        size,
        Fake(noise(size)),
        Fake(noise(size)),
        kept=everything,
        kept_source=kept_source,
        keep_first=True,
    )
    assert result.kept == (Range(BLOCK, size),)
    assert result.sha256 == digest(noise(size))
    assert written == noise(size)[:BLOCK] + bytes(BLOCK)


@pytest.mark.parametrize("keep_first", [False, True])
def test_what_neither_the_source_nor_the_earlier_run_can_give_is_unread(keep_first: bool) -> None:
    size = 4 * PAGE
    result, written = run(
        size,
        Fake(noise(size), bad=pages(1)),
        Fake(noise(size)),
        kept=pages(0, 1, 2),
        kept_source=Fake(noise(size), bad=pages(1)),
        keep_first=keep_first,
    )
    assert written[PAGE : 2 * PAGE] == bytes(PAGE)
    assert (result.first_unread, result.kept) == (pages(1), ())


# --- anything at all -----------------------------------------------------------------------------

SMALL_BLOCK = 4 * PAGE
page_sets = st.sets(st.integers(0, 14), max_size=8)


@dataclass(frozen=True)
class Case:
    """Which pages are bad, differ, or were kept."""

    size: int
    bad_first: set[int]
    bad_second: set[int]
    changed: set[int]
    kept: set[int]
    keep_first: bool
    has_kept_source: bool
    all_or_nothing: bool
    at_most: int


cases = st.builds(
    Case,
    size=st.integers(0, 14 * PAGE),
    bad_first=page_sets,
    bad_second=page_sets,
    changed=page_sets,
    kept=page_sets | st.just(set(range(8))) | st.just(set(range(15))),
    keep_first=st.booleans(),
    has_kept_source=st.booleans(),
    all_or_nothing=st.booleans(),
    at_most=st.sampled_from([1, 100, PAGE, PAGE + 1, 3 * PAGE, 1 << 30]).map(lambda n: max(n, 61)),
)


@dataclass
class Expected:
    """The same pass, a page at a time."""

    data: bytearray
    first_unread: list[Range] = field(default_factory=list[Range])
    second_unread: list[Range] = field(default_factory=list[Range])
    differing: list[Range] = field(default_factory=list[Range])
    kept: list[Range] = field(default_factory=list[Range])
    unconfirmed: list[Range] = field(default_factory=list[Range])


def expected_of(case: Case, data: bytes, old: bytes) -> Expected:
    expected = Expected(bytearray(data))
    for start in range(0, case.size, PAGE):
        number = start // PAGE
        page = Range(start, min(start + PAGE, case.size))
        block = range(
            start // SMALL_BLOCK * 4, min(start // SMALL_BLOCK * 4 + 4, -(-case.size // PAGE))
        )
        known = case.has_kept_source and number in case.kept
        whole = Range(block.start * PAGE, min(block.stop * PAGE, case.size))
        if (
            known
            and case.keep_first
            and all(n in case.kept and n not in case.bad_first for n in block)
            and old[whole.start : whole.stop] == data[whole.start : whole.stop]
        ):
            expected.kept.append(page)
            continue
        if number in case.bad_second:
            expected.second_unread.append(page)
        if number in case.bad_first and known:
            expected.kept.append(page)
            expected.unconfirmed.append(page)
            expected.data[page.start : page.stop] = old[page.start : page.stop]
        elif number in case.bad_first:
            expected.first_unread.append(page)
            expected.data[page.start : page.stop] = bytes(page.size)
        elif number in case.changed and number not in case.bad_second:
            expected.differing.append(page)
    return expected


@settings(max_examples=400, deadline=None)
@given(cases)
def test_any_set_of_bad_pages_gives_exact_ranges_and_the_right_digest(case: Case) -> None:
    data, old = noise(case.size), noise(case.size, seed=1)
    second = bytearray(data)
    for number in case.changed:
        if number * PAGE < case.size:
            second[number * PAGE] ^= 0xFF
    # A source that gives all of a request or nothing works in whole pages.
    at_most = -(-case.at_most // PAGE) * PAGE if case.all_or_nothing else case.at_most
    how = {"at_most": at_most, "all_or_nothing": case.all_or_nothing}
    destination = Destination(old)
    followed: list[bytes] = []
    with mock.patch.object(module, "BLOCK", SMALL_BLOCK):
        result = transfer(
            Plan(
                case.size,
                Fake(data, bad=pages(*case.bad_first), **how),  # type: ignore[arg-type]
                Fake(bytes(second), bad=pages(*case.bad_second), **how),  # type: ignore[arg-type]
                place=destination.place,
                follow=lambda _, block: followed.append(bytes(block)),
                kept=intersect(pages(*case.kept), Range(0, case.size)),
                kept_source=Fake(old) if case.has_kept_source else None,
                keep_first=case.keep_first,
            )
        )
    expected = expected_of(case, data, old)
    assert bytes(destination.data) == b"".join(followed) == bytes(expected.data)
    assert result == Transfer(
        sha256=digest(expected.data),
        size=case.size,
        first_unread=merge(expected.first_unread),
        second_unread=merge(expected.second_unread),
        differing=merge(expected.differing),
        kept=merge(expected.kept),
        unconfirmed=merge(expected.unconfirmed),
    )
    assert len(destination.written) == len(set(destination.written))


@given(
    st.integers(0, 5 * PAGE),
    st.integers(0, 5 * PAGE),
    st.lists(st.builds(Range, st.integers(0, 5 * PAGE), st.integers(0, 5 * PAGE)), max_size=4),
)
def test_fill_zeroes_what_it_could_not_read_and_nothing_else(
    a: int, b: int, bad: list[Range]
) -> None:
    window = Range(min(a, b), max(a, b))
    data = noise(5 * PAGE)
    buffer = memoryview(bytearray(b"\xee" * (window.size + PAGE)))
    lost = fill(Fake(data, bad=merge(bad)), buffer, window)
    assert merge(lost) == lost
    for piece in subtract(window, lost):
        at = slice(piece.start - window.start, piece.stop - window.start)
        assert buffer[at] == data[piece.start : piece.stop]
    for piece in lost:
        at = slice(piece.start - window.start, piece.stop - window.start)
        assert bytes(buffer[at]) == bytes(piece.size)
    assert not intersect(merge(bad), window) or lost
    assert all(intersect(merge(bad), Range(p.start, p.stop)) for p in lost)


# --- faults and costs ----------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["place", "follow", "progress"])
def test_a_destination_that_fails_ends_the_pass(where: str) -> None:
    size = 20 * BLOCK
    first = Fake(bytes(size))

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(OSError, match="No space left"):
        transfer(Plan(size, first, Fake(bytes(size)), **{where: fail}))  # type: ignore[arg-type]
    assert len(first.reads) < 10
    assert [t for t in threading.enumerate() if "ThreadPool" in t.name] == []


@dataclass
class Endless(Fake):
    """A large source that takes no room itself."""

    def read_into(self, buffer: memoryview, offset: int) -> int:
        buffer[:] = bytes(1) * len(buffer)
        return len(buffer)


def resident_kib() -> int:
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("RssAnon:"))


def test_memory_stays_the_same_whatever_the_size() -> None:
    size = 64 * BLOCK
    source = Endless(b"", reach=(Range(0, size),))
    peaks: list[int] = []
    before = resident_kib()
    transfer(Plan(size, source, source, progress=lambda _: peaks.append(resident_kib())))
    assert len(peaks) == 64
    assert max(peaks) - before < 32 * 1024
