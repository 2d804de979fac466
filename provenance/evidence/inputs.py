"""What a run reads: each file by its digest and size, taken before the run uses it."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ...errors import Unusable
from ...records.names import decoded, printable
from .environment import without_home
from .redacted_argv import redacted_text

_BLOCK = 1 << 20


@dataclass(frozen=True)
class InputFile:
    """A file that a run reads; `path` is as it was named, without a home folder or secrets."""

    path: str
    sha256: str
    size: int

    def to_json(self) -> dict[str, object]:
        """Give the JSON form."""
        return dict(vars(self))


def hash_inputs(paths: Iterable[Path]) -> tuple[InputFile, ...]:
    """Hash files; links are followed. Raises Unusable for what is no file or cannot be read."""
    return tuple(_hashed(path) for path in paths)


def _hashed(path: Path) -> InputFile:
    label = printable(os.fsencode(path))
    digest, size = hashlib.sha256(), 0
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise Unusable(f"The input {label} is no file.", remedy="Name files, one by one.")
        with open(path, "rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
                size += len(block)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "no such path"
        raise Unusable(
            f"The input {label} cannot be read: {why.lower()}.",
            remedy="Check that it is there and may be read.",
        ) from None
    name = without_home(redacted_text(decoded(os.fsencode(path))))
    return InputFile(name, digest.hexdigest(), size)
