"""Say which tensors and elements a range of bytes holds, by a header that need not be readable."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ..formats.safetensors import DTYPE_BITS, Header, Tensor
from ..ranges import Range, merge


@dataclass(frozen=True)
class Place:
    """Bytes of the file within one tensor; `tensor` is None within the header.

    Elements that the bytes touch only in part are counted.
    """

    tensor: str | None
    first_element: int | None
    elements: int | None
    offset: int
    bytes: int

    def to_json(self) -> dict[str, object]:
        """Give one entry of `damaged`."""
        return dict(vars(self))


class TensorMap:
    """Finds the tensors at an offset of the file in logarithmic time."""

    def __init__(self, header: Header) -> None:
        """Take the layout from a header."""
        self.header = header
        self._tensors = tuple(tensor for tensor in header.tensors if tensor.nbytes)
        self._ends = [tensor.end for tensor in self._tensors]

    def tensors_in(self, piece: Range) -> Iterator[tuple[Tensor, Range]]:
        """Give each tensor that a range of the file touches, and the part that lies in it."""
        start = self.header.data_start
        for number in range(bisect_right(self._ends, piece.start - start), len(self._tensors)):
            tensor = self._tensors[number]
            span = self.header.span(tensor)
            if span.start >= piece.stop:
                return
            yield tensor, Range(max(span.start, piece.start), min(span.stop, piece.stop))

    def places(self, ranges: Iterable[Range]) -> Iterator[Place]:
        """Give every part of the ranges by tensor, in the order of the file."""
        start = self.header.data_start
        for piece in merge(ranges):
            if piece.start < start:
                yield Place(None, None, None, piece.start, min(piece.stop, start) - piece.start)
            for tensor, part in self.tensors_in(piece):
                yield self._place(tensor, part)

    def _place(self, tensor: Tensor, part: Range) -> Place:
        bits = DTYPE_BITS[tensor.dtype]
        begin = self.header.span(tensor).start
        first = (part.start - begin) * 8 // bits
        last = -(-(part.stop - begin) * 8 // bits)
        return Place(tensor.name, first, last - first, part.start, part.size)
