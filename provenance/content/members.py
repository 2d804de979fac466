"""The members of whatever is verified, and how their bytes are had."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from enum import Enum
from typing import BinaryIO, NamedTuple, Protocol

from ..finding import Finding


class MemberKind(Enum):
    """What a member is. A folder is a member only when it is empty."""

    FILE = "file"
    EMPTY_FOLDER = "empty folder"
    LINK = "link"
    SPECIAL = "special file"


class Member(NamedTuple):
    """One member: its name relative to the root with `/` between the parts, kind and size in bytes.

    Bytes of a name that are no UTF-8 are surrogate escapes, as os.fsdecode gives them.
    """

    name: str
    kind: MemberKind = MemberKind.FILE
    size: int = 0


class Content(Protocol):
    """Members that were listed once; links are never followed, nothing is ever extracted."""

    @property
    def label(self) -> str:
        """What to call it in messages; safe to print."""
        ...

    @property
    def members(self) -> Sequence[Member]:
        """All members, sorted by the bytes of their names."""
        ...

    @property
    def findings(self) -> Sequence[Finding]:
        """What is wrong with the container itself (a zip's hidden bytes, twin names …)."""
        ...

    def open(self, member: Member) -> AbstractContextManager[BinaryIO]:
        """Open a file for reading and seeking. Raises Unusable, NotPermitted, OSError."""
        ...
