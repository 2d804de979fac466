"""The text of a checksum list, or why the bytes are none."""

from __future__ import annotations

from ...errors import Unusable
from ..appearance import LOOK, Appearance, appearance

MAX_SUMS = 128 << 20
_BOM = b"\xef\xbb\xbf"
_WIDE = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")
_AGAIN = "Get the list from its source again."
_REMEDIES = {
    Appearance.LFS_POINTER: "Run `git lfs pull`.",
    Appearance.CLEARSIGNED: "Lines outside the signed block would pass unsigned: "
    "get the list with a detached signature.",
    Appearance.GZIP: "Decompress it.",
}


def text_of(data: bytes, label: str) -> tuple[str, bool]:
    """Decode a list; bytes of names that are no UTF-8 become surrogate escapes.

    Gives the text without a byte order mark, and whether there was one. Raises Unusable.
    """
    if len(data) > MAX_SUMS:
        raise Unusable(
            f"{label} is larger than {MAX_SUMS >> 20} MiB.", remedy="Split the list by folders."
        )
    if not data:
        raise Unusable(f"{label} is empty: it lists nothing.", remedy=_AGAIN)
    if data.startswith(_WIDE) or _is_wide(data):
        raise Unusable(
            f"{label} has the wrong encoding: it is UTF-16 or UTF-32, not UTF-8.",
            remedy="Write it with sha256sum, or as UTF-8 without a byte order mark.",
        )
    found = appearance(data[:LOOK])
    if found is not None:
        raise Unusable(
            f"{label} is no checksum list: it is {found.value}.",
            remedy=_REMEDIES.get(found, _AGAIN),
        )
    if b"\0" in data:
        raise Unusable(
            f"{label} is no checksum list: it holds NUL bytes, so it is binary or was written "
            "with --zero.",
            remedy=_AGAIN,
        )
    marked = data.startswith(_BOM)
    text = data[len(_BOM) if marked else 0 :].decode("utf-8", "surrogateescape")
    return text, marked


def _is_wide(data: bytes) -> bool:
    head = data[:64]
    zeros = {at % 2 for at, byte in enumerate(head) if not byte}
    return head.count(0) * 3 >= len(head) and len(zeros) == 1
