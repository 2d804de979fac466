"""Where evidence lies in a repository."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

_SUMS = ("SHA256SUMS", "SHA256SUMS.txt", "sha256sums.txt", "manifest-sha256.txt")
_CUSTODY = ("custody.jsonl",)


@dataclass(frozen=True)
class Place:
    """A folder whose files' bytes are recorded, and the files that git knows of in it.

    The root of a repository is never one: most of what is there is no evidence.
    """

    folder: str
    files: tuple[str, ...]

    @property
    def pattern(self) -> str:
        """Give the pattern of gitattributes(5) that fits all of its files."""
        pattern = f"/{_literal(self.folder)}/**"
        return f'"{pattern.translate(_C_ESCAPES)}"' if set(pattern) & _TO_QUOTE else pattern


def places(tracked: Iterable[str]) -> tuple[Place, ...]:
    """Find the outermost folders that hold a checksum file or a custody chain, with their files."""
    names = sorted(tracked)
    roots = {
        name.rpartition("/")[0] for name in names if name.rpartition("/")[2] in _SUMS + _CUSTODY
    }
    outermost = [folder for folder in sorted(roots) if not _inside_another(folder, roots)]
    return tuple(
        Place(folder, tuple(n for n in names if n.startswith(f"{folder}/")))
        for folder in outermost
        if folder
    )


def _inside_another(folder: str, roots: set[str]) -> bool:
    parts = folder.split("/")
    return any("/".join(parts[:depth]) in roots - {""} for depth in range(1, len(parts)))


_TO_QUOTE = set(' \t"\n\r')
_C_ESCAPES = str.maketrans({'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"})


def _literal(folder: str) -> str:
    """Escape what a pattern of gitignore(5) would read as something else."""
    return "".join(f"\\{char}" if char in "\\*?[" else char for char in folder)
