"""A file on its way into a package, which must still have the bytes that it was recorded with."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import BinaryIO, cast


class HashedSource(io.RawIOBase):
    """Reads a file once, in order, and raises at its end when its SHA-256 is another one."""

    def __init__(
        self,
        opened: AbstractContextManager[BinaryIO],
        sha256: str,
        changed: Callable[[], Exception],
        progress: Callable[[int], object] | None,
    ) -> None:
        super().__init__()
        self._stack = ExitStack()
        self._file = self._stack.enter_context(opened)
        self._digest = hashlib.sha256()
        self._sha256 = sha256
        self._changed = changed
        self._progress = progress

    def readable(self) -> bool:
        """Tell that it can be read."""
        return True

    def readinto(self, buffer: object, /) -> int:
        """Read on. Raises what `changed` gives at the end of a file with another digest."""
        view = memoryview(cast("bytearray", buffer))
        block = self._file.read(len(view))
        view[: len(block)] = block
        self._digest.update(block)
        if self._progress is not None:
            self._progress(len(block))
        if not block and self._digest.hexdigest() != self._sha256:
            raise self._changed()
        return len(block)

    def close(self) -> None:
        """Close the file."""
        self._stack.close()
        super().close()
