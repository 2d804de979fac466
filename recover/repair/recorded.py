"""What the record beside a dump says of it: what was never read, what changed, what it claims."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from ...errors import Unusable
from ...records.names import printable
from ..ranges import Range, merge
from ..readable import Readable
from ..save.destination import RECORD
from ..save.verdict import Verdict

_LIMIT = 256 << 20
_SUFFIX = ".recovery.json"
_PARTIAL = ".partial"
_LEVELS = 3  # `dump` puts its record in the output folder, at most two levels up
_BLOCK = 1 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}")

_Entry = Mapping[str, object]


@dataclass(frozen=True)
class Recorded:
    """Ranges that were not read, tensors that had changed, and why all may not be the file's."""

    unread: tuple[Range, ...] = ()
    dirty: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()


def recorded(path: Path, readable: Readable) -> Recorded:
    """Read the record of a file: `NAME.recovery.json`, or the `recovery.json` of a dump.

    What a record says counts only where its size and sha256 are the file's; where they are not,
    that is a doubt. Hashes the file where the record has a digest. Raises Unusable for a record
    that is none.
    """
    path = Path(os.path.realpath(path))
    own = path.with_name(path.name + _SUFFIX)
    if own.is_file():
        entry = _named(_files(own), path.name)
        if entry is None:
            return Recorded(doubts=(f"{_shown(own)} does not speak of this file.",))
        return _said(entry, readable, own)
    for level, folder in enumerate(list(path.parents)[:_LEVELS]):
        record = folder / RECORD
        files = _files(record) if record.is_file() else []
        entry = _at(files, folder, path) or (None if level else _named(files, path.name))
        if entry is not None:
            return _said(entry, readable, record)
    return Recorded()


def _files(record: Path) -> list[_Entry]:
    if record.stat().st_size > _LIMIT:
        raise _not_ours(record)
    try:
        document: object = json.loads(record.read_bytes())
    except (ValueError, RecursionError):
        raise _not_ours(record) from None
    files = cast("_Entry", document).get("files") if isinstance(document, dict) else None
    entries = cast("list[object]", files) if isinstance(files, list) else []
    return [cast("_Entry", entry) for entry in entries if isinstance(entry, dict)]


def _not_ours(record: Path) -> Unusable:
    return Unusable(
        f"{_shown(record)} is not a record of reefkit.",
        remedy="Move it away, or name the copy from another folder.",
    )


def _at(files: list[_Entry], folder: Path, path: Path) -> _Entry | None:
    """Find the entry of a path; `dump` writes paths relative to its folder."""
    for entry in files:
        name = entry.get("path")
        if isinstance(name, str) and "\0" not in name:
            if Path(os.path.normpath(folder / name)) in (path, _finished(path)):
                return entry
    return None


def _named(files: list[_Entry], name: str) -> _Entry | None:
    """Find the one entry of a file name, wherever the file was when the record was written."""
    names = (name, name.removesuffix(_PARTIAL))
    found = [
        entry
        for entry in files
        if isinstance(entry.get("path"), str) and str(entry["path"]).rpartition("/")[2] in names
    ]
    return found[0] if len(found) == 1 else None


def _finished(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(_PARTIAL) or path.name)


def _said(entry: _Entry, readable: Readable, record: Path) -> Recorded:
    """Take what an entry says of the file, if it is of these very bytes."""
    digest = entry.get("sha256")
    known = isinstance(digest, str) and _SHA256.fullmatch(digest) is not None
    if entry.get("size") != readable.size or (known and digest != _digest(readable)):
        return Recorded(doubts=(f"{_shown(record)} speaks of other bytes than these.",))
    dirty = entry.get("dirty_tensors")
    return Recorded(
        unread=merge(_ranges(entry.get("unread"))),
        dirty=tuple(map(str, cast("list[object]", dirty))) if isinstance(dirty, list) else (),
        doubts=tuple(_doubts(entry, record)),
    )


def _doubts(entry: _Entry, record: Path) -> Iterator[str]:
    verdict = entry.get("verdict")
    if verdict is not None and verdict not in [one.value for one in Verdict if one.is_exact]:
        yield f"{_shown(record)} calls this file {printable(str(verdict)[:40])}."
    if entry.get("matches_expected") is False:
        yield f"{_shown(record)} says that the sha256 was not the expected one."


def _digest(readable: Readable) -> str:
    digest = hashlib.sha256()
    for offset in range(0, readable.size, _BLOCK):
        digest.update(readable.read(offset, _BLOCK))
    return digest.hexdigest()


def _ranges(value: object) -> Iterator[Range]:
    for each in cast("list[object]", value) if isinstance(value, list) else ():
        if not isinstance(each, dict):
            continue
        piece = cast("_Entry", each)
        offset, count = piece.get("offset"), piece.get("bytes")
        if isinstance(offset, int) and isinstance(count, int) and offset >= 0 < count:
            yield Range(offset, offset + count)


def _shown(record: Path) -> str:
    return printable(os.fsencode(record))
