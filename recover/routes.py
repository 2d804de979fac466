"""The ways to the bytes, and which of them a person allows."""

from __future__ import annotations

from enum import Enum


class Route(str, Enum):
    """A way to the bytes, best first."""

    MAP_FILES = "map_files"
    FD = "fd"
    MEMORY = "memory"


class Wanted(str, Enum):
    """Which routes may be used."""

    AUTO = "auto"
    FILE = "file"
    MEMORY = "memory"
