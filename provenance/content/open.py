"""Open whatever is to be looked at: a folder, or a zip."""

from __future__ import annotations

import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from ...errors import NotPermitted, Unusable
from ...records.names import printable
from .folder import FolderContent
from .members import Content
from .zip_read import ZipContent


@contextmanager
def open_content(target: Path) -> Generator[Content]:
    """Open a folder or a zip, and close it after. Raises Unusable for all else, NotPermitted."""
    if stat.S_ISDIR(_mode(target)):
        yield FolderContent(target)
        return
    with ZipContent(target) as content:
        yield content


def _mode(target: Path) -> int:
    label = printable(os.fspath(target))
    try:
        return os.stat(target).st_mode
    except PermissionError as error:
        raise NotPermitted(
            f"{label} cannot be looked at: {error.strerror}.",
            remedy="Run this as a user who may read it.",
        ) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise Unusable(
            f"{label} cannot be looked at: {reason}.", remedy="Name a folder or a zip that exists."
        ) from None
