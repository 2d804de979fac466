"""What is made of files alone, and says so where something else is in the way."""

from __future__ import annotations

from ...errors import Unusable
from ...records.names import printable
from ..finding import Gravity
from .members import Content, Member, MemberKind


def files_only(content: Content, product: str) -> tuple[Member, ...]:
    """Give the files of a container; empty folders are left out.

    `product` is what is made of them, to begin a clause with: `a package holds`. Raises Unusable
    for links, special files, and whatever is wrong with the container itself.
    """
    for finding in content.findings:
        if finding.gravity is not Gravity.NOTE:
            where = f"{printable(finding.path)}: " if finding.path else ""
            raise Unusable(f"{where}{finding.diagnosis}", remedy="Mend that, and try again.")
    for member in content.members:
        if member.kind in (MemberKind.LINK, MemberKind.SPECIAL):
            raise Unusable(
                f"{printable(member.name)} is a {member.kind.value}: {product} files only.",
                remedy="Put a copy of what is meant in its place, or leave it out.",
            )
    return tuple(member for member in content.members if member.kind is MemberKind.FILE)
