"""A report on its way from JSON: its fields, who measured, and what any report may leave open."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ....records.names import printable
from ....records.strict_json import Json
from ..json_fields import Fields
from ..model import Provenance
from .model import Claim, ForeignReport

REMEDY = "Get the report from its source again, or make it anew."
_OBJECT_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_FALLBACK = frozenset({"fallback", "fallback_used", "used_fallback", "is_fallback"})
_NOT_RUN = frozenset({"skipped", "unavailable", "not_run", "not run", "missing", "notrun"})


@dataclass(frozen=True)
class Source:
    """A parsed report; `name` is the file's own, without folders."""

    document: dict[str, Json]
    label: str
    name: str
    data: bytes

    @property
    def said(self) -> Fields:
        """Its fields."""
        return Fields(self.document, self.label, REMEDY)

    @property
    def schema(self) -> str | None:
        """The schema that it names, under whichever key, or None."""
        for key in ("schema", "schema_version", "kind"):
            value = self.document.get(key)
            if isinstance(value, str):
                return value
        return None


@dataclass(frozen=True)
class Schema:
    """A schema: how a report is told to be of it, and how it is read (raises Unusable)."""

    name: str
    fits: Callable[[Source], bool]
    read: Callable[[Source], ForeignReport]


def named(*names: str) -> Callable[[Source], bool]:
    """Recognise reports that name one of these schemas."""
    return lambda source: source.schema in names


def tracked(said: Fields) -> Provenance:
    """Read commit, dirty flag and environment under RL-Kernel's names. Raises Unusable."""
    return Provenance(
        commit=object_id(said.text("rl_kernel_commit")),
        dirty=said.flag("tracked_tree_dirty"),
        environment=said.mapping("environment"),
    )


def object_id(text: str | None) -> str | None:
    """Give a full commit id, or None for `unknown`, an abbreviation and the like."""
    return text if text is not None and _OBJECT_ID.fullmatch(text) else None


def completed(report: ForeignReport, source: Source) -> ForeignReport:
    """Add the gaps that a report of any schema may have.

    A claimed pass must say that there was no fallback; a fallback, a skipped part, a quick subset,
    a dirty tree and missing provenance are gaps of every report that carries a verdict.
    """
    if report.claim is Claim.NONE:
        return report
    gaps = list(report.gaps)
    who = report.provenance
    if who.commit is None:
        gaps.append("it names no commit")
    if who.dirty is None:
        gaps.append("it does not say whether tracked files had changes")
    elif who.dirty:
        gaps.append("tracked files had changes when it was made")
    if not who.environment:
        gaps.append("it does not say in which environment it was made")
    if source.document.get("quick", False) is not False:
        gaps.append("only a quick subset was run")
    gaps.extend(_told(source.document, claimed=report.claim is Claim.PASSED))
    claim = report.claim
    if claim is Claim.PASSED and any(gap.startswith("only a quick") for gap in gaps):
        claim = Claim.INCOMPLETE
    return replace(report, claim=claim, gaps=tuple(dict.fromkeys(gaps)))


def _told(document: Json, *, claimed: bool) -> list[str]:
    gaps: list[str] = []
    fallbacks: list[Json] = []
    for key, value in walk(document):
        if key in _FALLBACK:
            fallbacks.append(value)
        elif key == "skipped" and value not in (0, False, None, [], {}):
            gaps.append("something was skipped")
        elif key in ("status", "verdict", "result", "outcome") and isinstance(value, str):
            if value.lower() in _NOT_RUN:
                gaps.append(f"a part of it was `{printable(value[:20])}`")
    if any(value is not False for value in fallbacks):
        gaps.append("it does not say that nothing fell back: `fallback` is not false everywhere")
    elif claimed and not fallbacks:
        gaps.append("it does not say `fallback: false`")
    return gaps


def walk(document: Json) -> Iterator[tuple[str, Json]]:
    """Give every key and value of all objects in a document."""
    waiting: list[Json] = [document]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            yield from each.items()
            waiting.extend(each.values())
        elif isinstance(each, list):
            waiting.extend(each)


def parts_failed(document: Json) -> bool:
    """Tell whether any object in a document says `"passed": false`."""
    return any(key == "passed" and value is False for key, value in walk(document))


def claim_of(passed: bool) -> Claim:
    """Give the claim that a flag makes."""
    return Claim.PASSED if passed else Claim.FAILED
