"""Files that are too short, too long, or whose end was never written."""

from __future__ import annotations

from ...errors import HeaderError
from .subject import Subject

_LEAST_ZEROS = 4096
_AT_ONCE = 1 << 20
_MOST_ZEROS = 1 << 30


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
    zeros = _zeros_at_end(subject)
    if zeros < _LEAST_ZEROS and zeros < size:
        return None
    if zeros == size:
        return f"It consists of {size:,} zeros: its content was never written. Copy it again."
    return (
        f"Its last {zeros:,} bytes are zeros, as where a copy ended early or a disk was full: "
        "copy it again."
    )


def _zeros_at_end(subject: Subject) -> int:
    end = subject.member.size
    zeros = 0
    while end and zeros < _MOST_ZEROS and not subject.out_of_time:
        start = max(0, end - _AT_ONCE)
        piece = subject.read(start, end - start)
        kept = len(piece.rstrip(b"\0"))
        zeros += len(piece) - kept
        if kept or not piece:
            break
        end = start
    return zeros
