"""A file that was compressed on its way."""

from __future__ import annotations

import zlib

from ..appearance import Appearance, appearance
from .subject import Subject

_GZIP = 16 + zlib.MAX_WBITS
_AT_ONCE = 1 << 20


def compressed(subject: Subject) -> str | None:
    """Explain gzip around the listed file, or a `.gz` that is none any more."""
    if appearance(subject.head) is Appearance.GZIP:
        if _decompresses_to_listed(subject):
            return "It is the listed file, compressed with gzip: decompress it with `gunzip`."
    elif subject.line.name.endswith((".gz", ".tgz")):
        return "It is not gzip-compressed, as its name says: a download may have unpacked it."
    return None


def _decompresses_to_listed(subject: Subject) -> bool:
    state = subject.hash()
    unpack = zlib.decompressobj(_GZIP)
    try:
        for piece in subject.pieces(0, subject.member.size):
            rest = piece
            while rest:
                if subject.out_of_time:
                    return False
                if unpack.eof:
                    unpack = zlib.decompressobj(_GZIP)
                state.update(unpack.decompress(rest, _AT_ONCE))
                rest = unpack.unused_data if unpack.eof else unpack.unconsumed_tail
        while not unpack.eof and (more := unpack.decompress(b"", _AT_ONCE)):
            state.update(more)
    except zlib.error:
        return False
    return unpack.eof and state.hexdigest() == subject.line.digest
