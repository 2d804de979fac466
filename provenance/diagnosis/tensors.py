"""Which tensors of a checkpoint differ from those that the manifest knows, and by which bit."""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass
from itertools import chain

from ...errors import HeaderError
from ...recover.formats.safetensors import Header, Tensor, read_header
from ..content.shown import shown
from .cut_off import zero_tail
from .flipped_bit import flip_by_trial, flipped_positions
from .known_tensors import KnownTensors, known_tensors
from .subject import Subject, pieces_of

_NAMED = 3
_MOST_FLIPS = 8
_BY_TRIAL = 16 << 10


@dataclass(frozen=True)
class _Difference:
    """A tensor of both files whose bytes differ; `crc32` is that of the bytes here."""

    tensor: Tensor
    offset: int
    crc32: int


def tensor_difference(subject: Subject) -> str | None:
    """Explain a checkpoint by its manifest: written again, a header or tensors that differ."""
    known = known_tensors(subject.entry) if subject.entry is not None else None
    if known is None or subject.member.size < len(known.header.raw) or not any(subject.head):
        return None
    flip = _flip_in_header(subject, known.header.raw)
    if flip is not None:
        return flip
    try:
        header = read_header(subject.read, subject.member.size)
    except HeaderError as fault:
        return f"Its header is damaged: {fault.message[:1].lower()}{fault.message[1:]}"
    if header.file_size > subject.member.size:
        return None
    differing = _differing(subject, header, known)
    if differing is None:
        return _other_tensors(header, known.header)
    if differing:
        said = _changed(subject, known, differing, len(header.tensors))
        zeros = zero_tail(subject) if differing[-1].tensor.end == header.tensors[-1].end else None
        return f"{zeros} {said}" if zeros else said
    if header.raw == known.header.raw:
        return None
    what = "other metadata" if header.metadata != known.header.metadata else "another header"
    return (
        f"All {len(header.tensors):,} tensors are the same, byte for byte: the file was written "
        f"again, with {what}."
    )


def _flip_in_header(subject: Subject, raw: bytes) -> str | None:
    """Find one bit of the header, proven by the digest of the file."""
    here = subject.read(0, len(raw))
    difference = int.from_bytes(here, "little") ^ int.from_bytes(raw, "little")
    if not difference or difference & (difference - 1):
        return None
    if not subject.is_listed(chain((raw,), subject.pieces(len(raw), subject.member.size))):
        return None
    at, bit = divmod(difference.bit_length() - 1, 8)
    return f"One bit is flipped in the header: bit {bit} of byte {at:,}. Copy it again."


def _other_tensors(here: Header, known: Header) -> str:
    mine = {tensor.name: (tensor.dtype, tensor.shape) for tensor in here.tensors}
    listed = {tensor.name: (tensor.dtype, tensor.shape) for tensor in known.tensors}
    missing = sorted(listed.keys() - mine.keys())
    more = sorted(mine.keys() - listed.keys())
    other = sorted(name for name in mine.keys() & listed.keys() if mine[name] != listed[name])
    said = [
        f"{len(names):,} {what} ({_some(names)})"
        for names, what in (
            (missing, "missing"),
            (more, "not known to the manifest"),
            (other, "of another dtype or shape"),
        )
        if names
    ]
    return f"Its tensors are others than the manifest's: {', '.join(said)}."


def _some(names: list[str]) -> str:
    more = f", and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(shown(name) for name in names[:_NAMED]) + more


def _differing(subject: Subject, header: Header, known: KnownTensors) -> list[_Difference] | None:
    """Compare all tensors; None where they are not the same ones."""
    mine = {(tensor.name, tensor.dtype, tensor.shape) for tensor in header.tensors}
    if mine != {(tensor.name, tensor.dtype, tensor.shape) for tensor in known.header.tensors}:
        return None
    found: list[_Difference] = []
    with subject.open() as file:
        for tensor in header.tensors:
            start = header.span(tensor).start
            state = hashlib.sha256()
            check = 0
            with_check = tensor.name in known.crc32
            for piece in pieces_of(file, start, tensor.nbytes):
                state.update(piece)
                check = zlib.crc32(piece, check) if with_check else 0
            if state.hexdigest() != known.sha256[tensor.name]:
                found.append(_Difference(tensor, start, check))
    return found


def _changed(
    subject: Subject, known: KnownTensors, differing: list[_Difference], total: int
) -> str:
    names = _some([each.tensor.name for each in differing])
    if len(differing) <= _MOST_FLIPS:
        flips = [_flip(subject, known, each) for each in differing]
        if all(flips):
            where = "; ".join(
                f"bit {flip[1]} of byte {each.offset + flip[0]:,} of the file, "
                f"in tensor {shown(each.tensor.name)}"
                for each, flip in zip(differing, flips, strict=True)
                if flip is not None
            )
            start = "One bit is flipped" if len(differing) == 1 else "In each tensor one bit is"
            return f"{start}: {where}. Copy it again, and test the memory and the disk."
    verb = "differs" if len(differing) == 1 else "differ"
    return f"{len(differing):,} of {total:,} tensors {verb} from the manifest's: {names}."


def _flip(subject: Subject, known: KnownTensors, found: _Difference) -> tuple[int, int] | None:
    """Find the bit of a tensor, proven by its SHA-256."""
    name, size = found.tensor.name, found.tensor.nbytes
    digest = known.sha256[name]
    if name in known.crc32:
        for at, bit in flipped_positions(found.crc32, known.crc32[name], size):
            if _is_mended(subject, found, at, bit, digest):
                return at, bit
        return None
    if size > _BY_TRIAL:
        return None
    data = subject.read(found.offset, size)
    return flip_by_trial(data, hashlib.sha256, digest, lambda: subject.out_of_time)


def _is_mended(subject: Subject, found: _Difference, at: int, bit: int, digest: str) -> bool:
    state = hashlib.sha256()
    start = 0
    for piece in subject.pieces(found.offset, found.tensor.nbytes):
        if start <= at < start + len(piece):
            mended = bytearray(piece)
            mended[at - start] ^= 1 << bit
            piece = bytes(mended)
        state.update(piece)
        start += len(piece)
    return state.hexdigest() == digest
