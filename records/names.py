"""Names that come from outside (files, tensors, processes) and must not act on a terminal.

The kernel hands out names as bytes; nothing says they are UTF-8, and they may hold newlines,
escape sequences or bidirectional controls that make a table show something else than is there.
"""

from __future__ import annotations

import unicodedata

_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def decoded(name: bytes | str) -> str:
    r"""Decode a name as UTF-8; bytes that are not become `\xNN`. For JSON, not for terminals."""
    return (_encoded(name) if isinstance(name, str) else name).decode("utf-8", "backslashreplace")


def _encoded(name: str) -> bytes:
    try:
        return name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # half a pair of UTF-16, as Windows allows in names
        return name.encode("utf-8", "surrogatepass")


def printable(name: bytes | str) -> str:
    r"""Escape every control, format, bidi and unassigned character, and the backslash itself.

    `\n` becomes `\x0a`, U+202E becomes `\u202e`; a byte that is not UTF-8 becomes `\xNN`. Two
    different names never print alike, but for U+0080 to U+00FF controls against raw bytes.
    """
    if isinstance(name, bytes):
        name = name.decode("utf-8", "surrogateescape")
    if name.isascii() and name.isprintable() and "\\" not in name:
        return name
    return "".join(_escaped(char) for char in name)


def _escaped(char: str) -> str:
    if char == "\\":
        return "\\\\"
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # surrogateescape: a raw byte
        return f"\\x{code - 0xDC00:02x}"
    if unicodedata.category(char) not in _UNSAFE:
        return char
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
