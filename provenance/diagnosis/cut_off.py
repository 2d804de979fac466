"""Files that are too short, too long, or whose end was never written."""

from __future__ import annotations

import errno
import os
from typing import BinaryIO

from ...errors import HeaderError
from .subject import Subject, pieces_of

_LEAST_ZEROS = 4096
_AT_ONCE = 1 << 20
_SAMPLE, _SAMPLES = 64 << 10, 64


def wrong_size(subject: Subject) -> str | None:
    """Explain a size that the manifest, or the header of a safetensors file, contradicts."""
    size, source = subject.listed_size, "as the manifest says"
    if size is None:
        size, source = _declared(subject), "as its header says"
    here = subject.member.size
    if size is None or size == here:
        return None
    if here < size:
        return (
            f"It is cut off: {here:,} bytes are there, and {size:,} should be, {source}. "
            "Copy it again."
        )
    if subject.is_listed(subject.pieces(0, size)):
        return f"The listed {size:,} bytes are there, and {here - size:,} were appended."
    return f"It has {here:,} bytes, and {size:,} should be there, {source}."


def _declared(subject: Subject) -> int | None:
    from ...recover.formats.safetensors import looks_like, read_header

    if not subject.line.name.endswith(".safetensors"):
        return None
    if not looks_like(subject.head[:64], None):
        return None
    try:
        return read_header(subject.read, subject.member.size).file_size
    except HeaderError:
        return None


def zero_tail(subject: Subject) -> str | None:
    """Explain zeros where data should be: a file system that lost what was not yet written."""
    size = subject.member.size
    with subject.open() as file:
        zeros, is_all = _zeros_at_end(subject, file, size)
        if zeros < _LEAST_ZEROS and zeros < size:
            return None
        if zeros == size or (not is_all and _has_no_data(file)):
            return f"It consists of {size:,} zeros: its content was never written. Copy it again."
        if not is_all and _is_zeros_here_and_there(file, size - zeros):
            return (
                f"It consists of {size:,} zeros, as far as was looked: its content was never "
                "written. Copy it again."
            )
    last = "Its last" if is_all else "At least its last"
    return (
        f"{last} {zeros:,} bytes are zeros, as where a copy ended early or a "
        "disk was full: copy it again."
    )


def _zeros_at_end(subject: Subject, file: BinaryIO, size: int) -> tuple[int, bool]:
    """Count zeros from the end until time is out, and say whether they are all that are there."""
    nothing = bytes(_AT_ONCE)
    zeros = 0
    while zeros < size:
        if zeros and subject.out_of_time:
            return zeros, False
        length = min(_AT_ONCE, size - zeros)
        piece = _read(file, size - zeros - length, length)
        if piece != nothing[:length]:
            return zeros + len(piece) - len(piece.rstrip(b"\0")), True
        zeros += length
    return zeros, True


def _has_no_data(file: BinaryIO) -> bool:
    """Ask the file system whether the file is one hole (lseek(2), SEEK_DATA: ENXIO)."""
    seek_data: int | None = getattr(os, "SEEK_DATA", None)
    if seek_data is None:
        return False
    try:
        os.lseek(file.fileno(), 0, seek_data)
    except (OSError, ValueError) as error:  # ValueError: a member of a zip has no descriptor
        return getattr(error, "errno", None) == errno.ENXIO
    return False


def _is_zeros_here_and_there(file: BinaryIO, size: int) -> bool:
    """Look at places that are spread over what lies before the end; the first byte is in one."""
    length = min(_SAMPLE, size)
    step = max(1, (size - length) // _SAMPLES)
    places = range(0, size - length + 1, step)
    return all(_read(file, at, length) == bytes(length) for at in places)


def _read(file: BinaryIO, offset: int, length: int) -> bytes:
    return b"".join(pieces_of(file, offset, length))
