"""Content that is there under another name."""

from __future__ import annotations

import unicodedata

from ..content.shown import code_points, shown
from ..sums.model import SumsLine
from .known import Known
from .subject import Subject


def misplaced(subject: Subject) -> str | None:
    """Explain a file that has what is listed for another, or whose content lies elsewhere."""
    line, known = subject.line, subject.known
    own = known.digests_on_disk.get(subject.member.name)
    owners = [name for name in known.names_by_digest.get(own or "", ()) if name != line.name]
    holders = _holders(line, known, subject.member.name)
    for other in owners:
        if other in holders:
            return f"It and `{shown(other)}` have each other's content: rename them."
    if owners:
        more = f" What is listed for it is in `{shown(holders[0])}`." if holders else ""
        return f"It has the content that is listed for `{shown(owners[0])}`.{more}"
    return found_elsewhere(line, known, but=subject.member.name)


def found_elsewhere(line: SumsLine, known: Known, *, but: str | None = None) -> str | None:
    """Say under which name the listed content lies; also for a file that is missing."""
    holders = _holders(line, known, but)
    if not holders:
        return None
    other = min(holders, key=lambda name: (_folded(name) != _folded(line.name), name))
    there = shown(other)
    if _normal(other) == _normal(line.name):
        points = code_points(other, line.name)
        return (
            f"The listed content lies under `{there}`, another normal form of the name"
            f"{f' ({points})' if points else ''}."
        )
    if _folded(other) == _folded(line.name):
        return f"The listed content lies under `{there}`, a name that differs only in case."
    return f"The listed content lies under another name, `{there}`: rename that, or copy it."


def _holders(line: SumsLine, known: Known, but: str | None) -> list[str]:
    return [name for name in known.holders.get(line.digest, ()) if name not in (line.name, but)]


def _normal(name: str) -> str:
    return unicodedata.normalize("NFC", name)


def _folded(name: str) -> str:
    return _normal(_normal(name).casefold())
