"""Read a safetensors header strictly, and write one as the library does; no torch, no numpy.

A file is 8 bytes of little-endian length N, N bytes of JSON, and the data. What is accepted is what
safetensors 0.8 accepts (tensor.rs, and serde_json as it uses it), except for duplicate names, which
it merges in silence, and single entries of more than a million values, which exhaust memory.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from types import MappingProxyType
from typing import NamedTuple

from ..ranges import Range, merge
from .safetensors_errors import (
    BufferMismatch,
    DuplicateName,
    HeaderCutShort,
    HeaderNotUtf8,
    HeaderTooLarge,
    HeaderTooSmall,
    MisalignedTensor,
    OffsetGap,
    OffsetOverlap,
    OffsetReversed,
    SizeMismatch,
    SizeOverflow,
    UnknownDtype,
    appearance,
)
from .safetensors_json import JSON_START, USIZE, parse

MAX_HEADER = 100_000_000
_ALIGNMENT_ORDER = (
    (8, "BOOL"),
    (4, "F4"),
    (6, "F6_E2M3 F6_E3M2"),
    (8, "U8 I8 F8_E5M2 F8_E4M3 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ"),
    (16, "I16 U16 F16 BF16"),
    (32, "I32 U32 F32"),
    (64, "C64 F64 I64 U64"),
)
DTYPE_BITS: Mapping[str, int] = MappingProxyType(
    {name: bits for bits, names in _ALIGNMENT_ORDER for name in names.split()}
)
_RANK = {dtype: rank for rank, dtype in enumerate(DTYPE_BITS)}
_BEGINNING = re.compile(rb'[ \t\n\r]*\{[ \t\n\r]*["}]')


@dataclass(frozen=True, slots=True)
class Tensor:
    """One entry of a header; `begin` and `end` count from the first byte of data."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def nbytes(self) -> int:
        """The number of bytes in the file."""
        return self.end - self.begin


@dataclass(frozen=True)
class Header:
    """A header that keeps every rule; `raw` holds the 8 bytes of length and the JSON."""

    raw: bytes = field(repr=False)
    tensors: tuple[Tensor, ...]
    metadata: Mapping[str, str] | None = field(hash=False)

    @property
    def data_start(self) -> int:
        """The offset in the file of the first byte of data."""
        return len(self.raw)

    @property
    def file_size(self) -> int:
        """The size in bytes that the file must have."""
        return self.data_start + (self.tensors[-1].end if self.tensors else 0)

    def span(self, tensor: Tensor) -> Range:
        """Give the bytes of the file that a tensor takes."""
        return Range(self.data_start + tensor.begin, self.data_start + tensor.end)

    def touched(self, ranges: Iterable[Range]) -> tuple[str, ...]:
        """Name the tensors that any range of the file overlaps, in offset order.

        A tensor of no bytes is never touched. Takes O(n + m log(n + m)).
        """
        names: list[str] = []
        following = 0
        for piece in merge(ranges):
            start, stop = piece.start - self.data_start, piece.stop - self.data_start
            following = max(following, bisect_right(self._ends, start))
            while following < len(self._filled) and self._filled[following].begin < stop:
                names.append(self._filled[following].name)
                following += 1
        return tuple(names)

    @cached_property
    def _filled(self) -> tuple[Tensor, ...]:
        return tuple(tensor for tensor in self.tensors if tensor.nbytes)

    @cached_property
    def _ends(self) -> tuple[int, ...]:
        return tuple(tensor.end for tensor in self._filled)


class CutTensor(NamedTuple):
    """A tensor of which only the first `present` bytes lie inside the file."""

    name: str
    present: int
    nbytes: int


@dataclass(frozen=True)
class Coverage:
    """How far a file of `actual` bytes reaches into what its header declares."""

    declared: int
    actual: int
    short_by: int
    trailing: int
    whole: tuple[str, ...]
    cut: tuple[CutTensor, ...]
    absent: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        """Give sizes in bytes, the number of whole tensors, and those that are not whole."""
        return {
            "declared": self.declared,
            "actual": self.actual,
            "short_by": self.short_by,
            "trailing": self.trailing,
            "whole": len(self.whole),
            "cut": [cut._asdict() for cut in self.cut],
            "absent": list(self.absent),
        }


def coverage(header: Header, size: int) -> Coverage:
    """Tell which tensors a file of `size` bytes holds; one of no bytes is always whole."""
    reach = size - header.data_start
    whole = tuple(t.name for t in header.tensors if t.end <= reach or not t.nbytes)
    cut = (t for t in header.tensors if t.begin < reach < t.end)
    absent = (t.name for t in header.tensors if t.nbytes and t.begin >= max(reach, 0))
    return Coverage(
        declared=header.file_size,
        actual=size,
        short_by=max(0, header.file_size - size),
        trailing=max(0, size - header.file_size),
        whole=whole,
        cut=tuple(CutTensor(t.name, reach - t.begin, t.nbytes) for t in cut),
        absent=tuple(absent),
    )


def looks_like(prefix: bytes, size: int | None) -> bool:
    """Tell from up to 64 bytes whether a file begins as safetensors; it may be cut short."""
    length = int.from_bytes(prefix[:JSON_START], "little")
    if not 2 <= length <= MAX_HEADER or (size is not None and size < JSON_START + 2):
        return False
    found = _BEGINNING.match(prefix[JSON_START:64])
    return found is not None and found.end() <= length


def header_length(first: bytes) -> int:
    """Read the length N of the JSON from the first 8 bytes or more of a file.

    Raises HeaderTooSmall and HeaderTooLarge.
    """
    if len(first) < JSON_START:
        raise HeaderTooSmall(len(first))
    length = int.from_bytes(first[:JSON_START], "little")
    if length < 2:
        raise HeaderTooSmall(len(first), length, appearance(first))
    if length > MAX_HEADER:
        raise HeaderTooLarge(length, MAX_HEADER, appearance(first))
    return length


def read_header(read: Callable[[int, int], bytes], size: int | None) -> Header:
    """Read the header through `read(offset, n)`, which may return short, and nothing at the end.

    The data may be cut short, which `coverage` judges; a header that is raises HeaderCutShort, and
    other faults their own HeaderError.
    """
    length = header_length(_read(read, JSON_START))
    if size is not None and size < JSON_START + length:
        raise HeaderCutShort(length, size)
    return parse_header(_read(read, JSON_START + length))


def _read(read: Callable[[int, int], bytes], count: int) -> bytes:
    parts: list[bytes] = []
    have = 0
    while have < count and (part := read(have, count - have)):
        parts.append(part)
        have += len(part)
    return b"".join(parts)


def parse_header(raw: bytes, *, buffer_size: int | None = None) -> Header:
    """Parse the first 8 + N bytes of `raw` and check every rule; what follows them is not read.

    `buffer_size`, the bytes of data in the file, must then be what the tensors take. Raises the
    HeaderError subclass of the first fault found.
    """
    length = header_length(raw)
    if len(raw) < JSON_START + length:
        raise HeaderCutShort(length, len(raw))
    raw = raw[: JSON_START + length]
    try:
        text = str(memoryview(raw)[JSON_START:], "utf-8")
    except UnicodeDecodeError as error:
        raise HeaderNotUtf8(JSON_START + error.start, error.reason) from None
    entries, metadata = parse(text)
    entries.sort(key=itemgetter(3, 4))
    header = Header(raw, tuple(Tensor(*entry) for entry in entries), metadata)
    _check_offsets(header)
    if buffer_size is not None and header.file_size - header.data_start != buffer_size:
        raise BufferMismatch(header.file_size - header.data_start, buffer_size)
    return header


def _check_offsets(header: Header) -> None:
    """Demand that the tensors follow one another without gap or overlap, each of its size."""
    start = header.data_start
    previous: str | None = None
    position = 0
    for tensor in header.tensors:
        begin, end = tensor.begin, tensor.end
        if end < begin:
            raise OffsetReversed(tensor.name, start + begin, start + end)
        if begin > position:
            raise OffsetGap(tensor.name, previous, start + position, begin - position)
        if previous is not None and begin < position:
            shared = min(end, position) - begin
            raise OffsetOverlap(tensor.name, previous, start + begin, shared)
        needed = _size(tensor.name, tensor.dtype, tensor.shape)
        if needed != end - begin:
            raise SizeMismatch(tensor.name, tensor.dtype, tensor.shape, needed, end - begin)
        previous, position = tensor.name, end


def _size(name: str, dtype: str, shape: tuple[int, ...]) -> int:
    """Count the bytes, with the overflow that 64-bit arithmetic has after every factor."""
    if dtype not in DTYPE_BITS:
        raise UnknownDtype(name, dtype)
    elements = 1
    for dimension in shape:
        elements *= dimension
        if elements >= USIZE:
            raise SizeOverflow(name, dtype, shape)
    bits = elements * DTYPE_BITS[dtype]
    if bits >= USIZE:
        raise SizeOverflow(name, dtype, shape)
    if bits % 8:
        raise MisalignedTensor(name, dtype, shape, bits)
    return bits // 8


def write_header(
    tensors: Iterable[tuple[str, str, tuple[int, ...]]],
    metadata: Mapping[str, str] | None = None,
) -> bytes:
    """Write a header for (name, dtype, shape) byte for byte as the library does.

    The order, which the data must follow, is by alignment of the dtype, largest first, then by
    name. The library shuffles metadata entries, which here keep their order, and writes broken JSON
    for empty metadata without tensors. Raises the HeaderError that reading the result would.
    """
    ordered = sorted(tensors, key=lambda tensor: (-_RANK.get(tensor[1], 0), tensor[0]))
    members: dict[str, object] = {} if metadata is None else {"__metadata__": dict(metadata)}
    position = 0
    for name, dtype, shape in ordered:
        if name in members or name == "__metadata__":
            raise DuplicateName(name)
        end = position + _size(name, dtype, shape)
        members[name] = {"dtype": dtype, "shape": shape, "data_offsets": (position, end)}
        position = end
    text = json.dumps(members, ensure_ascii=False, separators=(",", ":"))
    packed = text.encode("utf-8", "surrogatepass")
    packed += b" " * (-len(packed) % JSON_START)
    raw = len(packed).to_bytes(JSON_START, "little") + packed
    parse_header(raw)
    return raw
