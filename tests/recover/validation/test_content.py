from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from math import inf, isnan, prod
from typing import Any

import numpy as np
import pytest
from contents import Bytes, adapter, encode, scanned, serialise, shard_of
from hypothesis import given, settings
from hypothesis import strategies as st

from reefkit.recover.comparison.values import LAYOUTS
from reefkit.recover.formats.safetensors import DTYPE_BITS, parse_header
from reefkit.recover.formats.safetensors_errors import HeaderTooLarge
from reefkit.recover.ranges import Range
from reefkit.recover.validation.content import scan as content
from reefkit.recover.validation.content.blocks import value_of
from reefkit.recover.validation.content.scan import scan_content
from reefkit.recover.validation.content.zeros import LONG, long_runs, zero_runs
from reefkit.recover.validation.result import DamageClass

# A NaN and, where there is one, an infinity of each dtype, as little-endian integers.
SPECIAL: dict[str, tuple[int, int | None]] = {
    "F64": (0x7FF0_0000_0000_0001, 0xFFF0_0000_0000_0000),
    "F32": (0xFF80_0001, 0x7F80_0000),
    "C64": (0x7FC0_0000, 0xFF80_0000),
    "F16": (0x7C01, 0xFC00),
    "BF16": (0xFF81, 0x7F80),
    "F8_E5M2": (0x7D, 0xFC),
    "F8_E4M3": (0xFF, None),
    "F8_E5M2FNUZ": (0x80, None),
    "F8_E4M3FNUZ": (0x80, None),
    "F8_E8M0": (0xFF, None),
}


def file_of(dtype: str, shape: tuple[int, ...], data: bytes) -> bytes:
    return serialise({"t": (dtype, shape, data)})


def finite(dtype: str, elements: int) -> bytearray:
    """Make finite elements: the top bit of every exponent and 8-bit NaNs are avoided."""
    layout = LAYOUTS[dtype]
    count = elements * DTYPE_BITS[dtype] // layout.bits
    low = np.random.default_rng(1).integers(1, 1 << min(layout.bits - 2, 62), count)
    return bytearray(low.astype(f"<u{layout.bits // 8}").tobytes())


@pytest.mark.parametrize("dtype", SPECIAL)
def test_a_single_nan_and_infinity_are_counted_by_bits(dtype: str) -> None:
    nan, infinity = SPECIAL[dtype]
    layout = LAYOUTS[dtype]
    width, step = layout.bits // 8, DTYPE_BITS[dtype] // 8
    clean = finite(dtype, 3000)
    facts = scanned(file_of(dtype, (3000,), bytes(clean))).tensors[0]
    assert (facts.nan, facts.inf, facts.first_bad, facts.read) == (0, 0, None, 3000)

    data = bytearray(clean)
    data[2000 * step : 2000 * step + width] = nan.to_bytes(width, "little")
    if infinity is not None:
        at = 1700 * step + step - width  # the imaginary half of a complex number
        data[at : at + width] = infinity.to_bytes(width, "little")
    facts = scanned(file_of(dtype, (3000,), bytes(data))).tensors[0]
    has_infinity = infinity is not None
    assert (facts.nan, facts.inf) == (1, int(has_infinity))
    assert facts.first_bad == (1700 if has_infinity else 2000)
    assert facts.max_abs is not None and facts.max_abs < inf


def reference(dtype: str, bits: int) -> float:
    if dtype == "F8_E8M0":
        return 2.0 ** (bits - 127)
    mantissa, bias = {
        "F8_E5M2": (2, 15),
        "F8_E4M3": (3, 7),
        "F8_E5M2FNUZ": (2, 16),
        "F8_E4M3FNUZ": (3, 8),
    }[dtype]
    exponent, fraction = bits >> mantissa, bits % (1 << mantissa) / (1 << mantissa)
    if not exponent:
        return float(fraction * 2.0 ** (1 - bias))
    return float((1 + fraction) * 2.0 ** (exponent - bias))


@pytest.mark.parametrize("dtype", [name for name in SPECIAL if name.startswith("F8")])
def test_every_8_bit_magnitude_is_worth_what_its_specification_says(dtype: str) -> None:
    layout = LAYOUTS[dtype]
    last = layout.largest if dtype != "F8_E5M2" else layout.largest - 1
    for bits in range(last + 1):
        assert value_of(bits, dtype) == reference(dtype, bits)


@pytest.mark.parametrize("dtype", ["F64", "F32", "F16", "BF16"])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_magnitude_and_the_rms_are_those_of_the_values(dtype: str, sign: int) -> None:
    values = np.random.default_rng(2).standard_normal(5000) * 0.01
    values[1234] = sign * 3.5
    facts = scanned(file_of(dtype, (5000,), encode(values, dtype))).tensors[0]
    assert facts.max_abs == 3.5
    assert facts.rms == pytest.approx(np.sqrt(np.mean(values**2)), rel=0.01)


def test_squares_that_exceed_single_precision_are_summed_in_double() -> None:
    facts = scanned(file_of("F32", (3,), encode(np.array([1e30, 1.0, 1.0]), "F32"))).tensors[0]
    assert facts.rms == pytest.approx(1e30 / np.sqrt(3))


@pytest.mark.parametrize("dtype", ["F4", "F6_E2M3", "F6_E3M2", "BOOL", "U8", "I64"])
def test_dtypes_without_nan_are_zero_or_not(dtype: str) -> None:
    size = 24
    elements = size * 8 // DTYPE_BITS[dtype]
    assert scanned(file_of(dtype, (elements,), bytes(size))).tensors[0].all_zero
    facts = scanned(file_of(dtype, (elements,), bytes(size - 1) + b"\1")).tensors[0]
    assert not facts.all_zero
    assert (facts.max_abs, facts.nan, facts.elements) == (None, 0, elements)


def test_negative_zeros_are_zero_values() -> None:
    assert scanned(file_of("BF16", (64,), b"\0\x80" * 64)).tensors[0].all_zero
    assert not scanned(file_of("F8_E4M3FNUZ", (64,), b"\x80" * 64)).tensors[0].all_zero  # NaN


def test_odd_bytes_of_booleans_are_counted() -> None:
    assert scanned(file_of("BOOL", (4,), b"\0\1\2\xff")).tensors[0].odd_bytes == 2


def test_scalars_and_tensors_without_elements_are_scanned() -> None:
    facts = scanned(serialise({"a": ("F32", (), b"\0\0\x80?"), "b": ("F32", (0, 4), b"")})).tensors
    assert [(f.elements, f.all_zero, f.max_abs) for f in facts] == [
        (1, False, 1.0),
        (0, False, None),
    ]


def naive_runs(data: bytes) -> list[Range]:
    return [Range(*found.span()) for found in re.finditer(rb"\0{%d,}" % LONG, data)]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9000), st.integers(1, 3000)), max_size=6), st.data())
def test_zero_runs_are_exact_to_the_byte_whatever_the_block_borders(
    parts: list[tuple[int, int]], draw: st.DataObject
) -> None:
    data = b"".join(b"\0" * zero + b"\7" * other for zero, other in parts)
    cuts = draw.draw(st.lists(st.integers(0, len(data)), max_size=5))
    edges = sorted({0, len(data), *cuts})
    found: list[Range] = []
    for start, stop in pairwise(edges):
        found += [Range(r.start + start, r.stop + start) for r in zero_runs(data[start:stop])]
    assert list(long_runs(found)) == naive_runs(data)


Planted = list[tuple[str, int, int]]
PLANTED = st.lists(
    st.tuples(
        st.sampled_from(["nan", "inf", "zero"]), st.integers(0, 29_999), st.integers(1, 9000)
    ),
    max_size=6,
)


def naive(values: Any, dtype: str) -> tuple[int, int, int | None, bool]:
    wide = values if dtype != "BF16" else (values.astype("<u4") << 16).view("<f4")
    bad = ~np.isfinite(wide)
    first = int(np.flatnonzero(bad)[0]) if bad.any() else None
    zero = all(value == 0 for value in wide.tolist())
    return int(np.isnan(wide).sum()), int(np.isinf(wide).sum()), first, zero


@settings(max_examples=60, deadline=None)
@given(
    planted=PLANTED,
    dtype=st.sampled_from(["F64", "F32", "F16", "BF16"]),
    splits=st.lists(st.integers(0, 30_000), max_size=4),
    block=st.sampled_from([240, 24 * 43, 24 * 512, 24 << 16]),
    jobs=st.sampled_from([1, 2, 3]),
    seed=st.integers(0, 99),
)
def test_the_scan_equals_a_naive_answer(
    planted: Planted, dtype: str, splits: list[int], block: int, jobs: int, seed: int
) -> None:
    nan, infinity = SPECIAL[dtype]
    random = np.random.default_rng(seed)
    values = np.frombuffer(
        encode(random.standard_normal(30_000), dtype), f"<u{DTYPE_BITS[dtype] // 8}"
    )
    values = values.copy()
    for kind, place, count in planted:
        values[place : place + count] = {"nan": nan, "inf": infinity, "zero": 0}[kind]
    edges = sorted({0, 30_000, *splits})
    tensors = {
        f"t{start:05}": (dtype, (stop - start,), values[start:stop].tobytes())
        for start, stop in pairwise(edges)
    }
    data = serialise(tensors)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(content, "_BLOCK", block)
        facts = scanned(data, jobs=jobs)
    view = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}[dtype]
    for one in facts.tensors:
        expected = naive(np.frombuffer(tensors[one.name][2], view), dtype)
        assert (one.nan, one.inf, one.first_bad, one.all_zero) == expected
        assert one.whole
    header = parse_header(data).data_start
    expected_runs = [Range(r.start + header, r.stop + header) for r in naive_runs(data[header:])]
    assert list(facts.zero_runs) == expected_runs
    assert [f.digest for f in facts.tensors] == [f.digest for f in scanned(data).tensors]


@pytest.mark.parametrize("dtype", ["BF16", "F32", "C64", "F4", "F6_E2M3"])
@pytest.mark.parametrize("bad", [Range(70_001, 70_002), Range(9_000, 140_000)])
def test_what_cannot_be_read_is_named_and_the_rest_is_scanned(dtype: str, bad: Range) -> None:
    shape = (3000 * 8,)
    size = prod(shape) * DTYPE_BITS[dtype] // 8
    tensors = {f"t{i}": (dtype, shape, b"\1" * size) for i in range(12)}
    data = serialise(tensors)
    facts = scanned(data, [bad])
    header = parse_header(data)
    block = Range(bad.start // 4096 * 4096, -(-bad.stop // 4096) * 4096)
    lost = Range(max(block.start, header.data_start), min(block.stop, len(data)))
    assert facts.unreadable == (lost,)
    assert {d.tensor for d in facts.damage} == set(header.touched([lost]))
    assert {d.kind for d in facts.damage} == {DamageClass.UNREADABLE}
    assert sum(d.bytes or 0 for d in facts.damage) == lost.size
    whole = {t.name for t in header.tensors} - set(header.touched([lost]))
    assert {f.name for f in facts.tensors if f.whole} == whole


def test_zeros_beside_an_unreadable_block_are_not_joined_over_it() -> None:
    data = file_of("U8", (40_000,), bytes(40_000))
    start = parse_header(data).data_start
    facts = scanned(data, [Range(8192, 12288)])
    assert facts.zero_runs == (Range(start, 8192), Range(12288, len(data)))
    assert not facts.tensors[0].all_zero


def test_a_file_cut_short_is_scanned_as_far_as_it_goes() -> None:
    data = file_of("BF16", (4000,), b"\1\1" * 4000)
    facts = scanned(data[:-1001]).tensors[0]
    assert (facts.elements, facts.read, facts.whole) == (4000, 3499, False)


def test_any_number_of_threads_finds_the_same() -> None:
    data = serialise(adapter())
    assert scanned(data, jobs=1).tensors == scanned(data, jobs=4).tensors


@pytest.mark.parametrize("limit", [2])
def test_runs_beyond_the_limit_are_counted(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "_MOST_RUNS", limit)
    facts = scanned(file_of("U8", (20_004,), (bytes(5000) + b"\1") * 4))
    assert (len(facts.zero_runs), facts.runs_left_out) == (2, 2)


def test_a_shard_without_a_header_raises_its_own_fault() -> None:
    shard = shard_of(Bytes(b"version https://git-lfs"), "x")
    with pytest.raises(HeaderTooLarge) as raised:
        scan_content(shard)
    assert raised.value is shard.fault


def test_nothing_is_lost_where_a_tensor_ends_between_words() -> None:
    tensors = {f"t{i}": ("U8", (i,), bytes([i]) * i) for i in range(1, 40)}
    digests: Sequence[int] = [f.digest for f in scanned(serialise(tensors)).tensors]
    assert len(set(digests)) == 39
    assert not any(isnan(float(d)) for d in digests)
