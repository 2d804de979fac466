"""Read a file twice, compare the two reads, hash it once and write it, all in one pass.

Worker threads read both sources into a pair of buffers, compare them and write the first; the
calling thread hashes the buffers in order. All heavy steps release the interpreter lock, so the
pass takes as long as its slowest step: usually the hash. Memory is a fixed ring of buffers.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import mmap
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from ..linux import PAGE, address_of, equal_bytes
from ..ranges import Range, intersect, merge, subtract
from ..sources import Source

BLOCK = 2 << 20
_IN_FLIGHT = 3
_HUGE_PAGE = 2 << 20


@dataclass(frozen=True)
class Transfer:
    """What a pass showed. `sha256` is that of the bytes written, unread ranges being zeros."""

    sha256: str
    size: int
    first_unread: tuple[Range, ...]
    second_unread: tuple[Range, ...]
    differing: tuple[Range, ...]
    kept: tuple[Range, ...]
    unconfirmed: tuple[Range, ...] = ()

    @property
    def read_once(self) -> tuple[Range, ...]:
        """Give what was saved and could not be read a second time."""
        once = (r for gap in self.second_unread for r in subtract(gap, self.first_unread))
        return merge((*self.unconfirmed, *once))


@dataclass(frozen=True)
class Progress:
    """How far a pass has come: everything before `position` is written and judged."""

    position: int
    unread: tuple[Range, ...]
    differing: tuple[Range, ...]


@dataclass(frozen=True)
class Plan:
    """What to read, and where the bytes go.

    `place` gets each block in any order from several threads, `follow` gets them in order.
    Blocks of which `is_placed` says so, after they were read, are at the destination already.
    `kept` ranges were read by an earlier run and lie in `kept_source`. With `keep_first`, a block
    that equals what the first source gives now needs no second read; a byte that the first source
    cannot give comes from there in any case, and counts as `unconfirmed`.
    """

    size: int
    first: Source
    second: Source
    place: Callable[[int, memoryview], None] | None = None
    is_placed: Callable[[], bool] = lambda: False
    follow: Callable[[int, memoryview], None] | None = None
    progress: Callable[[Progress], None] | None = None
    kept: tuple[Range, ...] = ()
    kept_source: Source | None = None
    keep_first: bool = False


@dataclass(frozen=True)
class _Block:
    window: Range
    data: memoryview
    first_unread: tuple[Range, ...]
    second_unread: tuple[Range, ...]
    differing: tuple[Range, ...]
    kept: tuple[Range, ...]
    unconfirmed: tuple[Range, ...] = ()


def transfer(plan: Plan) -> Transfer:
    """Run the pass. Raises OSError when the destination cannot be written."""
    digest = hashlib.sha256()
    first: list[Range] = []
    second: list[Range] = []
    differing: list[Range] = []
    kept: list[Range] = []
    unconfirmed: list[Range] = []
    for block in _blocks(plan):
        digest.update(block.data)
        if plan.follow is not None:
            plan.follow(block.window.start, block.data)
        first += block.first_unread
        second += block.second_unread
        differing += block.differing
        kept += block.kept
        unconfirmed += block.unconfirmed
        if plan.progress is not None:
            plan.progress(Progress(block.window.stop, merge(first), merge(differing)))
    return Transfer(
        sha256=digest.hexdigest(),
        size=plan.size,
        first_unread=merge(first),
        second_unread=merge(second),
        differing=merge(differing),
        kept=merge(kept),
        unconfirmed=merge(unconfirmed),
    )


def _blocks(plan: Plan) -> Iterator[_Block]:
    """Give the blocks in order while the next ones are read and written."""
    spare = [_buffers() for _ in range(min(_IN_FLIGHT, -(-plan.size // BLOCK)))]
    windows = (Range(at, min(at + BLOCK, plan.size)) for at in range(0, plan.size, BLOCK))
    running: deque[tuple[Future[_Block], tuple[memoryview, memoryview]]] = deque()
    with ThreadPoolExecutor(_IN_FLIGHT) as pool:
        try:
            for window in windows:
                if not spare:
                    future, pair = running.popleft()
                    yield future.result()
                    spare.append(pair)
                pair = spare.pop()
                running.append((pool.submit(_move, plan, window, pair), pair))
            while running:
                yield running.popleft()[0].result()
        finally:
            for future, _ in running:
                future.cancel()


def _buffers() -> tuple[memoryview, memoryview]:
    """Make a pair of buffers, on huge pages where the kernel gives them.

    A request to a disk takes a bounded number of memory segments (virtio: 254): a block on small
    pages is 512 of them and so several requests, on huge pages it is one.
    """
    whole = mmap.mmap(-1, 2 * BLOCK + _HUGE_PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without huge pages
        whole.madvise(mmap.MADV_HUGEPAGE)
    view = memoryview(whole)
    start = -address_of(view) % _HUGE_PAGE
    # Present from the start: btrfs reads into absent pages through its page cache, O_DIRECT or not.
    for at in range(start, start + 2 * BLOCK, PAGE):
        view[at] = 0
    return view[start : start + BLOCK], view[start + BLOCK : start + 2 * BLOCK]


def _move(plan: Plan, window: Range, pair: tuple[memoryview, memoryview]) -> _Block:
    first, second = pair
    data = first[: window.size]
    kept_here = intersect(plan.kept, window)
    first_unread = fill(plan.first, first, window)
    if plan.keep_first and plan.kept_source and kept_here == (window,) and not first_unread:
        lost = fill(plan.kept_source, second, window)
        if not lost and equal_bytes(data, second[: window.size]):
            return _Block(window, data, (), (), (), (window,))
    second_unread = fill(plan.second, second, window)
    differing = _differences(first, second, window, first_unread, second_unread)
    kept: tuple[Range, ...] = ()
    if plan.kept_source is not None and first_unread:
        kept = merge(k for gap in first_unread for k in intersect(kept_here, gap))
        gone: list[Range] = []
        for piece in kept:
            at = slice(piece.start - window.start, piece.stop - window.start)
            gone += fill(plan.kept_source, first[at], piece)
        kept = merge(r for piece in kept for r in subtract(piece, gone))
        first_unread = merge(r for gap in first_unread for r in subtract(gap, kept))
    if plan.place is not None and (differing or not plan.is_placed()):
        plan.place(window.start, data)
    return _Block(window, data, first_unread, second_unread, differing, kept, kept)


def _differences(
    first: memoryview,
    second: memoryview,
    window: Range,
    *unread: tuple[Range, ...],
) -> tuple[Range, ...]:
    """Give the pages on which two reads differ, where both could be read."""
    size = window.size
    if not any(unread) and equal_bytes(first[:size], second[:size]):
        return ()
    found: list[Range] = []
    for both in subtract(window, [r for ranges in unread for r in ranges]):
        for start in range(both.start - both.start % PAGE, both.stop, PAGE):
            page = Range(max(start, both.start), min(start + PAGE, both.stop))
            at = slice(page.start - window.start, page.stop - window.start)
            if not equal_bytes(first[at], second[at]):
                found.append(page)
    return merge(found)


def fill(source: Source, buffer: memoryview, window: Range) -> tuple[Range, ...]:
    """Read `window` into the start of `buffer`; give the parts that could not be read.

    After an error it goes on page by page, so that one bad page costs one page. Unread parts are
    zeroed. `buffer` may be longer than the window: a source that bypasses the page cache needs
    room up to the next page.
    """
    unread = list(subtract(window, source.extents))
    for part in intersect(source.extents, window):
        unread += _fill_part(source, buffer, window.start, part)
    lost = merge(unread)
    for piece in lost:
        buffer[piece.start - window.start : piece.stop - window.start] = bytes(piece.size)
    return lost


def _fill_part(source: Source, buffer: memoryview, base: int, part: Range) -> Iterator[Range]:
    position = part.start
    careful = False
    while position < part.stop:
        step = part.stop - position
        if careful:
            step = min(step, PAGE - position % PAGE)
        # Reads that bypass the page cache come in whole pages; the room beyond is ours.
        page_end = -(-(position + step) // PAGE) * PAGE
        room = min(page_end - position, len(buffer) - (position - base))
        try:
            target = buffer[position - base : position - base + room]
            count = source.read_into(target, position)
        except OSError as error:
            if error.errno == errno.ESRCH:
                yield Range(position, part.stop)
                return
            count = 0
        if count > 0:
            position = min(position + count, part.stop)
        elif careful:
            yield Range(position, position + step)
            position += step
        else:
            careful = True
