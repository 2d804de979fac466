"""Signatures as `ssh-keygen -Y sign` makes them (OpenSSH, PROTOCOL.sshsig)."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass

from ...errors import Unusable
from .key import PublicKey, Signer
from .public_key import decode_base64, from_blob, parse_signature, verifies
from .wire import WireReader, string

LIMIT = 1 << 20
SUMS_NAMESPACE = "reefkit-sums"
CUSTODY_NAMESPACE = "reefkit-custody"
AUDIT_NAMESPACE = "reefkit-audit"

_MAGIC = b"SSHSIG"
_VERSION = 1
_BEGIN = b"-----BEGIN SSH SIGNATURE-----\n"
_END = b"-----END SSH SIGNATURE-----"
_WIDTH = 70
_LINES = re.compile(rb"(?:[A-Za-z0-9+/=]{1,76}\n)+")


@dataclass(frozen=True)
class SshSig:
    """A signature, every field of it checked, but not yet held against what it signs."""

    public_key: PublicKey
    namespace: str
    hash_name: str
    signature: bytes

    @property
    def touchless(self) -> bool:
        """Tell whether a FIDO key signed without anybody touching it."""
        return parse_signature(self.public_key, self.signature).touchless

    def verify(self, data: bytes, *, allow_touchless: bool = False) -> bool:
        """Tell whether the key in it signed the data, in the namespace in it."""
        signed = signed_data(data, self.namespace, self.hash_name)
        return verifies(self.public_key, signed, self.signature, allow_touchless=allow_touchless)


def signed_data(data: bytes, namespace: str, hash_name: str = "sha512") -> bytes:
    """Build what is signed in place of the data."""
    digest = hashlib.new(hash_name, data).digest()
    fields = (namespace.encode(), b"", hash_name.encode(), digest)
    return _MAGIC + b"".join(string(field) for field in fields)


def sign(signer: Signer, data: bytes, namespace: str) -> bytes:
    """Sign data and give the armored signature, byte for byte as ssh-keygen writes it.

    Raises what the signer raises, and Unusable when it returned no valid signature.
    """
    signed = signed_data(data, namespace)
    blob = signer.sign(signed)
    if not verifies(signer.public, signed, blob):
        raise Unusable(
            "What the key returned is not its signature.",
            remedy="A security key must be touched; an agent may hold a broken key.",
        )
    fields = (signer.public.blob, namespace.encode(), b"", b"sha512", blob)
    return armor(_MAGIC + _VERSION.to_bytes(4, "big") + b"".join(string(field) for field in fields))


def armor(blob: bytes) -> bytes:
    """Put the lines around a signature's bytes."""
    text = base64.b64encode(blob)
    lines = [text[at : at + _WIDTH] + b"\n" for at in range(0, len(text), _WIDTH)]
    return _BEGIN + b"".join(lines) + _END + b"\n"


def read(data: bytes, label: str) -> SshSig:
    """Read an armored signature. Raises Unusable with one sentence that begins with `label`."""
    reader = WireReader(_dearmored(data, label), label)
    if reader.take(len(_MAGIC)) != _MAGIC or reader.uint32() != _VERSION:
        raise reader.refused("is not an SSH signature of version 1")
    key = from_blob(reader.string(), f"The key in {label}")
    namespace = reader.text()
    reserved = reader.string()
    hash_name = reader.text()
    signature = reader.string()
    reader.end()
    if not namespace:
        raise reader.refused("names no namespace")
    if reserved:
        raise reader.refused("fills a field that is reserved")
    if hash_name not in ("sha256", "sha512"):
        raise reader.refused("uses a hash that is neither sha256 nor sha512")
    parse_signature(key, signature, label)
    return SshSig(key, namespace, hash_name, signature)


def _dearmored(data: bytes, label: str) -> bytes:
    body = data.removesuffix(b"\n")
    if len(data) > LIMIT or not (body.startswith(_BEGIN) and body.endswith(_END)):
        raise _not_armored(label)
    lines = body[len(_BEGIN) : -len(_END)]
    if not _LINES.fullmatch(lines):
        raise _not_armored(label)
    return decode_base64(lines.replace(b"\n", b""), label)


def _not_armored(label: str) -> Unusable:
    return Unusable(
        f"{label} is not one armored SSH signature.",
        remedy="Get the file from its source again; it begins with -----BEGIN SSH SIGNATURE-----.",
    )
