"""What is verified: its members by name, and where they lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...errors import Unusable
from ...records.names import printable
from ..content.members import Content, Member, MemberKind


@dataclass(frozen=True)
class Package:
    """A container with its members by name.

    `base` is the folder on disk (or in a repository) that the members lie in, `container` the one
    file that holds them all. `listed_by` names the one list to go by, where the target was that
    list; `demands_cover` tells whether nothing else may be there. `bundle` names the member that is
    a result bundle, which holds the artifacts itself. `revision` says where in a repository the
    bytes were taken from.
    """

    content: Content
    base: str | None = None
    container: str | None = None
    listed_by: str | None = None
    demands_cover: bool = True
    bundle: str | None = None
    revision: str | None = None
    members: Mapping[str, Member] = field(default_factory=lambda: dict[str, Member]())

    @classmethod
    def of(
        cls,
        content: Content,
        *,
        base: str | None = None,
        container: str | None = None,
        listed_by: str | None = None,
        demands_cover: bool = True,
        bundle: str | None = None,
        revision: str | None = None,
    ) -> Package:
        """Index a container."""
        members = {member.name: member for member in content.members}
        return cls(content, base, container, listed_by, demands_cover, bundle, revision, members)

    def holds(self, name: str) -> bool:
        """Tell whether there is a file of that name."""
        member = self.members.get(name)
        return member is not None and member.kind is MemberKind.FILE

    def read(self, name: str, limit: int) -> bytes:
        """Read a file whole. Raises Unusable, also when it is larger; NotPermitted, OSError."""
        with self.content.open(self.members[name]) as file:
            data = bytearray()
            while piece := file.read(min(1 << 20, limit + 1 - len(data))):
                data += piece
        if len(data) > limit:
            raise Unusable(
                f"{printable(name)} is larger than the {limit:,} bytes that are read.",
                remedy="Check that it is what its name says.",
            )
        return bytes(data)
