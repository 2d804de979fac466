"""Find NaNs and infinities in a copy, by the bits of whole elements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ..formats.safetensors import DTYPE_BITS, Tensor
from ..ranges import Range, merge
from ..validation.content.facts import TensorFacts
from .copies import Copy
from .places import TensorMap

if TYPE_CHECKING:
    from ..comparison.values import Mask

_LONG = 128  # bytes in a row: no training makes so many elements among others that are finite
_INFINITE = frozenset({"F64", "F32", "C64", "F16", "BF16", "F8_E5M2"})
_BLOCK = 1 << 20


def not_finite_bytes(data: bytes, window: Range, tensors: TensorMap) -> Mask:
    """Mark the bytes of `data`, those of `window`, whose element is a NaN or infinite.

    Elements that the window cuts are left out.
    """
    import numpy as np

    marked = np.zeros(len(data), np.bool_)
    for tensor, part in tensors.tensors_in(window):
        whole = _whole_elements(tensor, part, tensors.header.span(tensor).start)
        if whole.size > 0:
            here = slice(whole.start - window.start, whole.stop - window.start)
            found = _not_finite(data[here], tensor.dtype)
            if found is not None:
                marked[here] = np.repeat(found, whole.size // len(found))
    return marked


def not_finite_runs(copy: Copy, suspects: Iterable[TensorFacts]) -> tuple[Range, ...]:
    """Give every run of 128 bytes or more that are not finite, also across tensors' borders.

    Reads those tensors again, in blocks.
    """
    runs = merge(run for one in suspects for run in _runs_in(copy, one))
    return tuple(run for run in runs if run.size >= _LONG)


def _runs_in(copy: Copy, one: TensorFacts) -> Iterator[Range]:
    width = DTYPE_BITS[one.tensor.dtype] // 8
    stop = min(one.span.stop, copy.size)
    for start in range(one.span.start, stop, _BLOCK):
        data = copy.read(start, min(_BLOCK, stop - start) // width * width)
        found = _not_finite(data, one.tensor.dtype)
        if found is not None and len(found):
            step = len(data) // len(found)
            for run in runs_of(found):
                yield Range(start + run.start * step, start + run.stop * step)


def runs_of(mask: Mask, most: int | None = None) -> Iterator[Range]:
    """Give where each run of set places begins and ends, up to `most` runs."""
    import numpy as np

    edges = np.flatnonzero(np.diff(mask, prepend=False, append=False))
    if most is not None:
        edges = edges[: 2 * most]
    return (Range(a, b) for a, b in edges.reshape(-1, 2).tolist())


def _not_finite(data: bytes, dtype: str) -> Mask | None:
    """Tell of each float if it is finite (of a complex number, each half); None for integers."""
    import numpy as np

    from ..comparison.values import LAYOUTS, is_nan

    layout = LAYOUTS.get(dtype)
    if layout is None:
        return None
    bits = np.frombuffer(data, f"<u{layout.bits // 8}")
    found = is_nan(bits, layout)
    if dtype in _INFINITE:
        found |= (bits & layout.magnitude) == layout.largest
    return found


def _whole_elements(tensor: Tensor, part: Range, begin: int) -> Range:
    width = max(1, DTYPE_BITS[tensor.dtype] // 8)
    start = part.start + (begin - part.start) % width
    return Range(start, part.stop - (part.stop - begin) % width)
