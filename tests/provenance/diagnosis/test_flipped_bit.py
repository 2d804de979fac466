from __future__ import annotations

import hashlib
import time
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reefkit.provenance.diagnosis.flipped_bit import flip_by_trial, flipped_positions


def flipped(data: bytes, at: int, bit: int) -> bytes:
    changed = bytearray(data)
    changed[at] ^= 1 << bit
    return bytes(changed)


@settings(max_examples=100, deadline=None)
@given(st.binary(min_size=1, max_size=500), st.data())
def test_two_checksums_tell_the_bit(data: bytes, draw: st.DataObject) -> None:
    at = draw.draw(st.integers(0, len(data) - 1))
    bit = draw.draw(st.integers(0, 7))
    damaged = zlib.crc32(flipped(data, at, bit))
    assert list(flipped_positions(damaged, zlib.crc32(data), len(data))) == [(at, bit)]


@settings(max_examples=50, deadline=None)
@given(st.binary(min_size=2, max_size=64), st.binary(min_size=2, max_size=64))
def test_what_no_single_bit_explains_gives_a_wrong_place_at_most_seldom(
    one: bytes, other: bytes
) -> None:
    length = min(len(one), len(other))
    one, other = one[:length], other[:length]
    for at, bit in flipped_positions(zlib.crc32(one), zlib.crc32(other), length):
        assert zlib.crc32(flipped(one, at, bit)) == zlib.crc32(other)


def test_equal_checksums_are_no_flipped_bit() -> None:
    assert list(flipped_positions(7, 7, 100)) == []
    assert list(flipped_positions(7, 8, 0)) == []


@pytest.mark.parametrize("at", [0, 12_345_678, (64 << 20) - 1])
def test_it_takes_no_time_however_long_the_data_are(at: int) -> None:
    data = bytes(64 << 20)
    damaged, known = zlib.crc32(flipped(data, at, 3)), zlib.crc32(data)
    began = time.perf_counter()
    assert list(flipped_positions(damaged, known, len(data))) == [(at, 3)]
    assert time.perf_counter() - began < 1


def test_beyond_the_period_there_are_several_candidates() -> None:
    (first,) = flipped_positions(zlib.crc32(b"\1"), zlib.crc32(b"\0"), 1)
    assert first == (0, 0)
    length = (1 << 29) + 10
    found = list(flipped_positions(zlib.crc32(b"\1"), zlib.crc32(b"\0"), length))
    assert (length - 1, 0) in found and len(found) == 2


def test_without_a_checksum_every_bit_is_tried() -> None:
    data = bytes(range(200))
    digest = hashlib.sha256(data).hexdigest()
    damaged = flipped(data, 150, 6)
    assert flip_by_trial(damaged, hashlib.sha256, digest, lambda: False) == (150, 6)
    assert flip_by_trial(flipped(damaged, 3, 0), hashlib.sha256, digest, lambda: False) is None
    assert flip_by_trial(damaged, hashlib.sha256, digest, lambda: True) is None
