"""What bytes look like that are not what was expected: pages of errors, pointers, containers."""

from __future__ import annotations

import re
from enum import Enum

LOOK = 4096

_MARKUP = re.compile(rb"(?i)<(?:!doctype html|html|head|body|title)\b")


class Appearance(Enum):
    """What the first bytes show; the value completes "it is …"."""

    LFS_POINTER = "a git LFS pointer"
    HTML = "an HTML page"
    XML = "an XML document"
    JSON = "a JSON document"
    CLEARSIGNED = "a clearsigned OpenPGP message"
    SIGNATURE = "a signature"
    GZIP = "gzip-compressed"
    ZIP = "a zip archive"
    PDF = "a PDF document"


_FIRST_BYTES = (
    (b"version https://git-lfs.github.com/spec/", Appearance.LFS_POINTER),
    (b"version https://hawser.github.com/spec/", Appearance.LFS_POINTER),
    (b"-----BEGIN PGP SIGNED MESSAGE-----", Appearance.CLEARSIGNED),
    (b"-----BEGIN PGP SIGNATURE-----", Appearance.SIGNATURE),
    (b"-----BEGIN SSH SIGNATURE-----", Appearance.SIGNATURE),
    (b"untrusted comment:", Appearance.SIGNATURE),
    (b"\x1f\x8b\x08", Appearance.GZIP),
    (b"PK\x03\x04", Appearance.ZIP),
    (b"PK\x05\x06", Appearance.ZIP),
    (b"%PDF-", Appearance.PDF),
)


def appearance(head: bytes) -> Appearance | None:
    """Tell from the first bytes, up to LOOK of them, what a file looks like."""
    for first, found in _FIRST_BYTES:
        if head.startswith(first):
            return found
    text = head[:LOOK].removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"<"):
        if _MARKUP.search(text):
            return Appearance.HTML
        return Appearance.XML if re.match(rb"<(?:\?xml|[A-Za-z!])", text) else None
    if re.match(rb'\{\s*(?:"|\})|\[\s*[\[{"\]]', text):
        return Appearance.JSON
    return None
