"""Hold a list of names against what is there: both ways, and nothing may be left over."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...records.names import printable
from ..content.members import Member, MemberKind
from ..finding import Finding, FindingKind
from ..sums.model import SumsLine
from .package import Package

_KINDS = {
    MemberKind.LINK: FindingKind.LINK,
    MemberKind.SPECIAL: FindingKind.SPECIAL_FILE,
    MemberKind.EMPTY_FOLDER: FindingKind.EMPTY_FOLDER,
}
_SAID = {
    MemberKind.LINK: "It is a link, and links are not followed: they could lead anywhere.",
    MemberKind.SPECIAL: "It is neither a file nor a folder.",
    MemberKind.EMPTY_FOLDER: "It is an empty folder, which no list can vouch for.",
    MemberKind.FILE: "It is there, but nothing lists it.",
}


class Pair(NamedTuple):
    """A file, and the lines that mean it: one for each algorithm."""

    member: Member
    lines: tuple[SumsLine, ...]


@dataclass(frozen=True)
class Cover:
    """Files with their lines; lines without a file; files without a line."""

    pairs: tuple[Pair, ...]
    missing: tuple[SumsLine, ...]
    extra: tuple[Member, ...]
    findings: tuple[Finding, ...]


def cover(package: Package, lines: Sequence[SumsLine], aside: Collection[str]) -> Cover:
    """Pair lines with files, by exact name or else by normal form."""
    members = package.members
    by_name: dict[str, tuple[SumsLine, ...]] = {}
    for line in lines:
        by_name[line.name] = (*by_name.get(line.name, ()), line)
    pairs: list[Pair] = []
    unmatched: list[SumsLine] = []
    findings: list[Finding] = []
    for name, its_lines in by_name.items():
        member = members.get(name)
        if member is None:
            unmatched.append(its_lines[0])
        elif member.kind is MemberKind.FILE:
            pairs.append(Pair(member, its_lines))
        else:
            findings.append(_other(member))
    left = {
        name: each for name, each in members.items() if name not in by_name and name not in aside
    }
    missing: list[SumsLine] = []
    forms = _by_form(left.values()) if unmatched else {}
    for line in unmatched:
        member = forms.get(unicodedata.normalize("NFC", line.name))
        if member is None or member.name not in left:
            missing.append(line)
            continue
        pairs.append(Pair(member, by_name[line.name]))
        findings.append(_other_form(line, member))
        del left[member.name]
    waiting = {folder for line in missing for folder in _folders_above(line.name)}
    findings += [_other(member) for member in left.values() if _counts(member, waiting, package)]
    told = {(finding.kind, finding.path) for finding in package.content.findings}
    findings = [finding for finding in findings if (finding.kind, finding.path) not in told]
    extra = tuple(member for member in left.values() if member.kind is MemberKind.FILE)
    return Cover(tuple(pairs), tuple(missing), extra, tuple(findings))


def _counts(member: Member, waiting: Collection[str], package: Package) -> bool:
    """Tell whether what is no file is a finding of its own.

    An empty folder that waits for a missing file is none. A link where a listed name leads through
    always is one: other tools follow it, and find there whatever somebody put there.
    """
    if member.kind is MemberKind.FILE:
        return False
    if member.name in waiting:
        return member.kind is not MemberKind.EMPTY_FOLDER
    return package.demands_cover


def extra_findings(cover: Cover, renamed: Collection[str] = ()) -> Iterable[Finding]:
    """Say of each file without a line that it is there; `renamed` are told of elsewhere, too."""
    for member in cover.extra:
        text = _SAID[MemberKind.FILE]
        first = member.name.partition("/")[0]
        if first in (".git", ".github"):
            text += f" Others skip {first}; nothing is skipped here."
        elif member.name in renamed:
            text += " It has the content of a file that is missing."
        yield Finding(FindingKind.EXTRA, member.name, text)


def missing_findings(
    lines: Sequence[SumsLine], cover: Cover, package: Package, renamed: Mapping[str, str]
) -> Iterator[Finding]:
    """Say that listed files are not there, and what is there in their place.

    `renamed` says under which other name the content of a missing file is there.
    """
    if not lines:
        return
    folded = {_folded(member.name): member.name for member in cover.extra}
    folders = {folder for name in package.members for folder in _folders_above(name)}
    for line in lines:
        other = folded.get(_folded(line.name))
        if line.name in folders:
            text = "It is a folder here, and no file."
        elif other is not None:
            text = f"It is not there; {printable(other)} is, which differs in case."
        elif line.name in renamed:
            text = f"It is not there; {printable(renamed[line.name])} has its content."
        else:
            text = "It is listed, but not there."
        yield Finding(FindingKind.MISSING, line.name, text)


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def _folders_above(name: str) -> Iterator[str]:
    while "/" in name:
        name = name.rpartition("/")[0]
        yield name


def _by_form(members: Iterable[Member]) -> dict[str, Member]:
    return {
        unicodedata.normalize("NFC", member.name): member
        for member in members
        if member.kind is MemberKind.FILE and not member.name.isascii()
    }


def _other(member: Member) -> Finding:
    return Finding(_KINDS[member.kind], member.name, _SAID[member.kind])


def _other_form(line: SumsLine, member: Member) -> Finding:
    composed = unicodedata.is_normalized("NFC", member.name)
    here, there = ("composed", "decomposed") if composed else ("decomposed", "composed")
    return Finding(
        FindingKind.NORMAL_FORM,
        member.name,
        f"Its name is {here} here and {there} in the list (Unicode normal forms); it was taken "
        "for the same.",
    )
