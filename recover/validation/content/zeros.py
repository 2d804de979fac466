"""Find long runs of zero bytes, exact to the byte, wherever they begin.

Storage loses data in blocks of zeros. A run of `LONG` bytes covers whole chunks wherever it begins,
so that one word a chunk decides where to look closer: trained weights hardly ever have one.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...ranges import Range, merge

LONG = 4096
_CHUNK = 1024  # a run of LONG bytes covers three of them whole
_WORD = 8


def zero_runs(data: bytes) -> list[Range]:
    """Find runs of zero bytes in a block: the long ones, and any that touches one of its ends.

    The latter may be part of a long run that goes on in the block beside it.
    """
    if not data:
        return []
    size = len(data)
    found = [
        run
        for start, stop in _zero_chunks(data)
        for run in [Range(_zeros_before(data, start * _CHUNK), _zeros_from(data, stop * _CHUNK))]
        if run.size >= LONG or run.start == 0 or run.stop == size
    ]
    if data[0] == 0 and not (found and found[0].start == 0):
        found.insert(0, Range(0, _zeros_from(data, 0)))
    if data[-1] == 0 and not (found and found[-1].stop == size):
        found.append(Range(_zeros_before(data, size), size))
    return found


def long_runs(pieces: Iterable[Range]) -> tuple[Range, ...]:
    """Join what `zero_runs` found in blocks that follow one another, and keep the long ones."""
    return tuple(run for run in merge(pieces) if run.size >= LONG)


def edge_runs(runs: Iterable[Range], data: Range, least: int) -> tuple[Range, ...]:
    """Keep the joined runs that are not long and with which the data begins or ends."""
    return tuple(
        run
        for run in runs
        if least <= run.size < LONG and (run.start <= data.start or run.stop >= data.stop)
    )


def _zero_chunks(data: bytes) -> list[tuple[int, int]]:
    """Give the first and the end of each sequence of chunks that are all zero."""
    import numpy as np

    count = len(data) // _CHUNK
    words = np.frombuffer(data, "<u8", count * _CHUNK // _WORD).reshape(count, _CHUNK // _WORD)
    suspects = np.flatnonzero(words[:, 0] == 0)
    if not suspects.size:
        return []
    chosen = words if suspects.size == count else words[suspects]
    zero = suspects[np.bitwise_or.reduce(chosen, axis=1) == 0]
    if not zero.size:
        return []
    breaks = np.flatnonzero(np.diff(zero) != 1) + 1
    firsts, lasts = zero[np.r_[0, breaks]], zero[np.r_[breaks - 1, -1]]
    return list(zip(firsts.tolist(), (lasts + 1).tolist(), strict=True))


def _zeros_from(data: bytes, start: int) -> int:
    """Give where the zeros that begin at `start` end."""
    step = _CHUNK
    while part := data[start : start + step]:
        left = len(part.lstrip(b"\0"))
        start += len(part) - left
        if left:
            break
        step *= 2
    return start


def _zeros_before(data: bytes, stop: int) -> int:
    """Give where the zeros that end at `stop` begin."""
    step = _CHUNK
    while part := data[max(0, stop - step) : stop]:
        left = len(part.rstrip(b"\0"))
        stop -= len(part) - left
        if left:
            break
        step *= 2
    return stop
