"""What a manifest says of the tensors of one safetensors file, as far as it keeps the schema."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass

from ...errors import HeaderError
from ...records.strict_json import Json
from ...recover.formats.safetensors import Header, parse_header

_SHA256 = re.compile(r"[0-9a-f]{64}")
_CRC32 = re.compile(r"[0-9a-f]{8}")


@dataclass(frozen=True)
class KnownTensors:
    """The listed file's header, and SHA-256 and CRC-32 by tensor; CRC-32 where it is given."""

    header: Header
    sha256: Mapping[str, str]
    crc32: Mapping[str, int]


def known_tensors(entry: Mapping[str, Json]) -> KnownTensors | None:
    """Read a manifest's entry; None where it has no header and digests of every tensor."""
    raw, listed = entry.get("header"), entry.get("tensors")
    if not isinstance(raw, str) or not isinstance(listed, list):
        return None
    try:
        header = parse_header(base64.b64decode(raw, validate=True))
    except (HeaderError, binascii.Error, ValueError):
        return None
    sha256: dict[str, str] = {}
    crc32: dict[str, int] = {}
    for tensor in listed:
        if isinstance(tensor, dict) and isinstance(name := tensor.get("name"), str):
            digest, check = tensor.get("sha256"), tensor.get("crc32")
            if isinstance(digest, str) and _SHA256.fullmatch(digest):
                sha256[name] = digest
            if isinstance(check, str) and _CRC32.fullmatch(check):
                crc32[name] = int(check, 16)
    if sha256.keys() != {tensor.name for tensor in header.tensors}:
        return None
    return KnownTensors(header, sha256, crc32)
