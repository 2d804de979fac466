"""Mend a header that says by itself what is wrong with it; no byte of data moves.

Four faults that are seen in public files: NUL bytes instead of spaces after the JSON, a byte order
mark or NUL bytes before it, a length that was lost while the JSON was not, and the broken JSON
that the library writes for metadata without tensors (`{},"__metadata__":{...}}`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ...errors import HeaderError
from ..formats.safetensors import MAX_HEADER, Header, parse_header
from .header_candidate import LENGTH_BYTES

_MARK = b"\xef\xbb\xbf"
_METADATA_ONLY = b'{},"__metadata__":'
_FIRST_WINDOW = 1 << 16
_DEEPEST = 8  # metadata and entries lie two deep; what safetensors ignores hardly deeper
# A string, an opening or a closing bracket; what lies between is passed over. A string that does
# not end takes in all the rest, or a hostile file would make each quote a new search.
_TOKENS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|[{}]', re.DOTALL)
_SPACES = re.compile(rb"[ \t\n\r]*")


class Mended(NamedTuple):
    """A whole header, what was done to it, and what proves that this is right."""

    header: Header
    what: str
    how_known: str


def mend_head(read: Callable[[int, int], bytes], size: int) -> Mended | None:
    """Mend the head of a file of `size` bytes from itself; None where that cannot be done.

    What it gives keeps every rule of the format and ends exactly where the file does, or, where
    only padding was mended, declares what the file declared.
    """
    first = read(0, LENGTH_BYTES)
    length = int.from_bytes(first, "little")
    if len(first) == LENGTH_BYTES and 2 <= length <= min(MAX_HEADER, size - LENGTH_BYTES):
        for text, what, how in _texts(read(LENGTH_BYTES, length)):
            header = _parsed(text.ljust(length))
            if header is not None:
                return Mended(header, what, how)
    return _length_found(read, size)


def _texts(text: bytes) -> Iterator[tuple[bytes, str, str]]:
    """Give each text that this one may have been meant to be; none is longer."""
    inner = text.strip(b"\0 \t\n\r")
    bare = inner.removeprefix(_MARK).strip(b"\0 \t\n\r")
    yield inner, "NUL bytes around the JSON became spaces", "a header's padding is spaces"
    yield bare, "a byte order mark was taken out", "a header begins with `{`"
    if bare.startswith(_METADATA_ONLY):
        yield (
            b"{" + bare[len(b"{},") :],
            "the broken JSON of a file of metadata alone was put right",
            "safetensors before and including 0.8 writes it so",
        )


def _parsed(text: bytes) -> Header | None:
    try:
        return parse_header(len(text).to_bytes(LENGTH_BYTES, "little") + text)
    except HeaderError:
        return None


def _length_found(read: Callable[[int, int], bytes], size: int) -> Mended | None:
    """Find the length that JSON at offset 8 must have had, so that the data fills the file."""
    text = _json_text(read, size)
    if text is None:
        return None
    bare = _parsed(text)
    if bare is None:
        return None
    length = size - LENGTH_BYTES - (bare.file_size - bare.data_start)
    rest = read(LENGTH_BYTES + len(text), length - len(text)) if length > len(text) else b""
    if length != len(text) + len(rest) or _SPACES.fullmatch(rest) is None:
        return None
    header = _parsed(text + rest)
    what = "the 8 bytes of length were written anew"
    if header is None:
        return None
    return Mended(header, what, "the header's own offsets and the size of the file")


def _json_text(read: Callable[[int, int], bytes], size: int) -> bytes | None:
    """Give the first JSON object from offset 8 on; None where none begins or ends there."""
    limit = min(MAX_HEADER, size - LENGTH_BYTES)
    if read(LENGTH_BYTES, 1) != b"{":
        return None
    window = _FIRST_WINDOW
    while True:
        text = read(LENGTH_BYTES, min(window, limit))
        depth = 0
        for token in _TOKENS.finditer(text):
            depth += {b"{": 1, b"}": -1}.get(token[0], 0)
            if depth == 0:
                return text[: token.end()]
            if depth > _DEEPEST:
                return None
        if window >= limit:
            return None
        window *= 8
