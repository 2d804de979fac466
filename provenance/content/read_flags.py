"""How files are opened for reading: as bytes, and not for child processes, on every system."""

from __future__ import annotations

import os

READ_FLAGS: int = (
    os.O_RDONLY
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
    | getattr(os, "O_NOINHERIT", 0)
)
