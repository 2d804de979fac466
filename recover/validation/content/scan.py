"""Scan every byte of a shard's data once, with no sampling, in constant memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from math import sqrt
from typing import TYPE_CHECKING

from ....errors import ReefError, Unusable
from ...checkpoint import Shard
from ...formats.safetensors import DTYPE_BITS, Header, Tensor
from ...formats.safetensors_errors import shown
from ...ranges import Range, intersect, merge, total
from ..result import Damage, DamageClass
from .edges import LEAST
from .facts import ContentFacts, TensorFacts
from .zeros import edge_runs, long_runs, zero_runs

if TYPE_CHECKING:
    from .blocks import Found, Piece

# Fits the processor's cache; a multiple of 24, so that tensors are cut between elements and words.
_BLOCK = 24 << 16
_PIECES = 4096
_RETRIES = (64 << 10, 4 << 10)  # how finely a block that cannot be read is tried again
_MOST_RUNS = 1 << 17
_WRAP = 1 << 64


def scan_content(
    shard: Shard, *, jobs: int = 2, progress: Callable[[int], None] | None = None
) -> ContentFacts:
    """Read all data of a shard, up to `jobs` blocks at a time, and tell what it says.

    `progress` is told of the bytes of each block, by one thread at a time. A file that is shorter
    than its header declares is scanned as far as it goes. Raises the shard's own HeaderError where
    it has no header.
    """
    header = shard.header
    if header is None:
        raise shard.fault or Unusable("A file without a header has no tensors to look at.")
    scan = _Scan(shard, header, _plan(header, min(shard.size, header.file_size)), progress)
    workers = [threading.Thread(target=scan.work) for _ in range(min(jobs, scan.blocks) - 1)]
    for worker in workers:
        worker.start()
    scan.work()
    for worker in workers:
        worker.join()
    if scan.failures:
        raise scan.failures[0]
    return _gather(shard, header, scan)


@dataclass(frozen=True, slots=True)
class _Block:
    """A range of the file that is read at once, and the pieces of tensors in it."""

    number: int
    span: Range
    pieces: tuple[Piece, ...]


def _plan(header: Header, stop: int) -> list[_Block]:
    """Cut the data into blocks of whole elements; a tensor's first byte always begins a piece."""
    from .blocks import Piece

    blocks: list[_Block] = []
    pieces: list[Piece] = []
    start = position = header.data_start

    def close() -> None:
        nonlocal start, pieces
        if position > start:
            blocks.append(_Block(len(blocks), Range(start, position), tuple(pieces)))
        start, pieces = position, []

    for index, tensor in enumerate(header.tensors):
        bits = DTYPE_BITS[tensor.dtype]
        end = min(header.data_start + tensor.end, stop)
        begin = position
        while position < end:
            if position - start >= _BLOCK or len(pieces) == _PIECES:
                close()
            # Later pieces begin a multiple of 24 bytes into the tensor.
            room = max(24, (_BLOCK - (position - start)) // 24 * 24)
            cut = min(end, position + room)
            element = (position - begin) * 8 // bits
            pieces.append(Piece(index, tensor.dtype, position - start, cut - start, element))
            position = cut
    close()
    return blocks


@dataclass
class _Scan:
    """Blocks handed out to threads, and what they bring back."""

    shard: Shard
    header: Header
    plan: list[_Block]
    progress: Callable[[int], None] | None = None
    found: dict[int, list[Found]] = field(default_factory=dict[int, "list[Found]"])
    runs: dict[int, list[Range]] = field(default_factory=dict[int, list[Range]])
    unreadable: list[tuple[Range, str]] = field(default_factory=list[tuple[Range, str]])
    failures: list[BaseException] = field(default_factory=list[BaseException])
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.left: Iterator[_Block] = iter(self.plan)

    @property
    def blocks(self) -> int:
        return len(self.plan)

    def work(self) -> None:
        """Take blocks until none is left; what goes wrong is raised by the thread that began."""
        try:
            while not self.failures:
                with self.lock:
                    block = next(self.left, None)
                if block is None:
                    return
                self._look_at(block)
                if self.progress is not None:
                    with self.lock:
                        self.progress(block.span.size)
        except BaseException as error:
            self.failures.append(error)

    def _look_at(self, block: _Block) -> None:
        from .blocks import examine

        try:
            data = self._read(block.span)
        except ReefError:
            self._look_closer(block)
            return
        self.found[block.number] = list(examine(data, block.pieces))
        self.runs[block.number] = _moved(zero_runs(data), block.span.start)

    def _read(self, span: Range) -> bytes:
        data = self.shard.readable.read(span.start, span.size)
        if len(data) != span.size:
            label = self.shard.readable.label
            raise Unusable(f"{label} became shorter while it was read.")
        return data

    def _look_closer(self, block: _Block) -> None:
        """Read what can be read of a block, in ever smaller parts."""
        from .blocks import examine

        found: list[Found] = []
        runs: list[Range] = []
        for start, data in _joined_parts(self._readable_parts(block.span, 0)):
            span = Range(start, start + len(data))
            found += examine(data, _within(block, span))
            runs += _moved(zero_runs(data), start)
        self.found[block.number] = found
        self.runs[block.number] = runs

    def _readable_parts(self, span: Range, level: int) -> Iterator[tuple[int, bytes]]:
        size = _RETRIES[level]
        # Disks fail in blocks counted from the file's start.
        cuts = [span.start, *range(span.start // size * size + size, span.stop, size), span.stop]
        for start, stop in pairwise(cuts):
            part = Range(start, stop)
            try:
                data = self._read(part)
            except ReefError as error:
                if level + 1 < len(_RETRIES):
                    yield from self._readable_parts(part, level + 1)
                else:
                    self.unreadable.append((part, error.message))
            else:
                yield start, data


def _joined_parts(parts: Iterator[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """Join parts that follow one another, so that no element is cut where nothing is missing."""
    start, held = 0, b""
    for offset, data in parts:
        if held and offset == start + len(held):
            held += data
            continue
        if held:
            yield start, held
        start, held = offset, data
    if held:
        yield start, held


def _moved(runs: list[Range], by: int) -> list[Range]:
    return [Range(run.start + by, run.stop + by) for run in runs]


def _within(block: _Block, span: Range) -> list[Piece]:
    """Give the whole elements of a block's pieces that lie in a part of it."""
    low, high = span.start - block.span.start, span.stop - block.span.start
    kept: list[Piece] = []
    for piece in block.pieces:
        bits = DTYPE_BITS[piece.dtype]
        unit = bits // 8 if bits % 8 == 0 else 3 if bits == 6 else 1
        skipped = -(-max(0, low - piece.start) // unit) * unit
        reach = (min(piece.stop, high) - piece.start) // unit * unit
        if skipped < reach:
            kept.append(
                piece._replace(
                    start=piece.start + skipped - low,
                    stop=piece.start + reach - low,
                    element=piece.element + skipped * 8 // bits,
                )
            )
    return kept


def _gather(shard: Shard, header: Header, scan: _Scan) -> ContentFacts:
    tensors = _tensor_facts(shard.name, header, scan)
    joined = merge(run for number in sorted(scan.runs) for run in scan.runs[number])
    runs = long_runs(joined)
    data = Range(header.data_start, min(shard.size, header.file_size))
    unreadable = merge(span for span, _ in scan.unreadable)
    reason = scan.unreadable[0][1].rstrip(".") if scan.unreadable else ""
    return ContentFacts(
        tensors=tensors,
        zero_runs=runs[:_MOST_RUNS],
        runs_left_out=max(0, len(runs) - _MOST_RUNS),
        edge_runs=edge_runs(joined, data, LEAST),
        unreadable=unreadable,
        damage=tuple(_unreadable(shard, header, unreadable, reason)),
    )


def _tensor_facts(shard: str, header: Header, scan: _Scan) -> tuple[TensorFacts, ...]:
    from .blocks import value_of

    found: list[list[Found]] = [[] for _ in header.tensors]
    for number in sorted(scan.found):
        for one in scan.found[number]:
            found[one.tensor].append(one)
    return tuple(
        _facts_of(shard, tensor, header.span(tensor), pieces, value_of)
        for tensor, pieces in zip(header.tensors, found, strict=True)
    )


def _facts_of(
    shard: str,
    tensor: Tensor,
    span: Range,
    pieces: list[Found],
    value_of: Callable[[int, str], float | None],
) -> TensorFacts:
    elements = tensor.nbytes * 8 // DTYPE_BITS[tensor.dtype]
    if not pieces:
        return TensorFacts(tensor, shard, span, elements, 0)
    one = pieces[0] if len(pieces) == 1 else _joined_pieces(pieces)
    finite = one.elements - one.nan - one.inf
    return TensorFacts(
        tensor=tensor,
        shard=shard,
        span=span,
        elements=elements,
        read=one.elements,
        nan=one.nan,
        inf=one.inf,
        first_bad=one.first_bad,
        all_zero=0 < elements == finite and not one.peak,
        max_abs=value_of(one.peak, tensor.dtype) if finite else None,
        rms=None if one.squares is None or not finite else sqrt(one.squares / finite),
        digest=one.digest,
        odd_bytes=one.odd_bytes,
    )


def _joined_pieces(pieces: list[Found]) -> Found:
    squares = [one.squares for one in pieces if one.squares is not None]
    return pieces[0]._replace(
        elements=sum(one.elements for one in pieces),
        peak=max(one.peak for one in pieces),
        nan=sum(one.nan for one in pieces),
        inf=sum(one.inf for one in pieces),
        first_bad=next((one.first_bad for one in pieces if one.first_bad is not None), None),
        squares=sum(squares) if squares else None,
        digest=sum(one.digest for one in pieces) % _WRAP,
        odd_bytes=sum(one.odd_bytes for one in pieces),
    )


def _unreadable(
    shard: Shard, header: Header, ranges: tuple[Range, ...], reason: str
) -> Iterator[Damage]:
    """Name each tensor that an unreadable range touches."""
    names = set(header.touched(ranges))
    for tensor in header.tensors:
        if tensor.name not in names:
            continue
        lost = intersect(ranges, header.span(tensor))
        yield Damage(
            DamageClass.UNREADABLE,
            f"{total(lost):,} bytes of `{shown(tensor.name)}` cannot be read ({reason}); "
            "`reef-recover dump` tries another route.",
            shard=shard.name,
            tensor=tensor.name,
            offset=lost[0].start,
            bytes=total(lost),
        )
