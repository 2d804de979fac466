"""The length of the header that the library would write, without writing it."""

from __future__ import annotations

import json
from collections.abc import Iterable

from ..formats.safetensors import DTYPE_BITS
from .header_candidate import LENGTH_BYTES, PEFT_METADATA

_METADATA = len(json.dumps({"__metadata__": PEFT_METADATA}, separators=(",", ":"))) - 2
# `"":{"dtype":"","shape":[],"data_offsets":[,]},` without what varies; each comma counts once.
_ENTRY = len('"":{"dtype":"","shape":[],"data_offsets":[,]},')


def file_size(tensors: Iterable[tuple[str, tuple[int, ...]]], dtype: str) -> int:
    """Give the size in bytes of a file of these (name, shape) of one dtype, in their order.

    The order is that of the names, as the library sorts them within one dtype. Metadata is PEFT's.
    """
    width = DTYPE_BITS[dtype] // 8
    length = len("{}") + _METADATA
    position = 0
    for name, shape in tensors:
        end = width
        for dimension in shape:
            end *= dimension
        end += position
        length += entry_length(name, dtype, shape) + len(str(position)) + len(str(end))
        position = end
    length += -length % LENGTH_BYTES
    return LENGTH_BYTES + length + position


def entry_length(name: str, dtype: str, shape: tuple[int, ...]) -> int:
    """Give the length of one entry but for the digits of its offsets, its comma included."""
    sizes = len(",".join(map(str, shape)))
    return _ENTRY + len(quoted(name)) - 2 + len(dtype) + sizes


def quoted(name: str) -> bytes:
    """Give a name as it stands in the header."""
    text = json.dumps(name, ensure_ascii=False)
    return text.encode("utf-8", "surrogatepass")
