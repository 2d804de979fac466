"""Python's garbage collector, kept from walking what is made in great numbers and all kept."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Generator


@contextlib.contextmanager
def no_collection() -> Generator[None]:
    """Collect nothing within the block, where tens of thousands of facts are made and kept."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
