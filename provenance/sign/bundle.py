"""The sigstore bundle, version 0.3, signed with a plain key: the frame of two of our signatures.

A bundle holds exactly one signature; a certificate or a log entry in it is nothing that a
verifier without a network could judge.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Collection, Mapping

from ...errors import Unusable
from ...records.strict_json import Json, parse_object
from .key import PublicKey
from .public_key import decode_base64, to_pem, to_spki

MEDIA_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
_MATERIAL = {"publicKey", "certificate", "x509CertificateChain"}


def key_hint(key: PublicKey) -> str:
    """Give the hint that model_signing looks for: hex SHA-256 of the key's PEM text."""
    return hashlib.sha256(to_pem(key).encode()).hexdigest()


def hint_fits(hint: str, key: PublicKey) -> bool:
    """Tell whether a hint may mean the key: a digest of it, or no digest at all."""
    spki = hashlib.sha256(to_spki(key)).digest()
    if len(hint) in (44, 64):
        return hint in (key_hint(key), spki.hex(), base64.b64encode(spki).decode())
    return True


def encode(key: PublicKey, content: Mapping[str, object]) -> bytes:
    """Write a bundle; compact, sorted, with a newline: the same each time."""
    document: dict[str, object] = {
        "mediaType": MEDIA_TYPE,
        "verificationMaterial": {"publicKey": {"hint": key_hint(key)}, "tlogEntries": []},
        **content,
    }
    return compact_json(document) + b"\n"


def compact_json(document: Mapping[str, object]) -> bytes:
    """Write JSON in one line with sorted keys, names as they are in UTF-8."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8")


def decode(data: bytes, label: str, content: str, limit: int) -> tuple[dict[str, Json], str | None]:
    """Read a bundle that holds `content`; give that, and the hint or None for a certificate.

    Raises Unusable.
    """
    if len(data) > limit:
        raise refused(label, f"is larger than {limit:,} bytes")
    bundle = fields(
        parse_object(data, label),
        label,
        {"mediaType", "verificationMaterial", content},
    )
    if bundle["mediaType"] != MEDIA_TYPE:
        raise refused(label, "is not a sigstore bundle of version 0.3")
    material = fields(
        bundle["verificationMaterial"],
        label,
        optional={*_MATERIAL, "tlogEntries", "timestampVerificationData"},
    )
    if len(_MATERIAL & material.keys()) != 1:
        raise refused(label, "does not say by what one key it was signed")
    if "publicKey" not in material:
        return as_object(bundle[content], label), None
    hint = fields(material["publicKey"], label, optional={"hint"}).get("hint", "")
    return as_object(bundle[content], label), as_text(hint, label)


def refused(label: str, fault: str) -> Unusable:
    """Make the error for a bundle that breaks a rule."""
    return Unusable(f"{label} {fault}.", remedy="Get the file from its source again.")


def as_object(value: Json, label: str) -> dict[str, Json]:
    """Take an object. Raises Unusable."""
    if not isinstance(value, dict):
        raise refused(label, "holds something else where an object must be")
    return value


def as_text(value: Json, label: str) -> str:
    """Take a string. Raises Unusable."""
    if not isinstance(value, str):
        raise refused(label, "holds something else where a text must be")
    return value


def as_list(value: Json, label: str) -> list[Json]:
    """Take a list. Raises Unusable."""
    if not isinstance(value, list):
        raise refused(label, "holds something else where a list must be")
    return value


def as_bytes(value: Json, label: str) -> bytes:
    """Take bytes, as JSON holds them: in canonical base64. Raises Unusable."""
    return decode_base64(as_text(value, label), label)


def fields(
    value: Json,
    label: str,
    required: Collection[str] = (),
    optional: Collection[str] = (),
) -> dict[str, Json]:
    """Take an object that has these keys and no others. Raises Unusable."""
    found = as_object(value, label)
    for name in required:
        if name not in found:
            raise refused(label, f"lacks {name}")
    if not found.keys() <= {*required, *optional}:
        raise refused(label, "holds fields that do not belong there")
    return found
