"""What a file that should be a zip is instead, told by its first bytes."""

from __future__ import annotations

from ...errors import Unusable
from .zip_source import ZipSource

_KINDS = (
    (0, b"\x1f\x8b", "a gzip file"),
    (0, b"BZh", "a bzip2 file"),
    (0, b"\xfd7zXZ\0", "an xz file"),
    (0, b"\x28\xb5\x2f\xfd", "a zstd file"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (0, b"Rar!", "a RAR archive"),
    (0, b"%PDF", "a PDF"),
    (0, b"\x7fELF", "a program"),
    (0, b"version https://git-lfs", "a Git LFS pointer: run `git lfs pull`"),
    (257, b"ustar", "a tar archive"),
)
_PAGES = (b"<!doctype html", b"<html", b"<head", b"<?xml", b"<error")
_ZIP_MARKS = (b"PK\3\4", b"PK\5\6", b"PK\1\2")


def refuse_other_kinds(source: ZipSource) -> None:
    """Raise Unusable where there is no end record and the beginning says what it is instead."""
    if not source.size:
        raise _no_zip(source, "is empty")
    tail = source.read_at(max(0, source.size - 0x1_0100), min(source.size, 0x1_0100))
    if b"PK\5\6" in tail:
        return
    head = source.read_at(0, min(source.size, 512))
    for offset, mark, what in _KINDS:
        if head.startswith(mark, offset):
            raise _no_zip(source, f"is no zip: it is {what}")
    text = head.lstrip().lower()
    if text.startswith(_PAGES):
        raise _no_zip(source, "is no zip: it is an HTML or XML page, perhaps an error message")
    if text.startswith((b"{", b"[")):
        raise _no_zip(source, "is no zip: it is a JSON document")
    if head.startswith(_ZIP_MARKS):
        raise _no_zip(source, "is truncated: the end record of the zip is missing")
    raise _no_zip(source, "is no zip: there is no end record")


def _no_zip(source: ZipSource, fault: str) -> Unusable:
    return Unusable(
        f"{source.label} {fault}.", remedy="Name a folder or a zip, or download it again."
    )
