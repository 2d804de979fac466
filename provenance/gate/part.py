"""The part of an evidence package that is a gate: where its manifest lies."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import BinaryIO

from ...errors import Unusable
from ...records.names import printable
from ..content.members import Content, Member
from ..finding import Finding

MANIFEST_NAMES = ("gate-manifest.json", "gate-manifest.toml")


class Part:
    """The members below a folder of some content, named from there."""

    def __init__(self, content: Content, prefix: str) -> None:
        """Take the members whose names begin with `prefix`, which ends in `/`."""
        self._content = content
        self._inside = {
            member: Member(member.name[len(prefix) :], member.kind, member.size)
            for member in content.members
            if member.name.startswith(prefix)
        }
        self._outside = {inner: outer for outer, inner in self._inside.items()}
        self.label = f"{content.label}:{printable(prefix)}"

    @property
    def members(self) -> Sequence[Member]:
        """All members of the part."""
        return list(self._outside)

    @property
    def findings(self) -> Sequence[Finding]:
        """What is wrong with the whole."""
        return self._content.findings

    def open(self, member: Member) -> AbstractContextManager[BinaryIO]:
        """Open a file of the part."""
        return self._content.open(self._outside[member])


def gate_part(content: Content) -> Content:
    """Give the part of a package that is a gate: all of it, or the only folder with a manifest.

    Raises Unusable where several folders have one; where none has, the whole is given.
    """
    folders = {
        member.name[: -len(name)]
        for member in content.members
        for name in MANIFEST_NAMES
        if member.name == name or member.name.endswith(f"/{name}")
    }
    if not folders or "" in folders:
        return content
    if len(folders) > 1:
        raise Unusable(
            f"{content.label} holds {len(folders):,} gates.", remedy="Name the folder of one."
        )
    return Part(content, folders.pop())
