"""Read a chain of custody: is it whole, does it end where its signed head says, what does it tell.

The format is described in docs/custody.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...records.custody import BROKEN, CONTINUED, NOT_REDACTED, PACK
from ...records.custody_lines import FILE, LIMIT, Line, lines, order_fault
from ...records.names import printable
from ...records.strict_json import Json
from ..finding import Finding, FindingKind
from .head import HEAD, Head, read_head
from .statements import SUPERSEDED, WITHDRAWN, standing_of

_MOST_LINES = 100_000
_MOST_TOLD = 20


@dataclass(frozen=True)
class Link:
    """One link: its number, stage, the sha256 of its line, and the whole predicate."""

    seq: int
    stage: str
    sha256: str
    predicate: dict[str, Json]
    subject: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Chain:
    """The links that could be read, in their order, and what is to be said about them."""

    links: tuple[Link, ...]
    findings: tuple[Finding, ...]


def read_chain(data: bytes, head: bytes | None) -> Chain:
    """Read `custody.jsonl`, and hold it against its head where there is one. Raises nothing.

    Without a head, links that were cut off at the end cannot be missed.
    """
    if len(data) > LIMIT or data.count(b"\n") > _MOST_LINES:
        return Chain((), (_broken(f"is larger than {LIMIT >> 20} MiB or {_MOST_LINES:,} links"),))
    found = tuple(lines(data))
    findings = [*_order(found), *_flow(found), *_standing(found), *_redaction(found)]
    if head is not None:
        findings += _against_head(found, head)
    return Chain(tuple(_link(line) for line in found if line.fault is None), tuple(findings))


def _redaction(found: tuple[Line, ...]) -> Iterator[Finding]:
    packed = [line for line in found if line.fault is None and line.stage == PACK]
    if packed and packed[-1].predicate.get("redaction") == NOT_REDACTED:
        text = "It was packed as it was: what it says of machines and people was not redacted."
        yield Finding(FindingKind.NOT_REDACTED, FILE, text)


def _link(line: Line) -> Link:
    return Link(line.seq or 0, line.stage, line.sha256, line.predicate, line.subject)


def _broken(sentence: str) -> Finding:
    return Finding(FindingKind.CUSTODY_BROKEN, FILE, f"The chain of custody {sentence}.")


def _at(line: Line) -> str:
    stage = f" ({printable(line.stage[:40])})" if line.stage else ""
    return f"line {line.number:,}{stage}"


def _order(found: tuple[Line, ...]) -> Iterator[Finding]:
    told = 0
    before: Line | None = None
    places = {line.sha256: line.number for line in found}
    for line in found:
        fault = order_fault(line, before)
        before = line
        if fault is None:
            continue
        told += 1
        if told > _MOST_TOLD:
            yield _broken("has more breaks than are listed here")
            return
        if line.foreign is not None:
            yield Finding(
                FindingKind.PREDICATE_TYPE,
                FILE,
                f"In the chain of custody, {_at(line)} has the predicate type "
                f"{printable(line.foreign[:80])}, which says nothing about custody.",
            )
        else:
            yield _broken(f"is broken: {_at(line)} {printable(fault)}{_named(line, places)}")


def _named(line: Line, places: dict[str, int]) -> str:
    """Tell where the link is that a line names as its predecessor, when it is elsewhere."""
    place = places.get(line.previous or "")
    if line.fault is not None or place is None or place == line.number - 1:
        return ""
    return f"; the one that it names is line {place:,}: links were reordered or inserted"


def _against_head(found: tuple[Line, ...], data: bytes) -> Iterator[Finding]:
    head = read_head(data)
    if not isinstance(head, Head):
        yield Finding(FindingKind.CUSTODY_BROKEN, HEAD, head)
        return
    count = len(found)
    if count < head.count:
        missing = head.count - count
        yield Finding(
            FindingKind.CUSTODY_TRUNCATED,
            FILE,
            f"The chain of custody has {count:,} of the {head.count:,} links that its head "
            f"counts: {missing:,} {'is' if missing == 1 else 'are'} missing.",
        )
        return
    if count > head.count:
        yield _broken(
            f"goes on after the signed head, which counts {head.count:,} of its {count:,} links"
        )
    last = found[head.count - 1]
    if last.sha256 != head.hash or last.seq != head.seq:
        yield _broken(f"is not the one of its head: {_at(last)} is another link than it names")


def _flow(found: tuple[Line, ...]) -> Iterator[Finding]:
    """Hold what a link took against what was last made under that name."""
    made: dict[str, tuple[str, Line]] = {}
    for line in found:
        for name, digest, elsewhere in _artifacts(line, "inputs"):
            if elsewhere or name not in made or made[name][0] == digest:
                continue
            yield _broken(
                f"does not fit together: {_at(line)} used {printable(name[:200])} with another "
                f"sha256 than {_at(made[name][1])} wrote it with"
            )
        outputs = _artifacts(line, "outputs")
        for name, digest, _ in outputs:
            made[name] = (digest, line)
        described = {(name, digest) for name, digest, _ in outputs or _artifacts(line, "inputs")}
        if line.fault is None and described != set(line.subject):
            yield _broken(f"contradicts itself: the subject of {_at(line)} is not what it lists")


def _artifacts(line: Line, key: str) -> list[tuple[str, str, bool]]:
    listed = line.predicate.get(key)
    return [
        (str(each["name"]), str(each["sha256"]), each.get("elsewhere") is True)
        for each in (listed if isinstance(listed, list) else [])
        if isinstance(each, dict)
    ]


def _standing(found: tuple[Line, ...]) -> Iterator[Finding]:
    """Say what the links themselves say: gaps, runs that went on, withdrawn, superseded."""
    earlier: dict[str, Line] = {}
    for line in found:
        if line.stage == CONTINUED:
            names = ", ".join(name for name, _, _ in _artifacts(line, "inputs")) or BROKEN
            yield Finding(
                FindingKind.NOT_CHECKED,
                FILE,
                f"The chain of custody starts anew at {_at(line)}: what came before it is in "
                f"{printable(names[:200])}, is damaged, and was not checked.",
            )
        if line.stage in (WITHDRAWN, SUPERSEDED):
            yield standing_of(line.stage, line.predicate, FILE)
        yield from _resumed(line, earlier)
        earlier[line.sha256] = line


def _resumed(line: Line, earlier: dict[str, Line]) -> Iterator[Finding]:
    resumes, unrecorded = (line.predicate.get(key) for key in ("resumes", "unrecorded"))
    if isinstance(unrecorded, str):
        yield Finding(
            FindingKind.RESUMED, FILE, f"{_at(line).capitalize()}: {printable(unrecorded[:400])}"
        )
    if not isinstance(resumes, str):
        return
    resumed = earlier.get(resumes)
    if resumed is None or resumed.stage != line.stage:
        yield _broken(
            f"is broken: {_at(line)} resumes a run of its stage that is not in the chain before it"
        )
    else:
        yield Finding(FindingKind.RESUMED, FILE, f"In custody, {_at(line)} resumed {_at(resumed)}.")
