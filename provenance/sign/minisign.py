"""Ed25519 signatures as minisign 0.11 and signify write them.

minisign signs BLAKE2b of the file ("ED"), or the file itself as signify does ("Ed"), and then
that signature together with the trusted comment. The comment here names no time: the same sums
give the same signature.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass

from ...errors import Unusable
from .found import FoundSignature
from .key import ED25519, PublicKey, Signer
from .public_key import decode_base64, verifies_raw
from .signing import ed25519_raw
from .sshsig import LIMIT
from .wire import WireReader, string

MINISIGN = "minisign"
SIGNIFY = "signify"
_UNTRUSTED = b"untrusted comment: "
_TRUSTED = b"trusted comment: "
_PREHASHED, _PLAIN = b"ED", b"Ed"
_KEY_ID = 8
_SIGNATURE = 64


def key_id(key: PublicKey) -> bytes:
    """Give the eight bytes by which minisign tells keys apart; here they follow from the key."""
    return hashlib.blake2b(key.blob, digest_size=_KEY_ID).digest()


def public_key_file(key: PublicKey) -> bytes:
    """Give the file for `minisign -V -p`. Raises Unusable when the key is not Ed25519."""
    reader = WireReader(key.blob, "The key")
    if reader.text() != ED25519:
        raise reader.refused("is not Ed25519, the only type that minisign has")
    shown = key_id(key)[::-1].hex().upper()
    return _comment(f"minisign public key {shown}") + _line(_PLAIN + key_id(key) + reader.string())


def read_public_key_file(data: bytes, label: str) -> PublicKey:
    """Read a public key file of minisign or signify. Raises Unusable."""
    lines = _lines(data, label, 2)
    blob = decode_base64(lines[1], label)
    if not lines[0].startswith(_UNTRUSTED) or blob[:2] != _PLAIN or len(blob) != 2 + _KEY_ID + 32:
        raise _refused(label)
    return PublicKey(ED25519, string(ED25519.encode()) + string(blob[2 + _KEY_ID :]))


def sign(signer: Signer, data: bytes, name: str) -> bytes:
    """Sign data that is in a file of that name. Raises what the signer raises."""
    signature = ed25519_raw(signer, hashlib.blake2b(data).digest())
    comment = f"file:{name}\thashed".encode()
    over_all = ed25519_raw(signer, signature + comment)
    return (
        _comment(f"signature from reefkit, key {key_id(signer.public)[::-1].hex().upper()}")
        + _line(_PREHASHED + key_id(signer.public) + signature)
        + _TRUSTED
        + comment
        + b"\n"
        + _line(over_all)
    )


def _comment(text: str) -> bytes:
    return _UNTRUSTED + text.encode() + b"\n"


def _line(data: bytes) -> bytes:
    return base64.b64encode(data) + b"\n"


@dataclass(frozen=True)
class _Signature:
    algorithm: bytes
    signature: bytes


def looks_like_signify(data: bytes) -> bool:
    """Tell a signify signature, which may be called as an SSH signature is."""
    return data.startswith(_UNTRUSTED)


def read(data: bytes, path: str, label: str) -> FoundSignature:
    """Read a minisign signature. Raises Unusable."""
    lines = _lines(data, label, 4)
    parts = _signature(lines, label)
    if not lines[2].startswith(_TRUSTED):
        raise _refused(label)
    comment = lines[2][len(_TRUSTED) :]
    over_all = decode_base64(lines[3], label)

    def check(key: PublicKey, sums: bytes, _allow_touchless: bool) -> bool:
        hashed = parts.algorithm == _PREHASHED
        message = hashlib.blake2b(sums).digest() if hashed else sums
        return (
            key.algorithm == ED25519
            and verifies_raw(key, message, parts.signature)
            and verifies_raw(key, parts.signature + comment, over_all)
        )

    return FoundSignature(MINISIGN, path, check)


def read_signify(data: bytes, path: str, label: str) -> FoundSignature:
    """Read a signify signature: no trusted comment, the file itself signed. Raises Unusable."""
    parts = _signature(_lines(data, label, 2), label)
    if parts.algorithm != _PLAIN:
        raise _refused(label)

    def check(key: PublicKey, sums: bytes, _allow_touchless: bool) -> bool:
        return key.algorithm == ED25519 and verifies_raw(key, sums, parts.signature)

    return FoundSignature(SIGNIFY, path, check)


def _signature(lines: list[bytes], label: str) -> _Signature:
    blob = decode_base64(lines[1], label)
    if not lines[0].startswith(_UNTRUSTED) or len(blob) != 2 + _KEY_ID + _SIGNATURE:
        raise _refused(label)
    if blob[:2] not in (_PREHASHED, _PLAIN):
        raise _refused(label)
    return _Signature(blob[:2], blob[2 + _KEY_ID :])


def _lines(data: bytes, label: str, count: int) -> list[bytes]:
    lines = data.split(b"\n") if len(data) <= LIMIT else []
    if len(lines) != count + 1 or lines[-1] or b"\r" in data:
        raise _refused(label)
    return lines


def _refused(label: str) -> Unusable:
    return Unusable(
        f"{label} is not what minisign or signify writes.",
        remedy="Get the file from its source again.",
    )
