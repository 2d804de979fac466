"""What a file's safetensors header says of it, for the record of a recovery."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

from ...errors import HeaderError
from ..formats.safetensors import Coverage, Header, coverage, looks_like, read_header
from ..ranges import Range, merge
from ..sources import Source, read_available

_SNIFFED = 64


@dataclass(frozen=True)
class HeaderFacts:
    """The header, or the rule that it breaks; neither for a file of another format."""

    header: Header | None = None
    problem: str | None = None

    def coverage(self, size: int) -> Coverage | None:
        """Hold the header's end against the number of bytes there are."""
        return coverage(self.header, size) if self.header else None

    def missing(self, size: int) -> tuple[Range, ...]:
        """Give the range that the header declares and a file of `size` bytes does not have."""
        return merge([Range(size, self.header.file_size)]) if self.header else ()

    def to_json(self, size: int) -> dict[str, object] | None:
        """Give the `header` of one recovered file; None for a file of another format."""
        if self.header is None:
            return None if self.problem is None else {"problem": self.problem}
        return {
            "sha256": sha256(self.header.raw).hexdigest(),
            "tensors": len(self.header.tensors),
            "dtypes": sorted({tensor.dtype for tensor in self.header.tensors}),
            "coverage": coverage(self.header, size).to_json(),
        }


def read_header_facts(source: Source, size: int | None) -> HeaderFacts:
    """Read the header anew: the file may have changed since it was found."""
    if not looks_like(read_available(source, 0, _SNIFFED), size):
        return HeaderFacts()
    try:
        return HeaderFacts(read_header(lambda at, n: read_available(source, at, n), size))
    except HeaderError as error:
        return HeaderFacts(problem=error.message)
