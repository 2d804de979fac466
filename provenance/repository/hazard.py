"""One thing that may change evidence bytes, and the line that prevents it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Hazard:
    """What may happen to `files` files of `folder`, by whom, and the line for which file.

    `line` is None where no line of ours can prevent it; `writable` tells whether `--fix` can.
    """

    folder: str
    file: str
    files: int
    effect: str
    line: str | None
    writable: bool = True

    def to_json(self) -> dict[str, object]:
        """Give one entry of `hazards`."""
        return dict(vars(self))
