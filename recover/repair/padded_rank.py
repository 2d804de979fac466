"""Tell the zero rows of an A whose LoRA was padded to a larger rank from rows that were lost.

Serving engines and merges pad every LoRA to one rank: the rows of A that were added are zero, and
so are the same columns of B. No loss of storage leaves zeros in every row of B at those columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..formats.safetensors import DTYPE_BITS
from ..ranges import Range
from ..validation.content.facts import Purpose, Role, TensorFacts
from .copies import Copy

_SLACK = 8  # bytes beside a run that are zero by chance
_BLOCK = 1 << 20


class PaddedRanks:
    """Judges runs of zeros in a copy, of which the facts are known."""

    def __init__(self, copy: Copy, facts: Sequence[TensorFacts], roles: Mapping[str, Role]) -> None:
        """Pair each A with its B."""
        self._copy = copy
        halves = {(roles[one.name].purpose, roles[one.name].module): one for one in facts}
        self._pairs = [
            (one, halves[Purpose.LORA_B, module])
            for (purpose, module), one in halves.items()
            if purpose is Purpose.LORA_A and (Purpose.LORA_B, module) in halves
        ]

    def holds(self, run: Range) -> bool:
        """Tell whether a run is the padding of one A: whole rows, whose columns of B are zero."""
        for a, b in self._pairs:
            inner = Range(max(run.start, a.span.start), min(run.stop, a.span.stop))
            if inner.size + _SLACK >= run.size:
                return self._is_padding(inner, a, b)
        return False

    def _is_padding(self, run: Range, a: TensorFacts, b: TensorFacts) -> bool:
        shapes = a.tensor.shape, b.tensor.shape
        if [len(shape) for shape in shapes] != [2, 2] or b.all_zero or not b.whole:
            return False
        rank, bits = shapes[0][0], DTYPE_BITS[a.tensor.dtype]
        row = a.span.size // rank
        first = -(-(run.start - a.span.start) // row)
        last = (run.stop - a.span.start) // row
        rest = run.size - (last - first) * row
        if shapes[1][1] != rank or bits % 8 or first >= last or rest > 2 * _SLACK:
            return False
        return self._columns_are_zero(b, first, last)

    def _columns_are_zero(self, b: TensorFacts, first: int, last: int) -> bool:
        import numpy as np

        outputs, rank = b.tensor.shape
        row = b.span.size // outputs
        width = row // rank
        for start in range(0, outputs, max(1, _BLOCK // row)):
            count = min(max(1, _BLOCK // row), outputs - start)
            data = self._copy.read(b.span.start + start * row, count * row)
            table = np.frombuffer(data, np.uint8).reshape(count, row)
            if table[:, first * width : last * width].any():
                return False
        return True
