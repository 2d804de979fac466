"""What lies in the one folder at the top of a zip, as Finder, Explorer and GitHub make them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import BinaryIO

from ..finding import Finding, FindingKind
from .members import Content, Member
from .name_bytes import name_bytes
from .shown import shown

# What macOS puts beside the folder: resource forks and other attributes. Nothing vouches for them.
_BESIDE = "__MACOSX"


def inner_folder(content: Content, holds: Callable[[str], bool]) -> Content | None:
    """Give the content below the one top folder, or None where there is more than one, or none.

    `holds` is asked for the names within that folder whether one is what the caller looks for, and
    has to say so of at least one. Members of the folder lose its name, those of `__MACOSX` beside
    it stay what they are called, so that they are members like all others; findings stay, and one
    note is added. None also where names would then be equal.
    """
    tops = {member.name.partition("/")[0] for member in content.members} - {_BESIDE}
    if len(tops) != 1:
        return None
    start = f"{tops.pop()}/"
    own: dict[str, Member] = {}
    beside: dict[str, Member] = {}
    for each in content.members:
        name = _within(start, each.name)
        if name is None:
            beside[each.name] = each
        else:
            own[name] = each
    if own.keys() & beside.keys() or any(_top(name) != _BESIDE for name in beside):
        return None
    if not any(map(holds, own)):
        return None
    return InnerContent(content, start, {**own, **beside})


class InnerContent:
    """Members of another content with the name of the top folder taken off."""

    def __init__(self, whole: Content, start: str, members: dict[str, Member]) -> None:
        """Take the members of `whole` by their new names; `start` is the folder with its slash."""
        self.label = whole.label
        self.one_at_a_time: bool = getattr(whole, "one_at_a_time", False)
        self._whole = whole
        self._start = start
        self._outer = members
        renamed = (Member(name, each.kind, each.size) for name, each in members.items())
        self.members: Sequence[Member] = tuple(
            sorted(renamed, key=lambda member: name_bytes(member.name))
        )

    @property
    def folder(self) -> str:
        """Name the top folder."""
        return self._start[:-1]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What is wrong with the container, as of now, and that all lies in a folder."""
        note = Finding(
            FindingKind.DIALECT, None, f"Everything in it lies in the folder {shown(self.folder)}."
        )
        return (*map(self._renamed, self._whole.findings), note)

    def open(self, member: Member) -> AbstractContextManager[BinaryIO]:
        """Open a file as the whole content does. Raises what that raises."""
        outer = self._outer.get(member.name)
        return self._whole.open(outer or Member(self._start + member.name, member.kind))

    def _renamed(self, finding: Finding) -> Finding:
        within = None if finding.path is None else _within(self._start, finding.path)
        return finding if within is None else replace(finding, path=within)


def _within(start: str, name: str) -> str | None:
    return name[len(start) :] if name.startswith(start) else None


def _top(name: str) -> str:
    return name.partition("/")[0]
