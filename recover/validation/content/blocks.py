"""What one block of tensor data says: peaks, NaNs, infinities, squares, and a sum of its bytes.

Imported late: it is numpy through and through. NaNs and infinities are told by their bits. The
common path is one look at the largest pattern: read as a signed integer it belongs to the largest
positive value, and as an unsigned one to the largest negative value. Only where it is not finite
does a second look count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ldexp
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...comparison.values import LAYOUTS, Bits, FloatLayout, Mask, is_nan
from ...formats.safetensors import DTYPE_BITS

Floats = npt.NDArray[np.floating[Any]]
_INFINITE = {"F64", "F32", "C64", "F16", "BF16", "F8_E5M2"}
_SQUARED = {"F64": "<f8", "F32": "<f4", "C64": "<f4", "F16": "<f2", "BF16": "<f4"}
_WORD = 8
_MANY = 64
_SINGLE = 1e37  # single precision ends at 3.4e38
_WRAP = (1 << 64) - 1


class Piece(NamedTuple):
    """Whole elements of the tensor number `tensor` in a block, from its element `element` on."""

    tensor: int
    dtype: str
    start: int
    stop: int
    element: int


class Found(NamedTuple):
    """What the elements of a piece say.

    `peak` is the largest finite magnitude as bits, for integers the largest pattern. `squares` is
    the sum of the squares of the finite values, None for dtypes of eight bits or fewer.
    """

    tensor: int
    elements: int
    peak: int
    nan: int
    inf: int
    first_bad: int | None
    squares: float | None
    digest: int
    odd_bytes: int


def examine(data: bytes, pieces: Sequence[Piece]) -> Iterator[Found]:
    """Look at every byte of the pieces, which are in the order of the file and not empty."""
    start = 0
    for place in range(1, len(pieces) + 1):
        before = pieces[place - 1]
        if place < len(pieces):
            after = pieces[place]
            if after.dtype == before.dtype and after.start == before.stop:
                continue
        yield from _examine_group(data, pieces[start:place])
        start = place


def value_of(bits: int, dtype: str) -> float | None:
    """Give the number that a finite magnitude stands for; None for dtypes that are no floats."""
    layout = LAYOUTS.get(dtype)
    if layout is None:
        return None
    if not layout.signed:  # F8_E8M0: a power of two
        return ldexp(1.0, bits - 127)
    bias = layout.bias + (layout.only_nan is not None)  # the FNUZ kinds have one more
    exponent, fraction = bits >> layout.mantissa, bits & ((1 << layout.mantissa) - 1)
    significand = fraction | (1 << layout.mantissa) if exponent else fraction
    return ldexp(float(significand), max(exponent, 1) - bias - layout.mantissa)


def first_peak(data: bytes, dtype: str) -> tuple[int, int]:
    """Give the index and the magnitude bits of the first of the largest finite elements."""
    layout = LAYOUTS[dtype]
    lanes = DTYPE_BITS[dtype] // layout.bits
    bits: Bits = np.frombuffer(data, f"<u{layout.bits // 8}")
    finite = np.where(_bad(bits, is_nan(bits, layout), dtype, layout), 0, bits & layout.magnitude)
    index = int(finite.argmax())
    return index // lanes, int(finite[index])


def is_constant(data: bytes, dtype: str) -> bool:
    """Tell whether every element has the same bytes."""
    width = max(1, DTYPE_BITS[dtype] // 8)
    return data == data[:width] * (len(data) // width)


def _examine_group(data: bytes, pieces: Sequence[Piece]) -> Iterator[Found]:
    """Look at pieces of one dtype that follow one another without a gap."""
    dtype = pieces[0].dtype
    layout = LAYOUTS.get(dtype)
    if layout is None:
        yield from _examine_integers(data, pieces)
        return
    width = layout.bits // 8
    begin = pieces[0].start
    bits: Bits = np.frombuffer(data, f"<u{width}", (pieces[-1].stop - begin) // width, begin)
    bounds = [((p.start - begin) // width, (p.stop - begin) // width) for p in pieces]
    starts = np.array([first for first, _ in bounds])
    peaks = _peaks(bits, layout, starts)
    limit = layout.largest + (dtype not in _INFINITE)
    only_nan = layout.only_nan is not None and bool((bits == layout.only_nan).any())
    clean = [peak < limit and not only_nan for peak in peaks]
    squares = _squares_of(_values(bits, dtype), bounds, starts, clean)
    together = zip(pieces, bounds, peaks, squares, clean, strict=True)
    for piece, (first, end), peak, square, good in together:
        found = Found(
            tensor=piece.tensor,
            elements=(piece.stop - piece.start) * 8 // DTYPE_BITS[dtype],
            peak=peak,
            nan=0,
            inf=0,
            first_bad=None,
            squares=square,
            digest=_digest(data, piece),
            odd_bytes=0,
        )
        yield found if good else _counted(found, piece, bits[first:end], layout)


def _peaks(bits: Bits, layout: FloatLayout, starts: npt.NDArray[np.intp]) -> list[int]:
    """Give the largest magnitude of each piece."""
    patterns = np.maximum.reduceat(bits, starts)
    if not layout.signed:
        return [int(pattern) for pattern in patterns]
    signed = np.maximum.reduceat(bits.view(f"<i{layout.bits // 8}"), starts)
    sign = layout.magnitude + 1
    return [
        max(positive, pattern - sign)
        for positive, pattern in zip(signed.tolist(), patterns.tolist(), strict=True)
    ]


def _counted(found: Found, piece: Piece, bits: Bits, layout: FloatLayout) -> Found:
    """Count what is not finite, element by element."""
    lanes = DTYPE_BITS[piece.dtype] // layout.bits
    nans = is_nan(bits, layout)
    bad = _bad(bits, nans, piece.dtype, layout)
    finite = bits[~bad]
    values = _values(finite, piece.dtype)
    either = bad.reshape(-1, lanes).any(axis=1) if lanes > 1 else bad
    count = int(np.count_nonzero(either))
    nan = int(np.count_nonzero(nans.reshape(-1, lanes).any(axis=1) if lanes > 1 else nans))
    return found._replace(
        peak=int((finite & layout.magnitude).max(initial=0)),
        nan=nan,
        inf=count - nan,
        first_bad=piece.element + int(either.argmax()) if count else None,
        squares=None if values is None else _squares(values),
    )


def _bad(bits: Bits, nans: Mask, dtype: str, layout: FloatLayout) -> Mask:
    """Tell which patterns are not finite numbers."""
    return nans | ((bits & layout.magnitude) == layout.largest) if dtype in _INFINITE else nans


def _values(bits: Bits, dtype: str) -> Floats | None:
    """Give patterns as floats that can be multiplied: at least single precision."""
    kind = _SQUARED.get(dtype)
    if kind is None:
        return None
    if dtype == "BF16":
        bits = bits.astype("<u4")
        bits <<= 16
    values: Floats = bits.view(kind)
    return values.astype("<f4") if dtype == "F16" else values


def _squares_of(
    values: Floats | None,
    bounds: list[tuple[int, int]],
    starts: npt.NDArray[np.intp],
    clean: list[bool],
) -> Sequence[float | None]:
    """Sum the squares of each piece that is clean; many small ones at once."""
    if values is None:
        return [None] * len(bounds)
    if len(bounds) >= _MANY and all(clean):
        with np.errstate(all="ignore"):
            sums = np.add.reduceat(values * values, starts)
        if sums.max() < _SINGLE:
            return [float(one) for one in sums]
    pieces = zip(bounds, clean, strict=True)
    return [_squares(values[first:end]) if good else None for (first, end), good in pieces]


def _squares(values: Floats) -> float:
    """Sum the squares, in single precision where the result fits it."""
    with np.errstate(all="ignore"):
        total = float(np.dot(values, values))
        if total < _SINGLE:
            return total
        exact = values.astype("<f8")
        return float(np.dot(exact, exact))


def _digest(data: bytes, piece: Piece) -> int:
    """Sum a piece as 64-bit words; a shorter rest counts as one word."""
    whole = (piece.stop - piece.start) // _WORD
    words = np.frombuffer(data, "<u8", whole, piece.start)
    rest = int.from_bytes(data[piece.start + whole * _WORD : piece.stop], "little")
    return (int(np.add.reduce(words)) + rest) & _WRAP


def _examine_integers(data: bytes, pieces: Sequence[Piece]) -> Iterator[Found]:
    """Look at integers, booleans and floats below eight bits: zero or not, and odd booleans."""
    dtype = pieces[0].dtype
    for piece in pieces:
        octets = np.frombuffer(data, np.uint8, piece.stop - piece.start, piece.start)
        peak = int(octets.max())
        yield Found(
            tensor=piece.tensor,
            elements=len(octets) * 8 // DTYPE_BITS[dtype],
            peak=peak,
            nan=0,
            inf=0,
            first_bad=None,
            squares=None,
            digest=_digest(data, piece),
            odd_bytes=int(np.count_nonzero(octets > 1)) if dtype == "BOOL" and peak > 1 else 0,
        )
