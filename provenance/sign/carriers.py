"""The files that carry signatures of a checksum file: how they are called, and how they are read.

The first signer's are `SHA256SUMS.sig` and so on, a further one's have its number before the
ending: `SHA256SUMS.2.sig`, `model.2.sig`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from ...errors import Unusable
from ...records.names import printable
from . import minisign, oms, sigstore, sshsig
from .der import decode_der
from .found import FoundSignature
from .key import ED25519, P256, PublicKey
from .public_key import verifies_raw

SUMS = "SHA256SUMS"
MODEL = "model"
SLOTS = range(1, 10)


class Form(Enum):
    """What a carrier holds; the value is the ending of its name."""

    SSHSIG = "sig"
    DER = "p256.der"
    ED25519 = "ed25519.raw"
    SIGSTORE = "sigstore.json"
    MINISIGN = "minisig"
    TIMESTAMP = "tsr"
    OMS = "model.sig"


@dataclass(frozen=True)
class Carrier:
    """One file: its name, what it holds and whose it is, from 1 to 9."""

    name: str
    form: Form
    slot: int

    @property
    def limit(self) -> int:
        """Give the most bytes that such a file may have."""
        return oms.LIMIT if self.form is Form.OMS else sshsig.LIMIT


_ENDINGS = "|".join(re.escape(form.value) for form in Form if form is not Form.OMS)
_OF_SUMS = re.compile(rf"(?:\.([2-9]))?\.({_ENDINGS})")
_OF_MODEL = re.compile(rf"{MODEL}(?:\.([2-9]))?\.sig")


def carrier_name(form: Form, slot: int, sums_name: str = SUMS) -> str:
    """Give the name of a signer's file. `sums_name` is what the checksum file is called."""
    number = "" if slot == 1 else f".{slot}"
    if form is Form.OMS:
        return f"{MODEL}{number}.sig"
    return f"{sums_name}{number}.{form.value}"


def carrier_of(name: str, sums_name: str = SUMS) -> Carrier | None:
    """Recognise a signature, or a timestamp, by the name of a file at the root."""
    found = _OF_MODEL.fullmatch(name)
    if found is not None:
        return Carrier(name, Form.OMS, int(found[1] or 1))
    if not name.startswith(sums_name):
        return None
    found = _OF_SUMS.fullmatch(name, len(sums_name))
    if found is None:
        return None
    return Carrier(name, Form(found[2]), int(found[1] or 1))


def all_names(sums_name: str = SUMS) -> tuple[str, ...]:
    """Give the sums file's name and those of all its signatures: what no sums line covers."""
    carriers = [carrier_name(form, slot, sums_name) for slot in SLOTS for form in Form]
    return (sums_name, *sorted(carriers))


def read_signature(
    carrier: Carrier, path: str, data: bytes, *, sums_name: str = SUMS
) -> FoundSignature:
    """Read the content of a carrier that was found at `path`. Raises Unusable when malformed.

    A timestamp is no signature of a signer: it is refused, too.
    """
    label = printable(path)
    if carrier.form is Form.OMS:
        return oms.read(data, path, label, sums_name)
    if carrier.form is Form.SIGSTORE:
        return sigstore.read(data, path, label)
    if carrier.form is Form.MINISIGN:
        return minisign.read(data, path, label)
    if carrier.form is Form.DER:
        decode_der(data, label)
        return _raw(path, data, P256)
    if carrier.form is Form.ED25519:
        if len(data) != 64:
            raise Unusable(
                f"{label} is not a raw Ed25519 signature: it has {len(data):,} bytes, not 64.",
                remedy="Get the file from its source again.",
            )
        return _raw(path, data, ED25519)
    if carrier.form is Form.SSHSIG:
        if minisign.looks_like_signify(data):
            return minisign.read_signify(data, path, label)
        return _ssh(path, data, label)
    raise Unusable(f"{label} is a timestamp, not a signature.")


def _raw(path: str, data: bytes, algorithm: str) -> FoundSignature:
    def check(key: PublicKey, sums: bytes, _allow_touchless: bool) -> bool:
        return key.algorithm == algorithm and verifies_raw(key, sums, data)

    return FoundSignature("openssl", path, check)


def _ssh(path: str, data: bytes, label: str) -> FoundSignature:
    signature = sshsig.read(data, label)

    def check(_key: PublicKey, sums: bytes, allow_touchless: bool) -> bool:
        return signature.verify(sums, allow_touchless=allow_touchless)

    return FoundSignature(
        "sshsig",
        path,
        check,
        public_key=signature.public_key,
        namespace=signature.namespace,
        touchless=signature.touchless,
    )
