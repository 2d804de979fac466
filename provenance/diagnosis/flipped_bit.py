"""Find the one bit in which damaged bytes differ from what a checksum is known of.

CRC-32 is linear: the checksums of two strings of one length, xored, depend only on where they
differ. For one bit that is a power of x modulo the polynomial, and the exponent says how many bits
follow it. The polynomial is primitive, so the exponent is found by baby and giant steps, in a time
that grows with the square root of the length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import isqrt

from ..hashing import Hash

_POLYNOMIAL = 0xEDB88320
_TOP = 0x8000_0000
_ORDER = (1 << 32) - 1


def flipped_positions(damaged: int, known: int, length: int) -> Iterator[tuple[int, int]]:
    """Give (byte, bit) of every single bit of `length` bytes that explains two CRC-32s.

    There is at most one below 512 MiB. Nothing is given when no single bit explains them.
    """
    following = _exponent(damaged ^ known, min(8 * length, _ORDER))
    while following is not None and following < 8 * length:
        position = 8 * length - 1 - following
        yield position // 8, position % 8
        following += _ORDER


def _exponent(syndrome: int, bound: int) -> int | None:
    """Find k < bound for which k + 1 steps make `syndrome` of 1."""
    if not syndrome:
        return None
    width = isqrt(bound) + 1
    baby: dict[int, int] = {}
    state = _step(1)
    for number in range(width):
        baby.setdefault(state, number)
        state = _step(state)
    back = _many(_step_back, width)
    for giant in range(width + 1):
        found = baby.get(syndrome)
        if found is not None:
            exponent = giant * width + found
            return exponent if exponent < bound else None
        syndrome = back(syndrome)
    return None


def _step(state: int) -> int:
    return (state >> 1) ^ (_POLYNOMIAL if state & 1 else 0)


def _step_back(state: int) -> int:
    return ((state ^ _POLYNOMIAL) << 1) | 1 if state & _TOP else state << 1


def _many(step: Callable[[int], int], times: int) -> Callable[[int], int]:
    """Make one function of many steps, which are linear: a table for each byte of the state."""
    power = [step(1 << bit) for bit in range(32)]
    images = [1 << bit for bit in range(32)]
    while times:
        if times & 1:
            images = [_combined(power, image) for image in images]
        power = [_combined(power, image) for image in power]
        times >>= 1
    first, second, third, fourth = (
        [_combined(images[start : start + 8], value) for value in range(256)]
        for start in (0, 8, 16, 24)
    )

    def apply(state: int) -> int:
        return (
            first[state & 255]
            ^ second[state >> 8 & 255]
            ^ third[state >> 16 & 255]
            ^ fourth[state >> 24]
        )

    return apply


def _combined(images: list[int], value: int) -> int:
    result = 0
    for bit, image in enumerate(images):
        if value >> bit & 1:
            result ^= image
    return result


def flip_by_trial(
    data: bytes, begin: Callable[[], Hash], digest: str, out_of_time: Callable[[], bool]
) -> tuple[int, int] | None:
    """Try every bit until the digest is right; for a few KiB, since the time grows with n²."""
    state = begin()
    for at, byte in enumerate(data):
        if out_of_time():
            return None
        rest = data[at + 1 :]
        for bit in range(8):
            trial = state.copy()
            trial.update(bytes((byte ^ 1 << bit,)) + rest)
            if trial.hexdigest() == digest:
                return at, bit
        state.update(data[at : at + 1])
    return None
