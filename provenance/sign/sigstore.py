"""A signature of the sums in a sigstore bundle, for `cosign verify-blob --key`.

The signature in it is the very one that openssl verifies: ECDSA in DER over the file's bytes.
"""

from __future__ import annotations

import base64
import hashlib

from ..finding import FindingKind
from . import bundle
from .der import decode_der
from .found import FoundSignature
from .key import ED25519, PublicKey
from .public_key import P384, P521, verifies_raw
from .sshsig import LIMIT

SCHEME = "sigstore"
_HASHES = {"SHA2_256": "sha256", "SHA2_384": "sha384", "SHA2_512": "sha512"}
_HASH_OF = {P384: "SHA2_384", P521: "SHA2_512"}
CERTIFICATE = "It was signed with a certificate, which cannot be judged without a network."


def encode(key: PublicKey, sums: bytes, der: bytes) -> bytes:
    """Write the bundle for an ECDSA P-256 signature over the bytes of the sums."""
    digest = base64.b64encode(hashlib.sha256(sums).digest()).decode()
    signature = {
        "messageDigest": {"algorithm": "SHA2_256", "digest": digest},
        "signature": base64.b64encode(der).decode(),
    }
    return bundle.encode(key, {"messageSignature": signature})


def read(data: bytes, path: str, label: str) -> FoundSignature:
    """Read a bundle with a signature over bytes. Raises Unusable."""
    found = bundle.decode(data, label, "messageSignature", LIMIT)
    hint = found.hint
    message = bundle.fields(found.content, label, {"messageDigest", "signature"})
    digest = bundle.fields(message["messageDigest"], label, {"algorithm", "digest"})
    algorithm = bundle.as_text(digest["algorithm"], label)
    if algorithm not in _HASHES:
        raise bundle.refused(label, "names a hash that is not accepted")
    stated = bundle.as_bytes(digest["digest"], label)
    signature = bundle.as_bytes(message["signature"], label)
    if len(signature) != 64:  # of Ed25519
        decode_der(signature, label)

    def check(key: PublicKey, sums: bytes, _allow_touchless: bool) -> bool:
        if hint is None or key.algorithm.startswith("sk-") or not bundle.hint_fits(hint, key):
            return False
        if hashlib.new(_HASHES[algorithm], sums).digest() != stated:
            return False
        if key.algorithm != ED25519 and _HASH_OF.get(key.algorithm, "SHA2_256") != algorithm:
            return False
        return verifies_raw(key, sums, signature)

    fault = (FindingKind.NOT_CHECKED, CERTIFICATE) if hint is None else None
    return FoundSignature(SCHEME, path, check, fault=fault, unchecked=found.unchecked)
