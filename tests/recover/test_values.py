from __future__ import annotations

from itertools import product

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reefkit.recover.comparison.result import Differences
from reefkit.recover.comparison.values import (
    LAYOUTS,
    Bits,
    cast_bits,
    cast_differences,
    element_differences,
    is_nan,
    ulp_distance,
)

EVERY_16 = np.arange(1 << 16, dtype="<u2")
EVERY_8 = np.arange(1 << 8, dtype="<u1")
NATIVE = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}


def native(bits: Bits, dtype: str) -> npt.NDArray[np.float64]:
    """View as floats; BF16 is the upper half of an F32."""
    if dtype == "BF16":
        return (bits.astype("<u4") << 16).view("<f4")
    return bits.view(NATIVE[dtype])


def edges_of_f32() -> Bits:
    """Every sign, exponent and upper mantissa, with lower bits at and around ties."""
    upper = EVERY_16.astype("<u4") << 16
    ties = [0x0000, 0x8000, 0x1000, 0x2000, 0x3000]
    lower = np.array([(tie + by) & 0xFFFF for tie in ties for by in (-1, 0, 1)], dtype="<u4")
    patterns: Bits = (upper[:, None] | lower).ravel()
    return patterns


def edges_of_f64() -> Bits:
    """Every F16 and the edges of F32, widened, and what is half-way to the next, or nearly."""
    pieces: list[Bits] = []
    for dtype, bits in (("F16", EVERY_16), ("F32", edges_of_f32())):
        with np.errstate(invalid="ignore"):
            value, following = (native(b, dtype).astype("<f8") for b in (bits, bits + 1))
            middle = value + (following - value) / 2
        pieces += [exact.view("<i8") + by for exact in (value, middle) for by in (-1, 0, 1)]
    overflowing = np.array([(1 << 16) - (1 << 4), 2.0**128 - 2.0**103])
    pieces += [overflowing.view("<i8") + by for by in (-1, 0, 1)]
    patterns: Bits = np.concatenate(pieces).view("<u8")
    return patterns


def nearest_bf16(bits: Bits) -> Bits:
    """Choose between the two neighbours by distance in F64, where the distances are exact."""
    low, high = bits >> 16, (bits >> 16) + 1
    with np.errstate(invalid="ignore"):
        value, below, above = (
            native(side, "F32").astype("<f8") for side in (bits, low << 16, high << 16)
        )
        above = np.where(np.isinf(above), np.copysign(2.0**128, value), above)
        down, up = np.abs(value - below), np.abs(above - value)
    exact = (bits & 0xFFFF) == 0
    nearest = np.where(exact | (down < up) | ((down == up) & (low % 2 == 0)), low, high)
    return nearest.astype("<u2")


def assert_same_or_both_nan(found: Bits, expected: Bits, dtype: str) -> None:
    layout = LAYOUTS[dtype]
    nan = is_nan(expected, layout)
    assert found.dtype == np.dtype(f"<u{layout.bits // 8}")
    np.testing.assert_array_equal(is_nan(found, layout), nan)
    np.testing.assert_array_equal(found[~nan], expected[~nan])


@pytest.mark.parametrize(
    ("source", "target"),
    [(a, b) for a, b in product(["F16", "BF16", "F32", "F64"], NATIVE) if a != b],
)
def test_cast_rounds_as_numpy_does(source: str, target: str) -> None:
    bits = {"F32": edges_of_f32, "F64": edges_of_f64}.get(source, EVERY_16.copy)()
    with np.errstate(all="ignore"):
        expected = native(bits, source).astype(NATIVE[target])
    found = cast_bits(bits, LAYOUTS[source], LAYOUTS[target])
    assert_same_or_both_nan(found, expected.view(f"<u{LAYOUTS[target].bits // 8}"), target)


def test_cast_from_f32_to_bf16_takes_the_nearest_neighbour() -> None:
    bits = edges_of_f32()
    bits = bits[~is_nan(bits, LAYOUTS["F32"])]
    found = cast_bits(bits, LAYOUTS["F32"], LAYOUTS["BF16"])
    assert_same_or_both_nan(found, nearest_bf16(bits), "BF16")


def test_cast_from_f16_to_bf16_rounds_the_exact_f32() -> None:
    bits = EVERY_16[~is_nan(EVERY_16, LAYOUTS["F16"])]
    exact = native(bits, "F16").astype("<f4").view("<u4")
    found = cast_bits(bits, LAYOUTS["F16"], LAYOUTS["BF16"])
    assert_same_or_both_nan(found, nearest_bf16(exact), "BF16")


def test_cast_from_f64_rounds_once() -> None:
    just_above_a_tie = np.array([(1 << 24) + (1 << 16) + 1e-6])  # F32 would round it to the tie
    found = cast_bits(just_above_a_tie.view("<u8"), LAYOUTS["F64"], LAYOUTS["BF16"])
    assert native(found, "BF16")[0] == (1 << 24) + (1 << 17)


@pytest.mark.parametrize("dtype", ["F32", "F64"])
def test_cast_of_a_nan_whose_payload_is_cut_off_stays_a_nan(dtype: str) -> None:
    layout = LAYOUTS[dtype]
    lowest_payload = np.array([layout.largest + 1], dtype=f"<u{layout.bits // 8}")
    for target in ("F16", "BF16"):
        assert is_nan(cast_bits(lowest_payload, layout, LAYOUTS[target]), LAYOUTS[target]).all()


@pytest.mark.parametrize(
    ("dtype", "nans"),
    [
        ("F8_E5M2", {0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF}),
        ("F8_E4M3", {0x7F, 0xFF}),
        ("F8_E5M2FNUZ", {0x80}),
        ("F8_E4M3FNUZ", {0x80}),
        ("F8_E8M0", {0xFF}),
    ],
)
def test_eight_bit_nans(dtype: str, nans: set[int]) -> None:
    assert set(np.flatnonzero(is_nan(EVERY_8, LAYOUTS[dtype])).tolist()) == nans


@pytest.mark.parametrize("dtype", ["F16", "BF16"])
def test_nans_of_sixteen_bits_are_those_of_the_float_type(dtype: str) -> None:
    np.testing.assert_array_equal(
        is_nan(EVERY_16, LAYOUTS[dtype]), np.isnan(native(EVERY_16, dtype))
    )


@pytest.mark.parametrize("dtype", ["F16", "BF16"])
def test_ulp_distance_counts_the_steps_between_values(dtype: str) -> None:
    bits = EVERY_16[~is_nan(EVERY_16, LAYOUTS[dtype])]
    _, rank = np.unique(native(bits, dtype), return_inverse=True)
    order = np.random.default_rng(0).permutation(len(bits))
    found = ulp_distance(bits, bits[order], LAYOUTS[dtype])
    np.testing.assert_array_equal(found, np.abs(rank - rank[order]))


@pytest.mark.parametrize(
    ("dtype", "a", "b", "ulps"),
    [
        ("F64", 0x7FEF_FFFF_FFFF_FFFF, 0xFFEF_FFFF_FFFF_FFFF, 2 * 0x7FEF_FFFF_FFFF_FFFF),
        ("F64", 0x7FF0_0000_0000_0000, 0xFFF0_0000_0000_0000, 2 * 0x7FF0_0000_0000_0000),
        ("F64", 0x8000_0000_0000_0001, 0x0000_0000_0000_0001, 2),
        ("F32", 0xFF7F_FFFF, 0x7F7F_FFFF, 2 * 0x7F7F_FFFF),
        ("F8_E4M3", 0x7E, 0xFE, 2 * 0x7E),
        ("F8_E4M3FNUZ", 0x7F, 0xFF, 2 * 0x7F),
        ("F8_E8M0", 0x00, 0xFE, 0xFE),
    ],
)
def test_the_largest_distances_do_not_overflow(dtype: str, a: int, b: int, ulps: int) -> None:
    width = LAYOUTS[dtype].bits // 8
    left, right = a.to_bytes(width, "little"), b.to_bytes(width, "little")
    assert element_differences(left, right, dtype) == Differences(1, 0, ulps)
    assert element_differences(right, left, dtype) == Differences(1, 0, ulps)


@pytest.mark.parametrize("dtype", sorted(LAYOUTS))
def test_any_nan_equals_any_nan_and_nothing_else(dtype: str) -> None:
    layout = LAYOUTS[dtype]
    width = layout.bits // 8
    lanes = 2 if dtype == "C64" else 1
    nan = ((1 << layout.bits) - 1) if layout.only_nan is None else layout.only_nan
    other = layout.largest + 1 if layout.only_nan is None else layout.only_nan
    zero = bytes(width)
    left = nan.to_bytes(width, "little") + zero * (lanes - 1)
    right = other.to_bytes(width, "little") + zero * (lanes - 1)
    assert element_differences(left, right, dtype) == Differences()
    assert element_differences(left, zero * lanes, dtype) == Differences(1, 0, None)
    assert element_differences(zero * lanes, left, dtype) == Differences(1, 0, None)


@pytest.mark.parametrize("dtype", ["F64", "F32", "F16", "BF16", "F8_E5M2", "F8_E4M3"])
def test_negative_zero_equals_zero(dtype: str) -> None:
    zero = bytes(LAYOUTS[dtype].bits // 8)
    assert element_differences(zero, zero[:-1] + b"\x80", dtype) == Differences()


def test_a_complex_element_counts_once_and_by_its_farther_part() -> None:
    left = np.array([0, 0, 10, 20, 0, 0], dtype="<u4").tobytes()
    right = np.array([0, 0, 11, 25, 0, 7], dtype="<u4").tobytes()
    assert element_differences(left, right, "C64") == Differences(2, 1, 7)


@pytest.mark.parametrize("dtype", ["BOOL", "I8", "U8", "I16", "U16", "I32", "U32", "I64", "U64"])
def test_integers_are_compared_bit_by_bit(dtype: str) -> None:
    width = {"BOOL": 1}.get(dtype) or int(dtype[1:]) // 8
    right = bytearray(5 * width)
    right[2 * width] = right[5 * width - 1] = 0x80
    assert element_differences(bytes(5 * width), bytes(right), dtype) == Differences(2, 2, None)


@given(
    dtype=st.sampled_from([("F4", 4), ("F6_E2M3", 6), ("F6_E3M2", 6)]),
    changed=st.sets(st.integers(0, 63), min_size=1),
    data=st.data(),
)
def test_elements_below_eight_bits_are_found_by_their_bits(
    dtype: tuple[str, int], changed: set[int], data: st.DataObject
) -> None:
    name, bits = dtype
    flipped = 0
    for element in changed:
        flipped |= data.draw(st.integers(1, (1 << bits) - 1)) << (element * bits)
    size = 64 * bits // 8
    found = element_differences(bytes(size), flipped.to_bytes(size, "little"), name)
    assert found == Differences(len(changed), min(changed), None)


@pytest.mark.parametrize("dtype", ["U8", "F4", "F6_E2M3", "BF16", "C64"])
def test_a_difference_is_found_at_its_index_far_into_a_block(dtype: str) -> None:
    size = 3 << 20
    right = bytearray(size)
    right[-1] = 0x40
    bits = {"U8": 8, "F4": 4, "F6_E2M3": 6, "BF16": 16, "C64": 64}[dtype]
    found = element_differences(bytes(size), bytes(right), dtype)
    assert (found.count, found.first) == (1, size * 8 // bits - 1)


def test_cast_differences_are_counted_in_steps_of_the_target() -> None:
    original = np.linspace(-3, 3, 200_000, dtype="<f4")
    cast = cast_bits(original.view("<u4"), LAYOUTS["F32"], LAYOUTS["F16"]).copy()
    same = cast_differences(original.tobytes(), cast.tobytes(), "F32", "F16")
    cast[150_000] += 5
    cast[199_999] += 2
    other = cast_differences(original.tobytes(), cast.tobytes(), "F32", "F16")
    assert same == Differences()
    assert other == Differences(2, 150_000, 5)


def test_consecutive_differences_add_up() -> None:
    one, two = Differences(2, 3, None), Differences(1, 0, 9)
    assert one.followed_by(two, 100) == Differences(3, 3, 9)
    assert Differences().followed_by(two, 100) == Differences(1, 100, 9)
