"""Tell what a file is from its beginning, since the name of a deleted file proves nothing."""

from __future__ import annotations

import codecs
import re
from enum import Enum

from .safetensors import looks_like


class Kind(str, Enum):
    """What a file's first bytes say that it is."""

    SAFETENSORS = "safetensors"
    GGUF = "gguf"
    TORCH_ZIP = "torch-zip"
    ZIP = "zip"
    NPY = "npy"
    PICKLE = "pickle"
    HDF5 = "hdf5"
    SQLITE = "sqlite"
    ELF = "elf"
    GZIP = "gzip"
    ZSTD = "zstd"
    JSON = "json"
    TEXT = "text"
    EMPTY = "empty"
    OTHER = "other"

    @property
    def is_checkpoint(self) -> bool:
        """Whether weights or optimizer states are saved in this format."""
        return self in _CHECKPOINTS


_CHECKPOINTS = {
    Kind.SAFETENSORS,
    Kind.GGUF,
    Kind.TORCH_ZIP,
    Kind.NPY,
    Kind.PICKLE,
    Kind.HDF5,
}
# A GGUF version and a pickle's next opcode are looked at too: their magic alone is short.
_MAGICS = (
    (re.compile(rb"GGUF(?:[\x01-\xff]\0{3}|\0{3}[\x01-\xff])"), Kind.GGUF),
    (re.compile(rb"PK(?:\x03\x04|\x05\x06|\x07\x08)"), Kind.ZIP),
    (re.compile(rb"\x93NUMPY[\x01-\x03]\0"), Kind.NPY),
    (re.compile(rb"\x80[\x02\x03][\x88-\x8b\x8e()}\]BCFGIJKLMNTUVXc]"), Kind.PICKLE),
    (
        re.compile(rb"\x80[\x04\x05](?:\x95.{6}\0\0|[KMJN\x88-\x8c()}\]\x8f])", re.DOTALL),
        Kind.PICKLE,
    ),
    (re.compile(rb"\x89HDF\r\n\x1a\n"), Kind.HDF5),
    (re.compile(rb"SQLite format 3\0"), Kind.SQLITE),
    (re.compile(rb"\x7fELF"), Kind.ELF),
    (re.compile(rb"\x1f\x8b\x08"), Kind.GZIP),
    (re.compile(rb"\x28\xb5\x2f\xfd"), Kind.ZSTD),
)
_TORCH_MEMBER = re.compile(
    rb"[^/]+/(?:data\.pkl|\.data/.+|\.format_version|\.storage_alignment|byteorder)\Z", re.DOTALL
)
_CONTROLS = re.compile(r"[\x00-\x07\x0b\x0e-\x1a\x1c-\x1f\x7f-\x9f]")
_STRING = r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\Z)'
_SCALAR = rf"(?:{_STRING}|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null)"
_CLOSING = r"(?:\]\s*)+(?:,|\Z)"
_JSON = re.compile(
    rf"\s*(?:(?:\[\s*)*\{{\s*(?:\}}|{_STRING}\s*(?::|\Z))"
    rf"|(?:\[\s*)+(?:{_CLOSING}|{_SCALAR}\s*(?:,|\Z|{_CLOSING})))"
)


def kind_of(prefix: bytes, size: int | None) -> Kind:
    """Tell the kind from the first 512 bytes or more; `size` is the whole file's, where known.

    Text is told by all of the prefix, and JSON by the first object or array in text, so that a log
    of JSON lines counts as JSON. The others are told by their magic and the fields behind it.
    """
    if not prefix:
        return Kind.OTHER if size else Kind.EMPTY
    if looks_like(prefix, size):
        return Kind.SAFETENSORS
    for magic, kind in _MAGICS:
        if magic.match(prefix):
            return Kind.TORCH_ZIP if kind is Kind.ZIP and _is_torch(prefix) else kind
    text = _as_text(prefix, complete=size is not None and size <= len(prefix))
    if text is None:
        return Kind.OTHER
    return Kind.JSON if _JSON.match(text) else Kind.TEXT


def _is_torch(prefix: bytes) -> bool:
    """Look at the first member's name: PyTorch's writer gives `<folder>/data.pkl` or its kin."""
    length = int.from_bytes(prefix[26:28], "little")
    return _TORCH_MEMBER.match(prefix[30 : 30 + length]) is not None


def _as_text(prefix: bytes, *, complete: bool) -> str | None:
    """Decode UTF-8 without control characters, but for those that terminals and logs use."""
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(prefix, complete)
    except UnicodeDecodeError:
        return None
    return None if _CONTROLS.search(text) else text
