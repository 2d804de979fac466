"""What a dump needs of the place where bytes go: a folder, or a stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ..ranges import Range
from ..sources import FileSource
from .rescue_map import RescueMap

PRIVATE_MODE = 0o600


@dataclass(frozen=True)
class Attributes:
    """What the saved file takes over from the original. `mtime_ns` is None where unknown."""

    size: int
    mode: int = PRIVATE_MODE
    mtime_ns: int | None = None


class Output(Protocol):
    """Where one file goes. Every method raises OSError when the destination cannot be written."""

    @property
    def earlier(self) -> RescueMap | None:
        """What an interrupted run had read of this very file."""
        ...

    @property
    def path(self) -> bytes:
        """The place, relative to the folder or as named in the stream."""
        ...

    @property
    def in_order(self) -> bool:
        """Tell whether blocks must come in order; else several threads may write at once."""
        ...

    def begin(
        self, attributes: Attributes, *, sparse: tuple[Range, ...] | None, clone_of: int | None
    ) -> bool:
        """Make ready; tell whether the file already shares the blocks of `clone_of`."""
        ...

    def write(self, offset: int, block: memoryview) -> None:
        """Write a block that starts on a page boundary."""
        ...

    def read_back(self) -> FileSource | None:
        """Give what was written so far, for reading; the caller closes it."""
        ...

    def checkpoint(self, rescue_map: RescueMap) -> None:
        """Make durable what was written, and then the map that says so."""
        ...

    def finish(self, *, complete: bool) -> None:
        """End the file. Only a complete one gets the original's name."""
        ...


class Outputs(Protocol):
    """Gives each file its output."""

    def open(self, path: bytes, facts: dict[str, str]) -> Output:
        """Open the place for the file that was at `path`; `facts` tell it from others."""
        ...

    @property
    def in_order(self) -> bool:
        """Tell whether one file must be complete before the next begins."""
        ...
