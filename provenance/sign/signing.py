"""What a signer's signature is outside SSH: DER for ECDSA, 64 bytes for Ed25519, both checked."""

from __future__ import annotations

from ...errors import Unusable
from .der import raw_signature
from .key import ED25519, P256, Signer
from .public_key import verifies_raw

_LABEL = "What the key returned"


def ecdsa_der(signer: Signer, data: bytes) -> bytes:
    """Sign with ECDSA P-256 and give DER. Raises what the signer raises, and Unusable."""
    return _signed(signer, data, P256)


def ed25519_raw(signer: Signer, data: bytes) -> bytes:
    """Sign with Ed25519 and give 64 bytes. Raises what the signer raises, and Unusable."""
    return _signed(signer, data, ED25519)


def _signed(signer: Signer, data: bytes, algorithm: str) -> bytes:
    assert signer.public.algorithm == algorithm and not signer.only_sshsig
    signature = raw_signature(signer.sign(data), algorithm, _LABEL)
    if not verifies_raw(signer.public, data, signature):
        raise Unusable(f"{_LABEL} is not its signature.", remedy="An agent may hold a broken key.")
    return signature
