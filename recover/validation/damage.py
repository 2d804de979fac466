"""Name what is wrong with a file as a file: what it is instead, where it ends, what it lacks."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...errors import HeaderError
from ..checkpoint import Shard
from ..formats.safetensors import MAX_HEADER, Header, coverage, parse_header
from ..formats.safetensors_errors import DuplicateName, HeaderCutShort, shown
from ..formats.sniff import Kind, kind_of
from .result import Damage, DamageClass

_PREFIX = 4096
_LENGTH = 8
_AT_ONCE = 1 << 20
_LOOKED_THROUGH = 256 << 20  # how far leading zeros are counted
_NAMED = 5
# Rust's tempfile crate, which safetensors 0.8 writes through, gives six letters or digits.
_TEMPORARY = re.compile(r"(?:\A|/)\.tmp[0-9A-Za-z]{6}\Z")
_LFS = re.compile(rb"version https?://[^\n]{0,200}git-lfs[^\n]{0,100}\n")
_LFS_OID = re.compile(rb"^oid sha256:([0-9a-f]{64})\r?$", re.MULTILINE)
_LFS_SIZE = re.compile(rb"^size (\d{1,19})\r?$", re.MULTILINE)
_HTML = re.compile(rb"(?:\xef\xbb\xbf)?\s*<(?:!doctype|html|head|body|\?xml|!--)", re.IGNORECASE)
_FOREIGN = {
    Kind.GGUF: "a GGUF model",
    Kind.TORCH_ZIP: "a PyTorch checkpoint (zip of a pickle)",
    Kind.ZIP: "a zip archive",
    Kind.NPY: "a NumPy array",
    Kind.PICKLE: "a pickle, as older PyTorch writes",
    Kind.HDF5: "an HDF5 file",
    Kind.SQLITE: "an SQLite database",
    Kind.ELF: "a program or library",
    Kind.GZIP: "a gzip archive: unpack it",
    Kind.ZSTD: "a zstd archive: unpack it",
    Kind.JSON: "JSON",
    Kind.TEXT: "text",
}
_ELSEWHERE = "Recover the file from another source."
_REPAIR = "`reef-recover repair` can write the header anew."


def file_damage(shard: Shard) -> tuple[Damage, ...]:
    """Name every fault of the file itself, by its header, its first bytes and its size.

    A file without a header gets the one class that says best what it is. Raises what the source
    raises.
    """
    found: list[Damage] = []
    if _TEMPORARY.search(shard.name):
        found.append(_temporary(shard))
    if not shard.size:
        found.append(_of(shard, DamageClass.EMPTY_FILE, f"The file is empty. {_ELSEWHERE}"))
    elif shard.header is None:
        found.append(_headless(shard))
    else:
        found.extend(_with_header(shard, shard.header))
    return tuple(found)


def _of(
    shard: Shard,
    kind: DamageClass,
    message: str,
    *,
    tensor: str | None = None,
    offset: int | None = None,
    size: int | None = None,
) -> Damage:
    return Damage(kind, message, shard.name, tensor, offset, size)


def _temporary(shard: Shard) -> Damage:
    return _of(
        shard,
        DamageClass.TEMPORARY_FILE,
        "This is the temporary file of a save by safetensors 0.8 that did not end: it has its full "
        f"size of {shard.size:,} bytes at once, and what was not written reads as zeros.",
    )


def _headless(shard: Shard) -> Damage:
    """Say what a file is that has no header."""
    first = shard.readable.read(0, _PREFIX)
    if _LFS.match(first):
        return _pointer(shard, first)
    if _HTML.match(first):
        message = "This is an HTML or XML page, not a model: download the file again."
        return _of(shard, DamageClass.HTML_PAGE, message)
    if isinstance(shard.fault, DuplicateName):
        return _of(
            shard,
            DamageClass.DUPLICATE_NAME,
            f"{shard.fault.message} Loaders keep the last one in silence.",
            tensor=shard.fault.name,
            offset=shard.fault.offset,
        )
    kind = kind_of(first, shard.size)
    if kind in _FOREIGN:
        message = f"This is {_FOREIGN[kind]}, where safetensors was meant. {_ELSEWHERE}"
        return _of(shard, DamageClass.FOREIGN_FILE, message)
    return _damaged_header(shard, first)


def _pointer(shard: Shard, first: bytes) -> Damage:
    oid, size = _LFS_OID.search(first), _LFS_SIZE.search(first)
    names = [f"sha256 {oid[1].decode()}"] if oid else []
    names += [f"{int(size[1]):,} bytes"] if size else []
    what = f" to {', '.join(names)}" if names else ""
    message = f"This is a git-lfs pointer{what}: `git lfs pull` fetches the file itself."
    return _of(shard, DamageClass.LFS_POINTER, message)


def _damaged_header(shard: Shard, first: bytes) -> Damage:
    """Tell a header that is zero, padded with NUL, cut off, or broken in another way."""
    if not any(first[:_LENGTH]):
        return _zero_header(shard)
    length = int.from_bytes(first[:_LENGTH], "little")
    if isinstance(shard.fault, HeaderCutShort) and length <= MAX_HEADER:
        missing = _LENGTH + length - shard.size
        message = (
            f"The file ends after {shard.size:,} bytes, inside its header, {missing:,} bytes of "
            f"which are missing, with all data. {_ELSEWHERE}"
        )
        return _of(shard, DamageClass.TRUNCATED, message, offset=shard.size, size=missing)
    start = first[_LENGTH : _LENGTH + 2]
    if length <= MAX_HEADER and len(start) == 2 and not any(start):
        return _zero_header(shard, after=_LENGTH)
    if length <= MAX_HEADER:
        padding = _nul_padding(shard.readable.read(0, _LENGTH + length))
        if padding:
            message = (
                f"The header ends in {padding:,} NUL bytes, which loaders refuse; "
                "`reef-recover repair` makes them spaces."
            )
            offset = _LENGTH + length - padding
            return _of(shard, DamageClass.NUL_PADDING, message, offset=offset, size=padding)
    reason = shard.fault.message if shard.fault else "It has no header that can be read."
    return _of(shard, DamageClass.BROKEN_HEADER, f"{reason} {_REPAIR}", offset=0)


def _zero_header(shard: Shard, after: int = 0) -> Damage:
    zeros = _zeros_from(shard, after)
    if after + zeros >= shard.size:
        message = f"All {shard.size:,} bytes of the file are zero. {_ELSEWHERE}"
        return _of(shard, DamageClass.ZERO_FILE, message, offset=after, size=zeros)
    more = "" if zeros < _LOOKED_THROUGH else " at least"
    message = f"{zeros:,} bytes{more} at the start of the header are zero. {_REPAIR}"
    return _of(shard, DamageClass.ZERO_HEADER, message, offset=after, size=zeros)


def _zeros_from(shard: Shard, start: int) -> int:
    """Count zero bytes from an offset on, as far as is looked."""
    count = 0
    while count < _LOOKED_THROUGH:
        block = shard.readable.read(start + count, _AT_ONCE)
        left = len(block.lstrip(b"\0"))
        count += len(block) - left
        if left or not block:
            break
    return count


def _nul_padding(raw: bytes) -> int:
    """Count the NULs that a header ends in, if they are all that is wrong with it."""
    stripped = raw.rstrip(b"\0")
    padding = len(raw) - len(stripped)
    if not padding or len(stripped) <= _LENGTH:
        return 0
    try:
        parse_header(stripped + b" " * padding)
    except HeaderError:
        return 0
    return padding


def _with_header(shard: Shard, header: Header) -> Iterator[Damage]:
    reach = coverage(header, shard.size)
    if reach.short_by:
        names = [*(cut.name for cut in reach.cut), *reach.absent]
        first = "" if not names else f", the first of them `{shown(names[0])}`"
        message = (
            f"The file is {reach.short_by:,} bytes short: {len(reach.whole):,} tensors are whole, "
            f"{len(reach.cut):,} cut, {len(reach.absent):,} absent{first}. {_ELSEWHERE}"
        )
        yield _of(
            shard,
            DamageClass.TRUNCATED,
            message,
            tensor=names[0] if names else None,
            offset=shard.size,
            size=reach.short_by,
        )
    if reach.trailing:
        message = (
            f"{reach.trailing:,} bytes follow the last tensor, and loaders refuse the file; "
            f"its first {header.file_size:,} bytes are all that belongs to it."
        )
        size = reach.trailing
        yield _of(shard, DamageClass.TRAILING_BYTES, message, offset=header.file_size, size=size)
    if not header.tensors:
        message = f"The header names no tensor: nothing was saved. {_ELSEWHERE}"
        yield _of(shard, DamageClass.NO_TENSORS, message)
    empty = [t.name for t in header.tensors if 0 in t.shape and "lora_" in t.name]
    if empty:
        listed = ", ".join(f"`{shown(name)}`" for name in empty[:_NAMED])
        more = f" and {len(empty) - _NAMED:,} more" if len(empty) > _NAMED else ""
        message = (
            f"{len(empty):,} LoRA tensors have no elements, as when ZeRO-3 saves its placeholders: "
            f"{listed}{more}. Gather the parameters before saving, or recover them from all ranks."
        )
        yield _of(shard, DamageClass.ZERO3_EMPTY, message, tensor=empty[0])
