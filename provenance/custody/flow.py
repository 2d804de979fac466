"""Do the links of a chain fit together: in their files, their times and their runs."""

from __future__ import annotations

import datetime
import unicodedata
from collections.abc import Iterator

from ...records.custody_lines import FILE, Line, ListedFile
from ...records.custody_schema import CONTINUED, PACK, moment
from ...records.names import printable
from ..finding import Finding, FindingKind

# Machines disagree about the time, and a stage takes its own before it waits for the chain.
_TOLERATED = datetime.timedelta(minutes=5)


def flow(found: tuple[Line, ...]) -> Iterator[Finding]:
    """Say where links that are each in order cannot all be true."""
    yield from _files(found)
    yield from _times(found)
    yield from _runs(found)
    for line in found:
        if line.stage == CONTINUED and line.seq:
            yield broken(f"is broken: {at(line)} starts anew what has begun already")


def broken(sentence: str) -> Finding:
    """Give the finding that the chain is broken; the sentence goes on after its name."""
    return Finding(FindingKind.CUSTODY_BROKEN, FILE, f"The chain of custody {sentence}.")


def at(line: Line) -> str:
    """Name a line, fit to print."""
    stage = f" ({printable(line.stage[:40])})" if line.stage else ""
    return f"line {line.number:,}{stage}"


def _files(found: tuple[Line, ...]) -> Iterator[Finding]:
    """Hold what a link took against what was last made under that name.

    What is packed must also be what earlier stages looked at.
    """
    made: dict[str, tuple[ListedFile, Line]] = {}
    seen: dict[str, tuple[ListedFile, Line]] = {}
    for line in found:
        for each in line.inputs:
            name = _key(each.name)
            known, verb = made.get(name), "wrote it with"
            if known is None and line.stage == PACK and not each.elsewhere:
                known, verb = seen.get(name), "used"
            if known is not None and _differ(each, known[0]):
                yield broken(
                    f"does not fit together: {at(line)} used {printable(each.name[:200])} with "
                    f"another sha256 or size than {at(known[1])} {verb}"
                )
        seen |= {_key(each.name): (each, line) for each in line.inputs if not each.elsewhere}
        made |= {_key(each.name): (each, line) for each in line.outputs}
        described = {(each.name, each.sha256) for each in line.outputs or line.inputs}
        if line.fault is None and described != set(line.subject):
            yield broken(f"contradicts itself: the subject of {at(line)} is not what it lists")


def _key(name: str) -> str:
    """Give what the spellings of a name have in common that a file system may not tell apart."""
    return unicodedata.normalize("NFC", name)


def _differ(one: ListedFile, other: ListedFile) -> bool:
    sizes = {each.size for each in (one, other) if each.size is not None}
    return one.sha256 != other.sha256 or len(sizes) > 1


def _times(found: tuple[Line, ...]) -> Iterator[Finding]:
    """Tell of time that runs backwards; the date of a link without a run is no clock's."""
    latest: tuple[datetime.datetime, Line] | None = None
    for line in found:
        time = moment(line.predicate.get("time"))
        if time is None or line.run_id is None:
            continue
        if latest is not None and time < latest[0] - _TOLERATED:
            yield broken(
                f"does not fit together: {at(line)} says an earlier time than {at(latest[1])}, "
                "which comes before it"
            )
        if latest is None or time > latest[0]:
            latest = (time, line)


def _runs(found: tuple[Line, ...]) -> Iterator[Finding]:
    """Tell of a run id that stands twice; what starts a chain anew has that of its stage."""
    places: dict[str, Line] = {}
    for line in found:
        if line.run_id is None:
            continue
        earlier = places.setdefault(line.run_id, line)
        same_run = earlier.stage == CONTINUED and line.number == earlier.number + 1
        if earlier is not line and not same_run:
            yield broken(f"is broken: {at(line)} repeats the run id of {at(earlier)}")
