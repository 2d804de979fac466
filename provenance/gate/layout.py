"""Which tensors a file holds, and where: safetensors and NumPy's format, by strict readers."""

from __future__ import annotations

import ast
import math
import re
from dataclasses import dataclass
from typing import Any, cast

from ...errors import HeaderError
from ...recover.formats.safetensors import DTYPE_BITS, looks_like, read_header
from ...recover.readable import Readable, read_exactly

_NPY_MAGIC = b"\x93NUMPY"
_NPY_LIMIT = 1 << 16
_NPY_DTYPE = re.compile(r"[<>|][biufcmMSUV](\d{1,6})(\[[^\[\]]{1,20}\])?")
_NPY_KEYS = {"descr", "fortran_order", "shape"}
_MOST_DIMENSIONS = 64


@dataclass(frozen=True, slots=True)
class Span:
    """A tensor's bytes in a file. `bits` is the size of one element; `dtype` is the format's."""

    name: str | None
    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int
    bits: int


class NotLaidOut(Exception):
    """A file's layout cannot be used; the message, fit to print, begins with "its"."""


def layout(source: Readable) -> tuple[Span, ...] | None:
    """Give the tensors of a file; None when it is neither safetensors nor NumPy's format.

    Raises NotLaidOut for one that begins so but breaks the format, Unusable, NotPermitted.
    """
    beginning = source.read(0, 64)
    if beginning.startswith(_NPY_MAGIC):
        return (_npy(source),)
    if not looks_like(beginning, source.size):
        return None
    try:
        header = read_header(source.read, source.size)
    except HeaderError as error:
        raise NotLaidOut(f"its header cannot be used: {error.message}") from None
    if header.file_size != source.size:
        raise NotLaidOut(f"its {source.size:,} bytes are not the {header.file_size:,} it declares")
    start = header.data_start
    return tuple(
        Span(t.name, t.dtype, t.shape, start + t.begin, t.nbytes, DTYPE_BITS[t.dtype])
        for t in header.tensors
    )


def _npy(source: Readable) -> Span:
    """Read the header that numpy/lib/format.py describes, versions 1 to 3; nothing is unpickled."""
    first = source.read(0, 12)
    if len(first) < 10 or first[6] not in (1, 2, 3) or first[7]:
        raise NotLaidOut("its NumPy header has no version that is known")
    width = 2 if first[6] == 1 else 4
    length = int.from_bytes(first[8 : 8 + width], "little")
    start = 8 + width + length
    if length > _NPY_LIMIT or start > source.size:
        raise NotLaidOut("its NumPy header is cut short or too long")
    said = _npy_header(read_exactly(source, 8 + width, length), first[6] == 3)
    descr, shape = said["descr"], said["shape"]
    found = _NPY_DTYPE.fullmatch(descr) if isinstance(descr, str) else None
    if found is None or not isinstance(said["fortran_order"], bool):
        raise NotLaidOut("its NumPy dtype is not a plain one")
    sizes = _npy_shape(shape)
    elements = math.prod(sizes)
    width = int(found[1]) * (4 if found[0][1] == "U" else 1)
    if elements * width != source.size - start:
        raise NotLaidOut("its NumPy data has not the size that its shape needs")
    order = " (column-major)" if said["fortran_order"] and len(sizes) > 1 else ""
    return Span(None, f"{found[0]}{order}", sizes, start, source.size - start, width * 8)


def _npy_header(text: bytes, unicode: bool) -> dict[str, Any]:
    try:
        said: object = ast.literal_eval(text.decode("utf-8" if unicode else "latin-1"))
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        raise NotLaidOut("its NumPy header cannot be parsed") from None
    if not isinstance(said, dict) or set(cast("dict[object, object]", said)) != _NPY_KEYS:
        raise NotLaidOut("its NumPy header has not the three keys that it must have")
    return cast("dict[str, Any]", said)


def _npy_shape(shape: object) -> tuple[int, ...]:
    sizes = cast("tuple[object, ...]", shape) if isinstance(shape, tuple) else (None,)
    good = [s for s in sizes if isinstance(s, int) and not isinstance(s, bool) and 0 <= s < 1 << 62]
    if len(good) != len(sizes) or len(sizes) > _MOST_DIMENSIONS:
        raise NotLaidOut("its NumPy shape is none")
    return tuple(good)
