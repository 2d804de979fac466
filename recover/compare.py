"""Compare two checkpoints: the same bytes, the same tensors, the same values, a cast, or neither.

Everything is read in blocks, so that memory stays bounded whatever the size, and values are looked
at only where bytes differ.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NoReturn

from ..errors import HeaderError, NothingFound, Unusable
from ..records.custody_lines import FILE as CUSTODY
from ..records.names import decoded, printable
from .comparison.result import Comparison, FirstDifference, Result, combine
from .comparison.tensors import Checkpoint, compare_tensors
from .formats.safetensors import looks_like, read_header
from .readable import FileReadable, Readable, read_exactly, unreadable

__all__ = ["Comparison", "FileReadable", "Readable", "Result", "compare", "compare_folders"]

# glibc gives larger blocks back to the kernel after each use, and the page faults of the next one
# take longer than to read and compare it.
_BLOCK = 64 << 10
_PREFIX = 64
_RECORDS = ("recovery.json", CUSTODY)
_MAP_SUFFIX = ".rescue.map"


def compare(a: Readable, b: Readable) -> Comparison:
    """Compare two files, or what was recovered of them.

    Unless all bytes are the same, safetensors are compared tensor by tensor, and anything else
    ends at the first byte that differs. Raises Unusable if a source becomes shorter meanwhile, and
    what the sources raise.
    """
    shared = _shared_prefix(a, b)
    if shared == a.size == b.size:
        return _identical(a)
    left, right = _checkpoint(a), _checkpoint(b)
    if isinstance(left, Checkpoint) and isinstance(right, Checkpoint):
        return compare_tensors(left, right, shared)
    reasons = [side for side in (left, right) if isinstance(side, str)]
    return Comparison(
        Result.DIFFERENT,
        note=" ".join(["Compared byte by byte.", *dict.fromkeys(reasons)]),
        first_difference=FirstDifference(None, None, shared),
    )


def compare_folders(a: Path, b: Path) -> Comparison:
    """Compare the regular files of two folders by their relative paths; the worst decides.

    Links to files are followed. reefkit's own records are left out, and what is neither file nor
    folder is counted in the note. Raises NotPermitted or Unusable for what cannot be read, Unusable
    for a link to a folder, and NothingFound when neither folder has a file.
    """
    in_a, others_in_a = _list(a)
    in_b, others_in_b = _list(b)
    paths = sorted(in_a.keys() | in_b.keys(), key=os.fsencode)
    if not paths:
        raise NothingFound(
            f"Neither {printable(os.fsencode(a))} nor {printable(os.fsencode(b))} has files.",
            remedy="Name the folders that hold the checkpoints.",
        )
    skipped = others_in_a + others_in_b
    return combine(
        [(decoded(path), _compare_paths(in_a.get(path), in_b.get(path))) for path in paths],
        only_in_a=[decoded(path) for path in paths if path not in in_b],
        only_in_b=[decoded(path) for path in paths if path not in in_a],
        note=f"{skipped:,} entries that are not regular files were left out." if skipped else None,
    )


def _compare_paths(a: Path | None, b: Path | None) -> Comparison:
    if a is None or b is None:
        side = "B" if a is None else "A"
        return Comparison(
            Result.DIFFERENT,
            note=f"Only {side} has this file.",
            first_difference=FirstDifference(None, None, None),
        )
    with FileReadable(a) as left, FileReadable(b) as right:
        return compare(left, right)


def _list(folder: Path) -> tuple[dict[str, Path], int]:
    """Map relative paths to files, and count what is neither file nor folder."""
    files: dict[str, Path] = {}
    others = 0
    for parent, folders, names in os.walk(folder, onerror=_raise):
        for name in folders:
            if os.path.islink(link := os.path.join(parent, name)):
                raise Unusable(
                    f"{printable(os.fsencode(link))} is a link to a folder, which is not followed.",
                    remedy="Compare the folders that it leads to by themselves.",
                )
        for name in names:
            path = Path(parent, name)
            if name in _RECORDS or name.endswith(_MAP_SUFFIX):
                continue
            if _is_regular(path):
                files[str(path.relative_to(folder))] = path
            else:
                others += 1
    return files, others


def _is_regular(path: Path) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError as error:
        if os.path.islink(path):
            return False
        raise unreadable(printable(os.fsencode(path)), error) from error


def _raise(error: OSError) -> NoReturn:
    raise unreadable(printable(os.fsencode(error.filename)), error) from error


def _identical(source: Readable) -> Comparison:
    checkpoint = _checkpoint(source)
    if isinstance(checkpoint, str):
        return Comparison(Result.BYTE_IDENTICAL)
    return Comparison(
        Result.BYTE_IDENTICAL,
        note=checkpoint.cut(),
        equal_tensors=len(checkpoint.header.tensors),
    )


def _checkpoint(source: Readable) -> Checkpoint | str:
    """Read the header, or say why it cannot be used. The data may end early, or go on."""
    if not looks_like(source.read(0, _PREFIX), source.size):
        return f"{source.label} is not a safetensors file."
    try:
        return Checkpoint(source, read_header(source.read, source.size))
    except HeaderError as error:
        return f"The header of {source.label} cannot be used: {error.message}"


def _shared_prefix(a: Readable, b: Readable) -> int:
    """Count the bytes at the beginning that are the same."""
    end = min(a.size, b.size)
    for offset in range(0, end, _BLOCK):
        length = min(_BLOCK, end - offset)
        left, right = read_exactly(a, offset, length), read_exactly(b, offset, length)
        if left != right:
            return offset + _first_mismatch(left, right)
    return end


def _first_mismatch(a: bytes, b: bytes) -> int:
    """Find the first byte that differs between equally long bytes that are not the same."""
    low, high = 0, len(a)
    while high - low > 1:
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low
