"""The head of a chain of custody, which is signed: it shows that links were cut off at the end."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import Unusable
from ...records.custody_lines import FILE, LIMIT, Line, lines, order_fault
from ...records.custody_schema import is_sha256
from ...records.documents import to_text
from ...records.strict_json import parse_object

HEAD = "custody.head.json"
SCHEMA = "reefkit.custody-head/1"
_LIMIT = 1 << 16


@dataclass(frozen=True)
class Head:
    """The last link's number, how many links there are, and the sha256 of the last line."""

    seq: int
    count: int
    hash: str


def head_document(data: bytes) -> bytes:
    """Give the head of a chain, as `custody.head.json` holds it; the same bytes every time.

    Raises Unusable for a chain that is damaged or empty.
    """
    last: Line | None = None
    for line in lines(data[: LIMIT + 1]):
        fault = order_fault(line, last)
        if fault is not None:
            raise Unusable(
                f"{FILE} is damaged: line {line.number:,} {fault}.",
                remedy="Get it from its source again; what is damaged is not signed.",
            )
        last = line
    if last is None or last.seq is None or len(data) > LIMIT:
        raise Unusable(f"{FILE} is empty or too large.", remedy="Leave it out.")
    head = {"seq": last.seq, "count": last.number, "hash": last.sha256}
    return to_text({"schema": SCHEMA, **head}).encode()


def read_head(data: bytes) -> Head | str:
    """Read a head, or give the sentence that says what is wrong with it."""
    if len(data) > _LIMIT:
        return f"{HEAD} is larger than {_LIMIT >> 10} KiB."
    try:
        document = parse_object(data, HEAD)
    except Unusable as error:
        return error.message
    seq, count, digest = (document.get(key) for key in ("seq", "count", "hash"))
    if document.get("schema") != SCHEMA:
        return f"{HEAD} is no {SCHEMA}."
    if type(seq) is not int or type(count) is not int or not is_sha256(digest):
        return f"{HEAD} lacks a usable `seq`, `count` or `hash`."
    if count < 1 or seq != count - 1:
        return f"{HEAD} contradicts itself: link {seq} cannot be the last of {count}."
    return Head(seq, count, str(digest))
