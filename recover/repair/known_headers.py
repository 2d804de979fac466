"""Headers that somebody kept: of a sibling checkpoint, or in a manifest."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

from ...errors import HeaderError, Unusable
from ...records.names import printable
from ..formats.safetensors import parse_header, read_header
from ..json_files import read_object
from ..readable import FileReadable, Readable
from .header_candidate import HeaderCandidate, has_unsure_order

_MANIFEST_LIMIT = 512 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}")


def from_sibling(other: Readable) -> HeaderCandidate:
    """Take the header of another checkpoint of the same run. Raises Unusable when it has none."""
    try:
        header = read_header(other.read, other.size)
    except HeaderError as error:
        raise Unusable(
            f"{other.label} cannot serve as the pattern: {error.message}",
            remedy="Name a checkpoint of the same run whose header is intact.",
        ) from None
    return HeaderCandidate(
        header, f"the header of {other.label}", certain=not has_unsure_order(header)
    )


def from_manifest(path: Path, name: str | None, size: int) -> tuple[HeaderCandidate, ...]:
    """Take the headers that a `reefkit.manifest/1` keeps for files of this name, or this size.

    A file's entry has `path`, `size`, `sha256` and for safetensors `header`: the raw bytes in
    base64. Entries of the same name count before those of the same size, whose digest says nothing
    of this file. Raises Unusable.
    """
    document = read_object(path, _MANIFEST_LIMIT)
    label = printable(path.name)
    if document.get("schema") != "reefkit.manifest/1":
        raise Unusable(
            f"{label} is no manifest of reefkit.", remedy="Name one, or use --like or --base."
        )
    found = [entry for entry in _entries(document.get("files")) if entry.get("size") == size]
    named = [entry for entry in found if _base_name(entry) == name]
    kept = tuple(_candidates(named or found, label, proven=bool(named)))
    if not kept:
        raise Unusable(
            f"{label} keeps no header of a safetensors file of {size:,} bytes.",
            remedy="Name the manifest of this checkpoint, or use --like or --base.",
        )
    return kept


def _entries(files: object) -> Iterator[Mapping[str, object]]:
    for entry in cast("list[object]", files) if isinstance(files, list) else ():
        if isinstance(entry, dict):
            yield cast("Mapping[str, object]", entry)


def _base_name(entry: Mapping[str, object]) -> str | None:
    path = entry.get("path", entry.get("name"))
    return path.rpartition("/")[2] if isinstance(path, str) else None


def _candidates(
    entries: list[Mapping[str, object]], label: str, *, proven: bool
) -> Iterator[HeaderCandidate]:
    for entry in entries:
        text, digest = entry.get("header"), entry.get("sha256")
        if not isinstance(text, str):
            continue
        shown = printable(_base_name(entry) or "a file")
        try:
            raw = base64.b64decode(text, validate=True)
            header = parse_header(raw)
        except (binascii.Error, ValueError, HeaderError):
            raise Unusable(
                f"{label} keeps a header of {shown} that is damaged itself.",
                remedy="Get the manifest from its source again.",
            ) from None
        known = isinstance(digest, str) and _SHA256.fullmatch(digest) is not None and proven
        yield HeaderCandidate(
            header,
            f"the header of {shown} in {label}",
            certain=known or not has_unsure_order(header),
            digests=frozenset([str(digest)] if known else []),
        )


def open_sibling(path: Path) -> HeaderCandidate:
    """Read the header of a sibling file. Raises Unusable, NotPermitted."""
    with FileReadable(path) as file:
        return from_sibling(file)
