"""Find NaNs and infinities in a range of a copy, by the bits of whole elements."""

from __future__ import annotations

from ..formats.safetensors import DTYPE_BITS, Tensor
from ..ranges import Range
from .places import TensorMap

_INFINITE = frozenset({"F64", "F32", "C64", "F16", "BF16", "F8_E5M2"})


def holds_not_finite(data: bytes, window: Range, tensors: TensorMap) -> bool:
    """Tell whether `data`, the bytes of `window`, hold a float that is no finite number.

    Elements that the window cuts are left out.
    """
    for tensor, part in tensors.tensors_in(window):
        whole = _whole_elements(tensor, part, tensors.header.span(tensor).start)
        piece = data[whole.start - window.start : whole.stop - window.start]
        if whole.size > 0 and _is_not_finite(piece, tensor.dtype):
            return True
    return False


def _is_not_finite(data: bytes, dtype: str) -> bool:
    import numpy as np

    from ..comparison.values import LAYOUTS, is_nan

    layout = LAYOUTS.get(dtype)
    if layout is None:
        return False
    bits = np.frombuffer(data, f"<u{layout.bits // 8}")
    if bool(is_nan(bits, layout).any()):
        return True
    return dtype in _INFINITE and bool(((bits & layout.magnitude) == layout.largest).any())


def _whole_elements(tensor: Tensor, part: Range, begin: int) -> Range:
    width = max(1, DTYPE_BITS[tensor.dtype] // 8)
    start = part.start + (begin - part.start) % width
    return Range(start, part.stop - (part.stop - begin) % width)
