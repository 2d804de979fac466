"""Read a chain of custody: is it whole, does it end where its signed head says, what does it tell.

The format is described in docs/custody.md.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ...records.custody import BROKEN, NOT_REDACTED, Action
from ...records.custody_lines import FILE, LIMIT, Line, ListedFile, lines, order_fault
from ...records.custody_schema import CONTINUED, PACK, SUPERSEDED, WITHDRAWN
from ...records.names import decoded, printable
from ...records.strict_json import Json
from ..finding import Finding, FindingKind
from .flow import at, broken, flow
from .head import HEAD, Head, read_head
from .statements import standing_of

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
    inputs: tuple[ListedFile, ...] = ()
    outputs: tuple[ListedFile, ...] = ()


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
        return Chain((), (broken(f"is larger than {LIMIT >> 20} MiB or {_MOST_LINES:,} links"),))
    found = tuple(lines(data))
    if not found and head is None:
        text = "The chain of custody is empty: it says nothing of any file."
        return Chain((), (Finding(FindingKind.NOTHING_VERIFIED, FILE, text),))
    findings = [*_order(found), *flow(found), *_standing(found), *_redaction(found)]
    if head is not None:
        findings += _against_head(found, head)
    return Chain(tuple(_link(line) for line in found if line.fault is None), tuple(findings))


def final_outputs(chain: Chain) -> Mapping[str, str]:
    """Give the sha256 that each file was last written with, by its name in the chain's folder.

    A file that was dropped since is left out.
    """
    made: dict[str, str] = {}
    for link in chain.links:
        for each in link.outputs:
            if each.action == Action.DROPPED:
                made.pop(each.name, None)
            else:
                made[each.name] = each.sha256
    return made


def against_files(
    chain: Chain, digests: Mapping[str, str], *, folder: str = ""
) -> Iterator[Finding]:
    """Hold files that are there, by name and sha256, against the chain's last word on each.

    That is what the last stage wrote, or read where none wrote it. What is not there any more is
    no finding. `folder` is where the chain lies, when it is not among the files themselves.
    """
    before = f"{folder.rstrip('/')}/" if folder else ""
    there = {_key(name): (name, digest) for name, digest in digests.items()}
    for name, (digest, stage, wrote) in _last_words(chain).items():
        path, found = there.get(_key(before + name), (None, digest))
        if found != digest:
            yield Finding(
                FindingKind.CUSTODY_BROKEN,
                path,
                f"It is not what stage `{stage}` {'wrote' if wrote else 'used'}: the chain of "
                f"custody says sha256 {digest[:16]}…, and it has {found[:16]}….",
            )


def _last_words(chain: Chain) -> dict[str, tuple[str, str, bool]]:
    """Give sha256 and stage of the last output of each name, else of its last input."""
    found: dict[str, tuple[str, str, bool]] = {}
    written: dict[str, tuple[str, str, bool]] = {}
    for link in chain.links:
        for each in link.inputs:
            if not each.elsewhere:
                found[each.name] = (each.sha256, link.stage, False)
        for each in link.outputs:
            if each.action == Action.DROPPED:
                found.pop(each.name, None)
                written.pop(each.name, None)
            else:
                written[each.name] = (each.sha256, link.stage, True)
    return found | written


def _key(name: str) -> str:
    return unicodedata.normalize("NFC", decoded(name))


def _redaction(found: tuple[Line, ...]) -> Iterator[Finding]:
    packed = [line for line in found if line.fault is None and line.stage == PACK]
    if packed and packed[-1].predicate.get("redaction") == NOT_REDACTED:
        text = "It was packed as it was: what it says of machines and people was not redacted."
        yield Finding(FindingKind.NOT_REDACTED, FILE, text)


def _link(line: Line) -> Link:
    said = line.predicate, line.subject, line.inputs, line.outputs
    return Link(line.seq or 0, line.stage, line.sha256, *said)


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
            yield broken("has more breaks than are listed here")
            return
        if line.foreign is not None:
            yield Finding(
                FindingKind.PREDICATE_TYPE,
                FILE,
                f"In the chain of custody, {at(line)} has the predicate type "
                f"{printable(line.foreign[:80])}, which says nothing about custody.",
            )
        else:
            yield broken(f"is broken: {at(line)} {printable(fault)}{_named(line, places)}")


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
        yield broken(
            f"goes on after the signed head, which counts {head.count:,} of its {count:,} links"
        )
    last = found[head.count - 1]
    if last.sha256 != head.hash or last.seq != head.seq:
        yield broken(f"is not the one of its head: {at(last)} is another link than it names")


def _standing(found: tuple[Line, ...]) -> Iterator[Finding]:
    """Say what the links themselves say: gaps, runs that went on, withdrawn, superseded."""
    earlier: dict[str, Line] = {}
    for line in found:
        if line.stage == CONTINUED:
            names = ", ".join(each.name for each in line.inputs) or BROKEN
            yield Finding(
                FindingKind.NOT_CHECKED,
                FILE,
                f"The chain of custody starts anew at {at(line)}: what came before it is in "
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
            FindingKind.RESUMED, FILE, f"{at(line).capitalize()}: {printable(unrecorded[:400])}"
        )
    if not isinstance(resumes, str):
        return
    resumed = earlier.get(resumes)
    if resumed is None or resumed.stage != line.stage:
        yield broken(
            f"is broken: {at(line)} resumes a run of its stage that is not in the chain before it"
        )
    else:
        yield Finding(FindingKind.RESUMED, FILE, f"In custody, {at(line)} resumed {at(resumed)}.")
