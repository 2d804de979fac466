"""Judge zeros at the very ends of a file's data, which may be all that a lost page leaves there.

Headers and tensors have any length, so that the first and the last page of a file mostly hold less
than 4 KiB of data. Runs that short are judged only there.
"""

from __future__ import annotations

from collections.abc import Callable

from ....errors import ReefError
from ...formats.safetensors import DTYPE_BITS
from ...ranges import Range
from .facts import Purpose, Role, TensorFacts

PAGE = 4096
SLACK = 8  # bytes: values beside a run begin or end with zero bytes now and then
LEAST = 16  # bytes of a page's rest; shorter ones may be zero by chance
_ANYWHERE = 64  # bytes at an end of the data, wherever they begin
_AROUND = 1 << 20
Read = Callable[[int, int], bytes]


def is_paged(run: Range, data: Range) -> bool:
    """Tell whether a run takes what a page of the file has at an end of the data."""
    edges = [run.start + SLACK] * (run.stop >= data.stop) + [run.stop] * (run.start <= data.start)
    return any(edge % PAGE <= SLACK for edge in edges)


def may_be_lost(one: TensorFacts, part: Range, role: Role, *, paged: bool, read: Read) -> bool:
    """Tell zeros at an end of the data that are not what this tensor holds elsewhere too.

    Eight-bit floats and integers have zeros for values now and then, and a single row of lora_B
    stays zero where an output is dead, so they count only where a page begins or ends.
    """
    bits = DTYPE_BITS[one.tensor.dtype]
    if one.all_zero or part.size < (LEAST if paged else _ANYWHERE):
        return False
    fine = bits < 16 or one.max_abs is None
    if fine and (not paged or part.size < _ANYWHERE or role.purpose is not Purpose.WEIGHT):
        return False
    if not paged:
        shape = one.tensor.shape
        row = shape[-1] * bits // 8 if len(shape) > 1 else one.span.size
        plain = role.purpose is Purpose.WEIGHT and len(shape) < 2
        if role.purpose is Purpose.OTHER or plain:
            return False
        if role.purpose is Purpose.LORA_B and part.size <= row + SLACK:
            return False
    return not _is_usual(one, part, read)


def _is_usual(one: TensorFacts, part: Range, read: Read) -> bool:
    """Tell whether the values beside have zeros half as long, as sparse or tiny weights do."""
    start, stop = max(one.span.start, part.start - _AROUND), min(one.span.stop, part.stop + _AROUND)
    zeros = bytes(max(LEAST, part.size // 2))
    sides = (Range(start, part.start), Range(part.stop, stop))
    try:
        return any(
            side.size >= len(zeros) and zeros in read(side.start, side.size) for side in sides
        )
    except ReefError:  # what cannot be read is damage of its own
        return False
