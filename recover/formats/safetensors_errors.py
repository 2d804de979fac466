"""Why a safetensors header is refused: one class a cause, the exact numbers as attributes.

`offset` is always a byte offset in the file. Attributes hold names as they are; sentences show them
escaped and cut.
"""

from __future__ import annotations

import re

from ...errors import HeaderError
from ...records.names import printable

_LONGEST_SHOWN = 160
_NOT_THE_FILE = "Look for the file's content elsewhere: these bytes are not a safetensors file."
_DAMAGED = "Recover the file from another source, or write the header anew."
_APPEARANCES = (
    (re.compile(rb"version "), "a git-lfs pointer"),
    (re.compile(rb"\s*<(?:!doc|html|head|\?xml)", re.IGNORECASE), "an HTML or XML page"),
    (re.compile(rb"PK(?:\x03\x04|\x05\x06|\x07\x08)"), "a zip archive, as torch.save writes"),
    (re.compile(rb"\x80[\x02-\x05]"), "a pickle"),
    (re.compile(rb"GGUF"), "a GGUF model"),
    (re.compile(rb"\x7fELF"), "an ELF program or library"),
    (re.compile(rb"\x93NUMPY"), "a NumPy array"),
    (re.compile(rb"\s*[{\[]"), "JSON without the 8 bytes of length before it"),
    (re.compile(rb"\0+\Z"), "zeros"),
    (re.compile(rb"[\t\n\r -~]+\Z"), "text"),
)


def shown(name: str) -> str:
    """Make a name from outside fit for a sentence: escaped, and cut when absurdly long."""
    if len(name) <= _LONGEST_SHOWN:
        return printable(name)
    cut = len(name) - _LONGEST_SHOWN
    return f"{printable(name[:_LONGEST_SHOWN])}… ({cut:,} more characters)"


def appearance(first: bytes) -> str:
    """Say what the first 8 bytes of a file are, in words."""
    return next((words for magic, words in _APPEARANCES if magic.match(first[:8])), "nothing known")


def _bytes(count: int) -> str:
    return "1 byte" if count == 1 else f"{count:,} bytes"


class HeaderTooSmall(HeaderError):
    """There is no room for a header: under 8 bytes of file, or a declared length under 2."""

    def __init__(self, present: int, length: int | None = None, looks_like: str = "") -> None:
        self.present = present
        self.length = length
        self.looks_like = looks_like
        super().__init__(
            f"Only {_bytes(present)} are there; a safetensors file begins with 8 bytes of length."
            if length is None
            else f"The file declares a header of {_bytes(length)}, and the shortest has 2; "
            f"its first 8 bytes look like {looks_like}.",
            remedy=_NOT_THE_FILE,
        )


class HeaderTooLarge(HeaderError):
    """The declared length exceeds the 100,000,000 bytes that the library reads and writes."""

    def __init__(self, length: int, limit: int, looks_like: str) -> None:
        self.length = length
        self.limit = limit
        self.looks_like = looks_like
        super().__init__(
            f"The file declares a header of {_bytes(length)}, more than the {limit:,} allowed; "
            f"its first 8 bytes look like {looks_like}.",
            remedy=_NOT_THE_FILE,
        )


class HeaderCutShort(HeaderError):
    """The file ends inside the header; the library calls it InvalidHeaderLength."""

    def __init__(self, length: int, present: int) -> None:
        self.length = length
        self.present = present
        self.missing = 8 + length - present
        super().__init__(
            f"The file declares a header of {_bytes(length)} and ends after {_bytes(present)}, "
            f"{_bytes(self.missing)} too early.",
            remedy=_DAMAGED,
        )


class HeaderNotUtf8(HeaderError):
    """The JSON is not UTF-8."""

    def __init__(self, offset: int, reason: str) -> None:
        self.offset = offset
        self.reason = reason
        super().__init__(
            f"The header is not UTF-8 at offset {offset:,}: {reason}.", remedy=_NOT_THE_FILE
        )


class HeaderNotJson(HeaderError):
    """The header is not one JSON object by the strict rules of RFC 8259."""

    def __init__(self, offset: int, reason: str, remedy: str = _NOT_THE_FILE) -> None:
        self.offset = offset
        self.reason = reason
        super().__init__(
            f"The header is not valid JSON at offset {offset:,}: {reason}.", remedy=remedy
        )


class DuplicateName(HeaderError):
    """Two members of the header carry the same name; the library would keep the last one."""

    def __init__(self, name: str, offset: int | None = None) -> None:
        self.name = name
        self.offset = offset
        where = "" if offset is None else f", again at offset {offset:,}"
        super().__init__(f"`{shown(name)}` is there twice{where}.", remedy=_DAMAGED)


class BadMetadata(HeaderError):
    """`__metadata__` is not an object of strings."""

    def __init__(self, offset: int, reason: str, key: str | None = None) -> None:
        self.offset = offset
        self.reason = reason
        self.key = key
        where = "`__metadata__`" if key is None else f"`{shown(key)}` in `__metadata__`"
        super().__init__(f"{where} {reason} at offset {offset:,}.", remedy=_DAMAGED)


class BadEntry(HeaderError):
    """A tensor's entry lacks a field, or a field has the wrong form."""

    def __init__(self, tensor: str, field: str | None, reason: str) -> None:
        self.tensor = tensor
        self.field = field
        self.reason = reason
        what = "the entry" if field is None else f"`{field}`"
        super().__init__(f"Tensor `{shown(tensor)}`: {what} {reason}.", remedy=_DAMAGED)


class UnknownDtype(HeaderError):
    """A dtype that safetensors 0.8 does not know; they are case-sensitive."""

    def __init__(self, tensor: str, dtype: str) -> None:
        self.tensor = tensor
        self.dtype = dtype
        super().__init__(
            f"Tensor `{shown(tensor)}` has the unknown dtype `{shown(dtype)}`.", remedy=_DAMAGED
        )


class _SizeError(HeaderError):
    def __init__(
        self, tensor: str, dtype: str, shape: tuple[int, ...], problem: str, remedy: str = _DAMAGED
    ) -> None:
        self.tensor = tensor
        self.dtype = dtype
        self.shape = shape
        sizes = ", ".join(map(str, shape[:8])) + (", …" if len(shape) > 8 else "")
        super().__init__(f"Tensor `{shown(tensor)}`: {dtype} [{sizes}] {problem}.", remedy=remedy)


class SizeOverflow(_SizeError):
    """The number of elements or of bits exceeds 2**64 - 1."""

    def __init__(self, tensor: str, dtype: str, shape: tuple[int, ...]) -> None:
        super().__init__(tensor, dtype, shape, "has a size in bits of 2**64 or more")


class MisalignedTensor(_SizeError):
    """A tensor of 4-bit or 6-bit elements that does not fill whole bytes."""

    def __init__(self, tensor: str, dtype: str, shape: tuple[int, ...], bits: int) -> None:
        self.bits = bits
        super().__init__(tensor, dtype, shape, f"has {bits:,} bits, which are not whole bytes")


class SizeMismatch(_SizeError):
    """The shape and dtype need another number of bytes than the offsets give."""

    def __init__(
        self, tensor: str, dtype: str, shape: tuple[int, ...], needed: int, given: int
    ) -> None:
        self.needed = needed
        self.given = given
        problem = f"needs {_bytes(needed)}, and the offsets give {given:,}"
        super().__init__(tensor, dtype, shape, problem)


class OffsetReversed(HeaderError):
    """A tensor ends before it begins."""

    def __init__(self, tensor: str, offset: int, end: int) -> None:
        self.tensor = tensor
        self.offset = offset
        self.end = end
        super().__init__(
            f"Tensor `{shown(tensor)}` begins at offset {offset:,} and ends before it, at {end:,}.",
            remedy=_DAMAGED,
        )


class OffsetGap(HeaderError):
    """Bytes before a tensor that belong to none; `previous` is None for the first tensor."""

    def __init__(self, tensor: str, previous: str | None, offset: int, size: int) -> None:
        self.tensor = tensor
        self.previous = previous
        self.offset = offset
        self.size = size
        after = "the header" if previous is None else f"tensor `{shown(previous)}`"
        super().__init__(
            f"{_bytes(size)} at offset {offset:,}, between {after} and tensor "
            f"`{shown(tensor)}`, belong to no tensor.",
            remedy=_DAMAGED,
        )


class OffsetOverlap(HeaderError):
    """Two tensors share bytes; `size` counts them from `offset` on."""

    def __init__(self, tensor: str, previous: str, offset: int, size: int) -> None:
        self.tensor = tensor
        self.previous = previous
        self.offset = offset
        self.size = size
        super().__init__(
            f"Tensor `{shown(tensor)}` begins at offset {offset:,}, inside tensor "
            f"`{shown(previous)}`, and shares {_bytes(size)} with it.",
            remedy=_DAMAGED,
        )


class BufferMismatch(HeaderError):
    """The tensors end elsewhere than the data; the library calls it MetadataIncompleteBuffer."""

    def __init__(self, declared: int, actual: int) -> None:
        self.declared = declared
        self.actual = actual
        self.short_by = max(0, declared - actual)
        self.trailing = max(0, actual - declared)
        what = f"{self.short_by:,} missing" if self.short_by else f"{self.trailing:,} too many"
        super().__init__(
            f"The tensors take {_bytes(declared)} and the data has {actual:,}: {what}.",
            remedy="Recover the file from another source; the tensors before the cut are whole.",
        )
