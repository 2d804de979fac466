"""The verifier's own files: where they are looked for, and how they are read."""

from __future__ import annotations

import os
from pathlib import Path

from ...errors import Unusable
from ...records.names import printable

VARIABLE = "REEFKIT_SIGNERS"


def shown(path: Path) -> str:
    """Give a path as it may be printed."""
    return printable(os.fsencode(path))


def read_own_file(path: Path, limit: int) -> bytes:
    """Read a file that the verifier named. Raises Unusable when it cannot be, or is larger."""
    try:
        with open(path, "rb") as file:
            data = file.read(limit + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise Unusable(
            f"{shown(path)} cannot be read: {reason or 'no file can be called so'}.",
            remedy="Check its name and its permissions.",
        ) from None
    if len(data) > limit:
        raise Unusable(
            f"{shown(path)} has more than the {limit:,} bytes that are read.",
            remedy="Check that it is the file that was meant.",
        )
    return data


def default_signers() -> Path | None:
    """Give where the user's own allowed_signers file belongs, or None where there is no home.

    `$XDG_CONFIG_HOME/reefkit`, else `~/.config/reefkit`; on Windows `%APPDATA%\\reefkit`.
    """
    variable = "APPDATA" if os.name == "nt" else "XDG_CONFIG_HOME"
    folder = Path(os.environ.get(variable, ""))
    if not folder.is_absolute():
        try:
            folder = Path.home() / ("AppData/Roaming" if os.name == "nt" else ".config")
        except RuntimeError:
            return None
    return folder / "reefkit" / "allowed_signers"


def named_signers() -> Path | None:
    """Give the file that the environment names, if it does."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else None
