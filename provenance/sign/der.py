"""ECDSA signatures: DER as openssl and sigstore have them, two integers as SSH has them.

Both forms are read strictly: one pair of numbers has exactly one accepted encoding.
"""

from __future__ import annotations

from ...errors import Unusable
from .wire import WireReader, mpint, string

_SEQUENCE = 0x30
_INTEGER = 0x02
# Of P-521: two integers of 66 bytes and a zero byte, each with two bytes before it.
_LONGEST = 2 * (2 + 67) + 3


def encode_der(r: int, s: int) -> bytes:
    """Give the DER of SEQUENCE { INTEGER r, INTEGER s }."""
    return _tagged(_SEQUENCE, _integer(r) + _integer(s))


def _integer(value: int) -> bytes:
    return _tagged(_INTEGER, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def _tagged(tag: int, content: bytes) -> bytes:
    length = len(content)
    head = bytes([tag, length]) if length < 0x80 else bytes([tag, 0x81, length])
    return head + content


def decode_der(data: bytes, label: str) -> tuple[int, int]:
    """Read r and s; raises Unusable for anything but the one DER encoding of two positives."""
    numbers = _numbers(data) if len(data) <= _LONGEST else None
    # BER has many encodings of the same numbers: only what DER would write may pass.
    if numbers is None or min(numbers) < 1 or encode_der(*numbers) != data:
        raise Unusable(
            f"{label} is not an ECDSA signature in DER.",
            remedy="Get the file from its source again.",
        )
    return numbers


def _numbers(data: bytes) -> tuple[int, int] | None:
    at = 3 if data[1:2] == b"\x81" else 2
    found: list[int] = []
    for _ in range(2):
        if data[at : at + 1] != bytes([_INTEGER]) or at + 2 > len(data):
            return None
        end = at + 2 + data[at + 1]
        found.append(int.from_bytes(data[at + 2 : end], "big"))
        at = end
    return found[0], found[1]


def der_from_ssh(signature: bytes, label: str) -> bytes:
    """Give the DER of what an OpenSSH signature holds for ECDSA: `mpint r, mpint s`."""
    reader = WireReader(signature, label)
    r, s = reader.mpint(), reader.mpint()
    reader.end()
    if min(r, s) < 1:
        raise reader.refused("holds a number that no signature has")
    return encode_der(r, s)


def ssh_from_der(data: bytes) -> bytes:
    """Give `mpint r, mpint s` for an ECDSA signature in DER."""
    r, s = decode_der(data, "The signature")
    return mpint(r) + mpint(s)


def raw_signature(blob: bytes, algorithm: str, label: str) -> bytes:
    """Take what was signed out of the blob of an OpenSSH signature: DER for ECDSA, else bytes.

    Raises Unusable when the blob is of another algorithm.
    """
    reader = WireReader(blob, label)
    said = reader.text()
    signature = reader.string()
    reader.end()
    if said != algorithm:
        raise reader.refused(f"is of {said}, not of {algorithm}")
    return der_from_ssh(signature, label) if algorithm.startswith("ecdsa-") else signature


def signature_blob(algorithm: str, signature: bytes) -> bytes:
    """Make the blob of an OpenSSH signature from the bytes that an algorithm gives."""
    return string(algorithm.encode()) + string(signature)
