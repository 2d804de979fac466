"""The lines of a chain of custody: each an in-toto Statement v1 that names the one before it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from ..errors import Unusable
from .custody_schema import fault_in, is_sha256
from .strict_json import Json, parse_object

FILE = "custody.jsonl"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:reefkit:custody:v1"
LIMIT = 256 << 20


@dataclass(frozen=True)
class ListedFile:
    """A file as a link lists it, among its inputs or its outputs."""

    name: str
    sha256: str
    size: int | None
    elsewhere: bool
    action: str | None


@dataclass(frozen=True)
class Line:
    """One line as it stands there; `number` counts from 1, `sha256` is that of its bytes.

    `fault` says why the line is no custody statement; the fields are then empty. `foreign` is
    the predicate type of a statement that is not about custody.
    """

    number: int
    sha256: str
    predicate: dict[str, Json] = field(default_factory=lambda: {})
    subject: tuple[tuple[str, str], ...] = ()
    fault: str | None = None
    foreign: str | None = None

    @property
    def seq(self) -> int | None:
        """Give the number that the link says it has."""
        value = self.predicate.get("seq")
        return value if type(value) is int else None

    @property
    def stage(self) -> str:
        """Give the stage that wrote the link."""
        value = self.predicate.get("stage")
        return value if isinstance(value, str) else ""

    @property
    def previous(self) -> str | None:
        """Give the sha256 of the line before, as the link says it; None for a first link."""
        value = self.predicate.get("previous")
        digest = value.get("sha256") if isinstance(value, dict) else None
        return digest if isinstance(digest, str) else None

    @property
    def run_id(self) -> str | None:
        """Give the id of the run that wrote the link."""
        value = self.predicate.get("run_id")
        return value if isinstance(value, str) else None

    @property
    def inputs(self) -> tuple[ListedFile, ...]:
        """Give the files that the stage took."""
        return _listed(self.predicate.get("inputs"))

    @property
    def outputs(self) -> tuple[ListedFile, ...]:
        """Give the files that the stage made."""
        return _listed(self.predicate.get("outputs"))

    @property
    def files(self) -> tuple[ListedFile, ...]:
        """Give all of them, what it made last."""
        return self.inputs + self.outputs


def _listed(value: Json) -> tuple[ListedFile, ...]:
    return tuple(
        ListedFile(
            str(each["name"]),
            str(each["sha256"]),
            size if type(size := each.get("size")) is int else None,
            each.get("elsewhere") is True,
            action if isinstance(action := each.get("action"), str) else None,
        )
        for each in (value if isinstance(value, list) else [])
        if isinstance(each, dict)
    )


def lines(data: bytes) -> Iterator[Line]:
    """Read every line; one that is torn, empty or no statement has a `fault`, and is given too."""
    parts = data.split(b"\n")
    torn = parts.pop()
    for number, raw in enumerate(parts, 1):
        yield _line(raw, number)
    if torn:
        digest = hashlib.sha256(torn).hexdigest()
        yield Line(len(parts) + 1, digest, fault="is torn: its end, or its newline, is missing")


def _line(raw: bytes, number: int) -> Line:
    digest = hashlib.sha256(raw).hexdigest()
    try:
        document = parse_object(raw, "it")
    except Unusable as error:
        return Line(number, digest, fault=f"is no statement: {error.message.rstrip('.')}")
    if document.get("_type") != STATEMENT_TYPE:
        return Line(number, digest, fault="is no in-toto Statement v1")
    kind = document.get("predicateType")
    if kind != PREDICATE_TYPE:
        foreign = kind if isinstance(kind, str) else repr(kind)
        return Line(number, digest, fault="has another predicate type", foreign=foreign)
    predicate, subject = document.get("predicate"), _subject(document.get("subject"))
    if not isinstance(predicate, dict) or subject is None:
        return Line(number, digest, fault="has no predicate, or no subject with sha256 digests")
    fault = fault_in(predicate)
    if fault is not None:
        return Line(number, digest, fault=fault)
    return Line(number, digest, predicate, subject)


def _subject(value: Json) -> tuple[tuple[str, str], ...] | None:
    if not isinstance(value, list) or not value:
        return None
    found: list[tuple[str, str]] = []
    for each in value:
        name = each.get("name") if isinstance(each, dict) else None
        digests = each.get("digest") if isinstance(each, dict) else None
        sha256 = digests.get("sha256") if isinstance(digests, dict) else None
        if not isinstance(name, str) or not is_sha256(sha256):
            return None
        found.append((name, str(sha256)))
    return tuple(found)


def order_fault(line: Line, before: Line | None) -> str | None:
    """Say why a line cannot follow the one before it; None where it does."""
    if line.fault is not None:
        return line.fault
    if before is None:
        if line.seq != 0 or line.previous is not None:
            return f"is link {line.seq} and names a predecessor, but nothing comes before it"
        return None
    if before.seq is not None and line.seq != before.seq + 1:
        if line.seq == before.seq:
            return f"repeats the number of the one before it, {before.seq}"
        return f"is link {line.seq}, where {before.seq + 1} must follow {before.seq}"
    if line.previous != before.sha256:
        return "names another predecessor than the line before it"
    return None
