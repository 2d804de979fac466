"""Put the certificates in a timestamp into the order that DER asks for.

TSAs made of `openssl ts` send them in another one. openssl reads both, rfc3161-client 1.0.9 only
the right one. No signature covers the order, and the length stays what it was.
"""

from __future__ import annotations

_SEQUENCE = 0x30
_CONTEXT_0 = 0xA0
# From the response to its certificates: the tag to enter, and how many values lie before it.
_PATH = ((_SEQUENCE, 0), (_SEQUENCE, 1), (_CONTEXT_0, 1), (_SEQUENCE, 0), (_CONTEXT_0, 3))


def in_order(response: bytes) -> bytes:
    """Sort the certificates of a response; bytes of another shape are given back as they are."""
    start, end = 0, len(response)
    try:
        for tag, skipped in _PATH:
            for _ in range(skipped):
                start = _value(response, start, end)[2]
            found, start, end = _value(response, start, end)
            if found != tag:
                return response
        certificates: list[bytes] = []
        at = start
        while at < end:
            after = _value(response, at, end)[2]
            certificates.append(response[at:after])
            at = after
    except ValueError:
        return response
    return response[:start] + b"".join(sorted(certificates)) + response[end:]


def _value(data: bytes, at: int, end: int) -> tuple[int, int, int]:
    """Give a value's tag, and where its content begins and ends. Raises ValueError."""
    if end - at < 2:
        raise ValueError
    length, start = data[at + 1], at + 2
    if length >= 0x80:
        size = length & 0x7F
        start += size
        if not 1 <= size <= 4 or start > end:
            raise ValueError
        length = int.from_bytes(data[at + 2 : start], "big")
    if start + length > end:
        raise ValueError
    return data[at], start, start + length
