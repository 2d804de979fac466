"""A git LFS pointer that lies where the file should be."""

from __future__ import annotations

import re

from ..appearance import Appearance, appearance
from .subject import Subject

_OID = re.compile(rb"^oid sha256:([0-9a-f]{64})\r?$", re.MULTILINE)


def lfs_pointer(subject: Subject) -> str | None:
    """Explain a pointer: to what is listed, or to something else."""
    if appearance(subject.head) is not Appearance.LFS_POINTER:
        return None
    found = _OID.search(subject.head)
    if found is None:
        return "It is a damaged git LFS pointer: check it out again and run `git lfs pull`."
    if subject.line.algorithm == "sha256" and found[1].decode() == subject.line.digest:
        return "It is a git LFS pointer to the listed file: run `git lfs pull`."
    if subject.line.algorithm == "sha256":
        return (
            f"It is a git LFS pointer to another file (sha256 {found[1].decode()[:16]}…): the "
            "listed one is of another commit."
        )
    return "It is a git LFS pointer, not the file: run `git lfs pull`."
