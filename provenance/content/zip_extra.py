"""Extra fields of zip headers: which ones are harmless, and which could hide something.

Numbers: PKWARE's APPNOTE 6.3.10, section 4.6, and Info-ZIP's extrafld.txt.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

ZIP64 = 0x0001
UNICODE_PATH = 0x7075
# What they hold is about times and owners; the count is the most bytes that they ever have.
_HARMLESS = {
    0x000A: 32,  # NTFS times
    0x5455: 13,  # Unix times
    0x5855: 12,  # Unix times and owner, first form
    0x7855: 4,  # Unix owner, second form
    0x7875: 24,  # Unix owner, third form
}


@dataclass(frozen=True)
class Extra:
    """What the extra fields of one header hold; `unicode_name` is None without such a field.

    `fault` says what could hide in them, or is None; `fields` counts harmless ones.
    """

    fields: int
    fault: str | None
    unicode_name: bytes | None = None


_NOTHING = Extra(0, None)


def read_extra(extra: bytes, raw_name: bytes) -> Extra:
    """Look at the extra fields of a header whose name is `raw_name`."""
    if not extra:
        return _NOTHING
    at = 0
    seen: set[int] = set()
    unicode_name: bytes | None = None
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        data = extra[at + 4 : at + 4 + length]
        at += 4 + length
        if len(data) < length:
            return Extra(len(seen), "an extra field that is cut off")
        if kind in seen:
            return Extra(len(seen), "an extra field that is there twice")
        seen.add(kind)
        if kind == UNICODE_PATH:
            unicode_name = _unicode_name(data, raw_name)
            if unicode_name is None:
                return Extra(len(seen), "a second name that belongs to another one")
        elif kind != ZIP64 and length > _HARMLESS.get(kind, -1):
            return Extra(len(seen), f"an extra field {kind:#06x} of {length:,} bytes")
    if at != len(extra):
        return Extra(len(seen), "bytes after its extra fields")
    return Extra(len(seen - {ZIP64}), None, unicode_name)


def _unicode_name(data: bytes, raw_name: bytes) -> bytes | None:
    if len(data) < 5 or data[0] != 1:
        return None
    (crc,) = struct.unpack_from("<L", data, 1)
    return data[5:] if crc == zlib.crc32(raw_name) else None
