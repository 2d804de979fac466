"""The manifest: what must be known of files to find, and to recognise, their bytes again."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from ..errors import Unusable
from .custody_schema import is_sha256
from .names import decoded
from .strict_json import Json, parse_object
from .tool import tool_identity

SCHEMA = "reefkit.manifest/1"
LIMIT = 512 << 20
CONTAINERS = 20_000_000  # a tensor takes up to seven objects and lists
ANCHOR_BYTES = 64

_ENCODER = json.JSONEncoder(sort_keys=True, allow_nan=False, separators=(",", ":"))
_CRC32 = re.compile(r"[0-9a-f]{8}")
_HEX = re.compile(r"(?:[0-9a-f]{2})+")


@dataclass(frozen=True, slots=True)
class Anchor:
    """Bytes of a tensor to look for in memory: 64 of them, `offset` from its start, aligned so."""

    offset: int
    data: bytes

    def to_json(self) -> dict[str, object]:
        """Give one entry of `anchors`."""
        return {"hex": self.data.hex(), "offset": self.offset}


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One tensor: `begin` and `end` count from the first byte after the header."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int
    sha256: str
    crc32: str
    anchors: tuple[Anchor, ...] = ()

    def to_json(self) -> dict[str, object]:
        """Give one entry of `tensors`."""
        return {
            "anchors": [anchor.to_json() for anchor in self.anchors],
            "crc32": self.crc32,
            "dtype": self.dtype,
            "name": self.name,
            "offsets": [self.begin, self.end],
            "sha256": self.sha256,
            "shape": list(self.shape),
        }

    def to_text(self) -> str:
        """Give the same as compact JSON: an encoder takes four times as long for many tensors."""
        anchors = ",".join(
            f'{{"hex":"{anchor.data.hex()}","offset":{anchor.offset}}}' for anchor in self.anchors
        )
        return (
            f'{{"anchors":[{anchors}],"crc32":"{self.crc32}","dtype":{json.dumps(self.dtype)},'
            f'"name":{json.dumps(self.name)},"offsets":[{self.begin},{self.end}],'
            f'"sha256":"{self.sha256}","shape":[{",".join(map(str, self.shape))}]}}'
        )


@dataclass(frozen=True)
class FileEntry:
    """One file; `header` are the first 8 + N bytes of a safetensors file, None for others.

    `fault` says why a file that should be a safetensors file has no header here.
    """

    path: str
    size: int
    sha256: str
    header: bytes | None = field(default=None, repr=False)
    tensors: tuple[TensorEntry, ...] = ()
    fault: str | None = None

    def facts(self) -> dict[str, object]:
        """Give the entry of `files` without the tensors."""
        facts: dict[str, object] = {
            "path": decoded(self.path),
            "sha256": self.sha256,
            "size": self.size,
        }
        if self.fault is not None:
            facts["fault"] = self.fault
        if self.header is not None:
            facts["header"] = base64.b64encode(self.header).decode()
        return facts

    def to_json(self) -> dict[str, object]:
        """Give one entry of `files`."""
        if self.header is None:
            return self.facts()
        return {**self.facts(), "tensors": [tensor.to_json() for tensor in self.tensors]}


@dataclass(frozen=True)
class Manifest:
    """All files, sorted by the bytes of their paths."""

    files: tuple[FileEntry, ...]
    tool: Mapping[str, Json] = field(default_factory=lambda: {**tool_identity()})

    @property
    def faults(self) -> tuple[FileEntry, ...]:
        """Give the files that are not what their names say."""
        return tuple(file for file in self.files if file.fault is not None)

    def to_json(self) -> dict[str, object]:
        """Give the document `reefkit.manifest/1`."""
        return {
            "files": [file.to_json() for file in self.files],
            "schema": SCHEMA,
            "tool": dict(self.tool),
        }

    def to_bytes(self) -> bytes:
        """Give the document as it is stored: a line for every tensor, the same bytes every time."""
        return b"".join(self.pieces())

    def pieces(self) -> Iterator[bytes]:
        """Give those bytes in pieces: all of them at once may be hundreds of megabytes."""
        yield b'{\n"files": ['
        for number, file in enumerate(self.files):
            yield b",\n" if number else b"\n"
            text = _compact(file.to_json() if file.header is None else file.facts())
            if file.header is None:
                yield text
                continue
            yield text[:-1] + b',"tensors": ['
            for place, tensor in enumerate(file.tensors):
                yield (b",\n" if place else b"\n") + tensor.to_text().encode()
            yield b"]}"
        yield b'\n],\n"schema": ' + _compact(SCHEMA) + b',\n"tool": ' + _compact(dict(self.tool))
        yield b"\n}\n"


def _compact(value: object) -> bytes:
    return _ENCODER.encode(value).encode()


def read_manifest(data: bytes, label: str) -> Manifest:
    """Read a manifest strictly. Raises Unusable with one sentence that begins with `label`."""
    if len(data) > LIMIT:
        raise _refused(label, f"is larger than {LIMIT >> 20} MiB")
    document = parse_object(data, label, containers=CONTAINERS)
    if document.get("schema") != SCHEMA:
        raise _refused(label, "is no manifest of reefkit")
    listed, tool = document.get("files"), document.get("tool")
    if not isinstance(listed, list):
        raise _refused(label, "lists no files")
    files = tuple(_file(each, label) for each in listed)
    if len({file.path for file in files}) != len(files):
        raise _refused(label, "lists a file twice")
    return Manifest(files, tool if isinstance(tool, dict) else {})


def _file(value: Json, label: str) -> FileEntry:
    path, size, digest = _taken(value, ("path", "size", "sha256"), label)
    header, tensors, fault = (_of(value, key) for key in ("header", "tensors", "fault"))
    if not isinstance(path, str) or not _is_count(size) or not is_sha256(digest):
        raise _refused(label, "holds an entry without a usable path, size or sha256")
    if (fault is not None and not isinstance(fault, str)) or (
        tensors is not None and not isinstance(tensors, list)
    ):
        raise _refused(label, "holds an entry with unusable tensors or fault")
    try:
        raw = None if header is None else base64.b64decode(_needed(header, str), validate=True)
    except (binascii.Error, ValueError):
        raise _refused(label, "holds a header that is no base64") from None
    found = tuple(_tensor(each, label) for each in tensors or ())
    if len({tensor.name for tensor in found}) != len(found):
        raise _refused(label, "lists a tensor twice")
    return FileEntry(path, _needed(size, int), _needed(digest, str), raw, found, fault)


def _tensor(value: Json, label: str) -> TensorEntry:
    keys = ("name", "dtype", "shape", "offsets", "sha256", "crc32")
    name, dtype, shape, offsets, digest, crc32 = _taken(value, keys, label)
    anchors = _of(value, "anchors")
    if (
        not isinstance(name, str)
        or not isinstance(dtype, str)
        or not isinstance(shape, list)
        or not isinstance(offsets, list)
        or not isinstance(anchors or [], list)
        or not all(map(_is_count, (*shape, *offsets)))
        or len(offsets) != 2
        or not is_sha256(digest)
        or not isinstance(crc32, str)
        or _CRC32.fullmatch(crc32) is None
    ):
        raise _refused(label, "holds a tensor without usable facts")
    begin, end = (_needed(each, int) for each in offsets)
    if end < begin:
        raise _refused(label, "holds a tensor that ends before it begins")
    found = tuple(_anchor(each, label) for each in (anchors if isinstance(anchors, list) else ()))
    sizes = tuple(_needed(each, int) for each in shape)
    return TensorEntry(name, dtype, sizes, begin, end, _needed(digest, str), crc32, found)


def _anchor(value: Json, label: str) -> Anchor:
    offset, text = _taken(value, ("offset", "hex"), label)
    usable = isinstance(text, str) and len(text) == 2 * ANCHOR_BYTES and _HEX.fullmatch(text)
    if not _is_count(offset) or not usable:
        raise _refused(label, "holds an unusable anchor")
    return Anchor(_needed(offset, int), bytes.fromhex(_needed(text, str)))


def _taken(value: Json, keys: tuple[str, ...], label: str) -> list[Json]:
    if not isinstance(value, dict):
        raise _refused(label, "holds an entry that is no object")
    return [value.get(key) for key in keys]


def _of(value: Json, key: str) -> Json:
    return value.get(key) if isinstance(value, dict) else None


def _is_count(value: Json) -> bool:
    return type(value) is int and value >= 0


_T = TypeVar("_T")


def _needed(value: Json, kind: type[_T]) -> _T:
    if not isinstance(value, kind):
        raise ValueError("another type was expected")
    return value


def _refused(label: str, fault: str) -> Unusable:
    return Unusable(f"{label} {fault}.", remedy="Get the manifest from its source again.")
