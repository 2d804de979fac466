"""The sigstore bundle, version 0.3, signed with a plain key: the frame of two of our signatures.

A bundle holds exactly one signature; a certificate, a log entry or a timestamp in it is nothing
that a verifier without a network could judge: what rides along like that is named.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Bundle:
    """What a bundle holds: its signature, and the hint at the key, or None for a certificate.

    `unchecked` are sentences on what rides along, and says nothing before it is verified.
    """

    content: dict[str, Json]
    hint: str | None
    unchecked: tuple[str, ...]


def decode(data: bytes, label: str, content: str, limit: int) -> Bundle:
    """Read a bundle that holds `content`: JSON, at most one newline, nothing else. Raises Unusable.

    Of the blanks that JSON allows around an object none are accepted: no signature covers them.
    """
    if len(data) > limit:
        raise refused(label, f"is larger than {limit:,} bytes")
    bundle = fields(
        parse_object(data, label),
        label,
        {"mediaType", "verificationMaterial", content},
    )
    if not (data.startswith(b"{") and data.removesuffix(b"\n").endswith(b"}")):
        raise refused(label, "has blanks before or after its JSON, more than one newline")
    if bundle["mediaType"] != MEDIA_TYPE:
        raise refused(label, "is not a sigstore bundle of version 0.3")
    material = fields(
        bundle["verificationMaterial"],
        label,
        optional={*_MATERIAL, "tlogEntries", "timestampVerificationData"},
    )
    if len(_MATERIAL & material.keys()) != 1:
        raise refused(label, "does not say by what one key it was signed")
    hint: str | None = None
    if "publicKey" in material:
        given = fields(material["publicKey"], label, optional={"hint"}).get("hint", "")
        hint = as_text(given, label)
    return Bundle(as_object(bundle[content], label), hint, _unchecked(material, label))


def _unchecked(material: Mapping[str, Json], label: str) -> tuple[str, ...]:
    """Name what a key alone cannot verify: entries of logs, and timestamps."""
    entries = as_list(material.get("tlogEntries", []), label)
    stamps = fields(
        material.get("timestampVerificationData", {}), label, optional={"rfc3161Timestamps"}
    )
    found = (
        (len(entries), "of a transparency log", "entry", "entries"),
        (
            len(as_list(stamps.get("rfc3161Timestamps", []), label)),
            "of an authority",
            "timestamp",
            "timestamps",
        ),
    )
    return tuple(
        f"It carries {count:,} {one if count == 1 else more} {whose}, which nothing here verifies: "
        "do not rely on what is said there."
        for count, whose, one, more in found
        if count
    )


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
