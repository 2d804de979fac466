"""Public keys: their forms, their fingerprint, and what they verify.

Blobs are those of RFC 4253 (6.6), RFC 5656 (3.1), RFC 8709 and OpenSSH's PROTOCOL.u2f.
Certificates, DSA and SHA-1 signatures are refused.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from ...errors import Unusable
from ...records.names import printable
from .der import der_from_ssh
from .key import ED25519, P256, PublicKey
from .wire import WireReader, mpint, string

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
    from cryptography.hazmat.primitives.hashes import HashAlgorithm

    CryptoKey: TypeAlias = ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey | rsa.RSAPublicKey

P384 = "ecdsa-sha2-nistp384"
P521 = "ecdsa-sha2-nistp521"
RSA = "ssh-rsa"
SK_P256 = "sk-ecdsa-sha2-nistp256@openssh.com"
SK_ED25519 = "sk-ssh-ed25519@openssh.com"
LINE_LIMIT = 16 << 10

_POINT = {P256: 65, P384: 97, P521: 133, SK_P256: 65}
_SUPPORTED = (P256, P384, P521, ED25519, RSA, SK_P256, SK_ED25519)
_RSA_BITS = (2048, 16384)
_TOUCHED = 0x01
_ACCEPTED = "Use an ECDSA, Ed25519, FIDO (sk-…) or RSA key of at least 2048 bits."


def from_blob(blob: bytes, label: str = "The key") -> PublicKey:
    """Read a public key's blob; every field is checked. Raises Unusable."""
    reader = WireReader(blob, label)
    algorithm = reader.text()
    _refuse_unsupported(algorithm, label)
    key = PublicKey(algorithm, blob)
    crypto_key(key)
    return key


def _refuse_unsupported(algorithm: str, label: str) -> None:
    if "-cert-v" in algorithm:
        raise Unusable(
            f"{label} is an OpenSSH certificate, and who may issue one is not known here.",
            remedy="Sign with the plain key, and trust that.",
        )
    if algorithm not in _SUPPORTED:
        raise Unusable(
            f"{label} is of the type {printable(algorithm[:64])}, which is not accepted.",
            remedy=_ACCEPTED,
        )


@lru_cache(maxsize=256)
def crypto_key(key: PublicKey) -> CryptoKey:
    """Give the key as `cryptography` has it; of a FIDO key the one in it. Raises Unusable."""
    from cryptography.exceptions import UnsupportedAlgorithm

    reader = WireReader(key.blob, "The key")
    if reader.text() != key.algorithm:
        raise reader.refused("names two types")
    try:
        found = _crypto_key(key.algorithm, reader)
    except (ValueError, UnsupportedAlgorithm):
        raise reader.refused("is not a point of its curve, or no valid number") from None
    if key.algorithm.startswith("sk-"):
        reader.string()
    reader.end()
    return found


def _crypto_key(algorithm: str, reader: WireReader) -> CryptoKey:
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    if algorithm in _POINT:
        curve = {P384: ec.SECP384R1, P521: ec.SECP521R1}.get(algorithm, ec.SECP256R1)
        named = reader.text()
        point = reader.string()
        if not algorithm.removesuffix("@openssh.com").endswith(f"-{named}"):
            raise reader.refused("names two curves")
        if len(point) != _POINT[algorithm] or point[0] != 4:
            raise reader.refused("holds a point in a form that SSH does not use")
        return ec.EllipticCurvePublicKey.from_encoded_point(curve(), point)
    if algorithm in (ED25519, SK_ED25519):
        return ed25519.Ed25519PublicKey.from_public_bytes(reader.string())
    exponent, modulus = reader.mpint(), reader.mpint()
    least, most = _RSA_BITS
    if not least <= modulus.bit_length() <= most:
        raise Unusable(
            f"An RSA key of {modulus.bit_length():,} bits is not accepted: {least:,} are the least "
            f"and {most:,} the most.",
            remedy=_ACCEPTED,
        )
    return rsa.RSAPublicNumbers(exponent, modulus).public_key()


def from_crypto(key: object, label: str = "The key") -> PublicKey:
    """Take over a public key of `cryptography`. Raises Unusable for types not accepted."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    if isinstance(key, ed25519.Ed25519PublicKey):
        raw = key.public_bytes(Encoding.Raw, PublicFormat.Raw)
        return PublicKey(ED25519, string(ED25519.encode()) + string(raw))
    if isinstance(key, ec.EllipticCurvePublicKey):
        size = {"secp256r1": "256", "secp384r1": "384", "secp521r1": "521"}.get(key.curve.name)
        if size is not None:
            curve = f"nistp{size}"
            point = key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
            name = f"ecdsa-sha2-{curve}"
            return PublicKey(name, string(name.encode()) + string(curve.encode()) + string(point))
    if isinstance(key, rsa.RSAPublicKey):
        numbers = key.public_numbers()
        return from_blob(string(RSA.encode()) + mpint(numbers.e) + mpint(numbers.n), label)
    raise Unusable(f"{label} is of a type that is not accepted.", remedy=_ACCEPTED)


def fingerprint(key: PublicKey) -> str:
    """Give OpenSSH's fingerprint: `SHA256:` and 43 characters."""
    digest = base64.b64encode(hashlib.sha256(key.blob).digest())
    return "SHA256:" + digest.rstrip(b"=").decode()


def to_openssh(key: PublicKey, comment: str = "") -> str:
    """Give the line of a `.pub` file, without a newline."""
    line = f"{key.algorithm} {base64.b64encode(key.blob).decode()}"
    return f"{line} {comment}" if comment else line


def from_openssh(text: str | bytes, label: str = "The key") -> PublicKey:
    """Read the line of a `.pub` file: type, base64, perhaps a comment. Raises Unusable."""
    return read_openssh(text, label)[0]


def read_openssh(text: str | bytes, label: str = "The key") -> tuple[PublicKey, str]:
    """Read the line of a `.pub` file, and give its comment, too. Raises Unusable."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "surrogateescape")
    words = text.strip("\r\n\t ").split(None, 2)
    if len(text) > LINE_LIMIT or len(words) < 2 or "\n" in text.strip("\r\n\t "):
        raise Unusable(
            f"{label} is not one line of an OpenSSH public key.",
            remedy="Give the .pub file: `TYPE BASE64 COMMENT`.",
        )
    _refuse_unsupported(words[0], label)
    key = from_blob(decode_base64(words[1], label), label)
    if key.algorithm != words[0]:
        raise Unusable(f"{label} says it is {words[0]}, but is {key.algorithm}.")
    return key, words[2] if len(words) == 3 else ""


def decode_base64(text: str | bytes, label: str) -> bytes:
    """Decode base64 that is written in its one canonical way. Raises Unusable."""
    try:
        if isinstance(text, str):
            text = text.encode("ascii")
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        data = None
    if data is None or base64.b64encode(data) != text:
        raise Unusable(
            f"{label} holds base64 that is not valid.", remedy="Get the file from its source again."
        )
    return data


def to_pem(key: PublicKey) -> str:
    """Give SubjectPublicKeyInfo in PEM, as openssl reads it. Raises Unusable for a FIDO key."""
    return _spki(key, in_pem=True).decode("ascii")


def to_spki(key: PublicKey) -> bytes:
    """Give SubjectPublicKeyInfo in DER. Raises Unusable for a FIDO key."""
    return _spki(key, in_pem=False)


def _spki(key: PublicKey, *, in_pem: bool) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    if key.algorithm.startswith("sk-"):
        raise Unusable("A FIDO key has no PEM form: only ssh-keygen verifies what it signs.")
    encoding = Encoding.PEM if in_pem else Encoding.DER
    return crypto_key(key).public_bytes(encoding, PublicFormat.SubjectPublicKeyInfo)


def from_pem(data: str | bytes, label: str = "The key") -> PublicKey:
    """Read SubjectPublicKeyInfo in PEM. Raises Unusable."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    if isinstance(data, str):
        data = data.encode("utf-8", "surrogateescape")
    try:
        if len(data) > LINE_LIMIT or data.count(b"-----BEGIN ") != 1:
            raise ValueError
        key = load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm):
        raise Unusable(
            f"{label} is not one public key in PEM.",
            remedy="Give the file that begins with -----BEGIN PUBLIC KEY-----.",
        ) from None
    return from_crypto(key, label)


@dataclass(frozen=True)
class SshSignature:
    """A signature's parts: what the algorithm gave (DER for ECDSA), and what a FIDO key added."""

    algorithm: str
    signature: bytes
    flags: int | None = None
    counter: int = 0

    @property
    def touchless(self) -> bool:
        """Tell whether a FIDO key signed without anybody touching it."""
        return self.flags is not None and not self.flags & _TOUCHED


def parse_signature(key: PublicKey, blob: bytes, label: str = "The signature") -> SshSignature:
    """Read the blob of a signature that the key is said to have made. Raises Unusable."""
    reader = WireReader(blob, label)
    algorithm = reader.text()
    if algorithm not in _signature_names(key.algorithm):
        raise reader.refused(
            f"is of {printable(algorithm[:64])}, which a key of the type {key.algorithm} does not "
            "make, or which is not accepted"
        )
    signature = reader.string()
    flags, counter = None, 0
    if algorithm.startswith("sk-"):
        flags, counter = reader.byte(), reader.uint32()
    reader.end()
    if "ecdsa-" in algorithm:
        signature = der_from_ssh(signature, label)
    return SshSignature(algorithm, signature, flags, counter)


def _signature_names(algorithm: str) -> tuple[str, ...]:
    return ("rsa-sha2-256", "rsa-sha2-512") if algorithm == RSA else (algorithm,)


def verifies(
    key: PublicKey, data: bytes, signature_blob: bytes, *, allow_touchless: bool = False
) -> bool:
    """Tell whether the key signed the data, the signature being an OpenSSH blob.

    A FIDO key's signature counts only if the key was touched, unless `allow_touchless`. What is
    malformed does not verify.
    """
    try:
        parts = parse_signature(key, signature_blob)
        crypto = crypto_key(key)
    except Unusable:
        return False
    if parts.flags is not None:
        if parts.touchless and not allow_touchless:
            return False
        data = _fido_message(key, data, parts)
    return _checked(_check(crypto, parts, data))


def _fido_message(key: PublicKey, data: bytes, parts: SshSignature) -> bytes:
    """Build what an authenticator signs (PROTOCOL.u2f): application, flags, counter, digest."""
    reader = WireReader(key.blob, "The key")
    fields = 2 if key.algorithm == SK_ED25519 else 3
    for _ in range(fields):
        reader.string()
    application = reader.string()
    assert parts.flags is not None
    return (
        hashlib.sha256(application).digest()
        + bytes([parts.flags])
        + parts.counter.to_bytes(4, "big")
        + hashlib.sha256(data).digest()
    )


def _check(crypto: CryptoKey, parts: SshSignature, data: bytes) -> Callable[[], None]:
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding
    from cryptography.hazmat.primitives.hashes import SHA256, SHA512

    if isinstance(crypto, ed25519.Ed25519PublicKey):
        return lambda: crypto.verify(parts.signature, data)
    if isinstance(crypto, ec.EllipticCurvePublicKey):
        return lambda: crypto.verify(parts.signature, data, ec.ECDSA(hash_of_curve(crypto)))
    size = (crypto.key_size + 7) // 8
    padded = parts.signature.rjust(size, b"\0")  # some agents leave leading zeros away
    digest = SHA256() if parts.algorithm == "rsa-sha2-256" else SHA512()
    return lambda: crypto.verify(padded, data, padding.PKCS1v15(), digest)


def hash_of_curve(key: ec.EllipticCurvePublicKey) -> HashAlgorithm:
    """Give the hash that goes with a curve (RFC 5656, 6.2.1)."""
    from cryptography.hazmat.primitives.hashes import SHA256, SHA384, SHA512

    return {256: SHA256, 384: SHA384}.get(key.curve.key_size, SHA512)()


def verifies_raw(key: PublicKey, data: bytes, signature: bytes) -> bool:
    """Tell whether the key signed the data: ECDSA in DER with its curve's hash, or Ed25519.

    No other type of key signs in these forms.
    """
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519

    if key.algorithm not in (P256, P384, P521, ED25519):
        return False
    crypto = crypto_key(key)
    if isinstance(crypto, ed25519.Ed25519PublicKey):
        return _checked(lambda: crypto.verify(signature, data))
    assert isinstance(crypto, ec.EllipticCurvePublicKey)
    return _checked(lambda: crypto.verify(signature, data, ec.ECDSA(hash_of_curve(crypto))))


def _checked(check: Callable[[], None]) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        check()
    except InvalidSignature:
        return False
    return True
