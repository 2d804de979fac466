"""Compare elements as integers: which differ in value, how far apart, which are exact casts.

No floating-point operation is used, so neither the processor's rounding mode nor its treatment
of subnormals and NaN payloads can change an answer. Imported only where values differ, because
it needs numpy. The layouts are those of IEEE 754 and, for eight bits, of the OCP specifications
OFP8 1.0 and MX 1.0; the FNUZ kinds (one NaN, no infinity, no negative zero) are described in
"8-bit Numerical Formats for Deep Neural Networks" (Noune et al., 2022).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..formats.safetensors import DTYPE_BITS
from .result import Differences

Bits: TypeAlias = npt.NDArray[np.integer[Any]]
Mask: TypeAlias = npt.NDArray[np.bool_]

# Temporaries of this size stay in the processor's cache. A multiple of three, so that it holds
# whole elements of six bits too.
_STRIDE = 3 << 16


@dataclass(frozen=True, slots=True)
class FloatLayout:
    """How the bits of one float are laid out, sign first.

    `largest` is the largest magnitude that is not a NaN (infinity where there is one), and
    `only_nan` the single pattern that is a NaN in formats that have only one.
    """

    bits: int
    mantissa: int
    largest: int
    signed: bool = True
    only_nan: int | None = None

    @property
    def bias(self) -> int:
        """The exponent of 1.0, for layouts with an IEEE bias."""
        return (1 << (self.bits - 2 - self.mantissa)) - 1

    @property
    def magnitude(self) -> int:
        """The mask of everything but the sign."""
        return (1 << (self.bits - self.signed)) - 1


def _ieee(bits: int, mantissa: int) -> FloatLayout:
    infinity = (1 << (bits - 1)) - (1 << mantissa)
    return FloatLayout(bits, mantissa, infinity)


LAYOUTS = {
    "F64": _ieee(64, 52),
    "F32": _ieee(32, 23),
    "C64": _ieee(32, 23),
    "F16": _ieee(16, 10),
    "BF16": _ieee(16, 7),
    "F8_E5M2": _ieee(8, 2),
    "F8_E4M3": FloatLayout(8, 3, largest=0x7E),
    "F8_E5M2FNUZ": FloatLayout(8, 2, largest=0x7F, only_nan=0x80),
    "F8_E4M3FNUZ": FloatLayout(8, 3, largest=0x7F, only_nan=0x80),
    "F8_E8M0": FloatLayout(8, 0, largest=0xFE, signed=False, only_nan=0xFF),
}


def element_differences(a: bytes, b: bytes, dtype: str) -> Differences:
    """Compare elements of one dtype; equally many whole elements on both sides.

    Floats are equal when their values are: -0.0 equals 0.0, and any NaN equals any NaN. Integers,
    booleans and floats below eight bits are compared bit by bit; the latter are counted from the
    lowest bit of the first byte on.
    """
    found = Differences()
    bits = DTYPE_BITS[dtype]
    for start in range(0, len(a), _STRIDE):
        left, right = a[start : start + _STRIDE], b[start : start + _STRIDE]
        if left != right:
            found = found.followed_by(_differences(left, right, dtype), start * 8 // bits)
    return found


def cast_differences(a: bytes, b: bytes, from_dtype: str, to_dtype: str) -> Differences:
    """Compare `a` of `from_dtype`, rounded to nearest even, with `b` of `to_dtype`.

    Both dtypes are of `comparison.CASTABLE`; equally many whole elements on both sides.
    """
    found = Differences()
    source, target = LAYOUTS[from_dtype], LAYOUTS[to_dtype]
    step = _STRIDE * 8 // max(source.bits, target.bits)
    left, right = _elements(a, source.bits), _elements(b, target.bits)
    for start in range(0, len(left), step):
        cast = cast_bits(left[start : start + step], source, target)
        later = _float_differences(cast, right[start : start + step], target)
        found = found.followed_by(later, start)
    return found


def _differences(a: bytes, b: bytes, dtype: str) -> Differences:
    bits = DTYPE_BITS[dtype]
    layout = LAYOUTS.get(dtype)
    if layout is not None:
        left, right = _elements(a, layout.bits), _elements(b, layout.bits)
        return _float_differences(left, right, layout, lanes=bits // layout.bits)
    if bits % 8 == 0:
        return _located(_elements(a, bits) != _elements(b, bits), None)
    octets = np.frombuffer(a, np.uint8) ^ np.frombuffer(b, np.uint8)
    changed = np.unpackbits(octets, bitorder="little").reshape(-1, bits)
    return _located(reduce(np.bitwise_or, changed.T) != 0, None)


def _float_differences(a: Bits, b: Bits, layout: FloatLayout, lanes: int = 1) -> Differences:
    nan_a, nan_b = is_nan(a, layout), is_nan(b, layout)
    distance = ulp_distance(a, b, layout)
    distance[nan_a | nan_b] = 0
    differs = (distance != 0) | (nan_a != nan_b)
    max_ulp = int(distance.max(initial=0)) or None
    return _located(differs.reshape(-1, lanes).any(axis=1) if lanes > 1 else differs, max_ulp)


def _located(differs: Mask, max_ulp: int | None) -> Differences:
    count = int(np.count_nonzero(differs))
    return Differences(count, int(differs.argmax()) if count else None, max_ulp)


def _elements(data: bytes, bits: int) -> Bits:
    return np.frombuffer(data, dtype=f"<u{bits // 8}")


def is_nan(bits: Bits, layout: FloatLayout) -> Mask:
    """Tell which patterns are NaNs."""
    found: Mask = (bits & layout.magnitude) > layout.largest
    if layout.only_nan is not None:
        found = bits == layout.only_nan
    return found


def ulp_distance(a: Bits, b: Bits, layout: FloatLayout) -> Bits:
    """Count the representable values between two floats, in the width of the floats themselves.

    Both zeros are one value, and infinity follows the largest finite number. The sum of two
    magnitudes of n - 1 bits fits n bits, so that nothing overflows.
    """
    high, low = a & layout.magnitude, b & layout.magnitude
    apart: Bits = np.maximum(high, low) - np.minimum(high, low)
    if not layout.signed:
        return apart
    opposite = (a ^ b) > layout.magnitude
    np.add(high, low, out=apart, where=opposite)
    return apart


def cast_bits(bits: Bits, source: FloatLayout, target: FloatLayout) -> Bits:
    """Cast IEEE floats to another layout, rounding once, to nearest, ties to even.

    What is too large becomes infinity. NaNs stay NaNs; their payloads are not kept.
    """
    through = LAYOUTS["F64"] if 64 in (source.bits, target.bits) else LAYOUTS["F32"]
    return _narrowed(_widened(bits, source, through), through, target)


def _widened(bits: Bits, source: FloatLayout, target: FloatLayout) -> Bits:
    if source == target:
        return bits
    wide = bits.astype(f"<u{target.bits // 8}")
    sign = (wide >> (source.bits - 1)) << (target.bits - 1)
    gained = target.mantissa - source.mantissa
    rebias = (target.bias - source.bias) << target.mantissa
    magnitude = wide & source.magnitude
    special = magnitude >= source.largest
    subnormal = magnitude < (1 << source.mantissa)
    result = (magnitude << gained) + rebias
    if rebias and subnormal.any():
        result[subnormal] = _normalised(magnitude[subnormal], source.mantissa, gained, rebias)
    result[special] = (magnitude[special] << gained) | target.largest
    return result | sign


def _normalised(mantissa: Bits, width: int, gained: int, rebias: int) -> Bits:
    """Give subnormals a leading one: each doubling is paid for with one step of the exponent."""
    exponent = np.full_like(mantissa, (rebias >> (width + gained)) + 1)
    shifted = mantissa.copy()
    for step in (32, 16, 8, 4, 2, 1):
        if step > width:
            continue
        small = shifted < (1 << (width + 1 - step))
        shifted[small] <<= step
        exponent[small] -= step
    fraction = (shifted & ((1 << width) - 1)) << gained
    return np.where(mantissa == 0, 0, (exponent << (width + gained)) | fraction)


def _narrowed(bits: Bits, source: FloatLayout, target: FloatLayout) -> Bits:
    if source == target:
        return bits
    lost = source.mantissa - target.mantissa
    rebias = (source.bias - target.bias) << source.mantissa
    magnitude = bits & source.magnitude
    small = magnitude < rebias + (1 << source.mantissa)
    result = _rounded(magnitude - rebias, lost)
    np.minimum(result, target.largest, out=result)
    if rebias and small.any():
        result[small] = _to_subnormal(magnitude[small], source, lost, rebias)
    result[magnitude > source.largest] = target.magnitude
    result |= (bits >> (source.bits - 1)) << (target.bits - 1)
    return result.astype(f"<u{target.bits // 8}")


def _to_subnormal(magnitude: Bits, source: FloatLayout, lost: int, rebias: int) -> Bits:
    """Round numbers below the target's normal range; more bits are lost the smaller they are.

    Subnormals of the source take the same path: all of them are far below half the smallest
    subnormal of any target with fewer exponent bits.
    """
    one = 1 << source.mantissa
    significand = (magnitude & (one - 1)) | one
    lowest = (rebias >> source.mantissa) + 1
    missing = lowest - np.minimum(magnitude >> source.mantissa, lowest)
    return _rounded(significand, np.minimum(missing + lost, source.mantissa + 2))


def _rounded(bits: Bits, lost: int | Bits) -> Bits:
    """Drop the `lost` lowest bits (one at least), to nearest, ties to even."""
    kept = bits >> lost
    odd = kept & 1
    half_less_one = (1 << (lost - 1)) - 1
    rounded: Bits = (bits + half_less_one + odd) >> lost
    return rounded
