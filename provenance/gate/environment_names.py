"""Name Python environments after the folders that their reports lie in."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")


def environment_names(folders: Sequence[Path]) -> list[str]:
    """Give each folder's own name, or where that does not tell them apart, its number from 1."""
    names = [folder.absolute().name.removesuffix(".zip") for folder in folders]
    return [
        name if _NAME.fullmatch(name) and names.count(name) == 1 else str(number)
        for number, name in enumerate(names, 1)
    ]
