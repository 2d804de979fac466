"""JSON that comes from outside, read strictly: bounded, no name twice, nothing that is not JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NoReturn, TypeAlias

from ..errors import Unusable
from .names import printable

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

_DEEPEST = 64
_MOST_CONTAINERS = 1_000_000


def parse_object(data: bytes, label: str, *, containers: int = _MOST_CONTAINERS) -> dict[str, Json]:
    """Parse one JSON object by RFC 8259; a name that stands twice in an object is refused.

    Raises Unusable with one sentence that begins with `label`.
    """
    if data.count(b"{") + data.count(b"[") > containers:
        raise _refused(label, f"holds more than {containers:,} objects and lists")
    try:
        document: Json = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_without_repeats,
            parse_float=_finite,
            parse_constant=_no_constant,
        )
    except UnicodeDecodeError as error:
        raise _refused(label, f"is not UTF-8 at offset {error.start:,}") from None
    except json.JSONDecodeError as error:
        reason = error.msg[:1].lower() + error.msg[1:].removesuffix(" at")
        raise _refused(label, f"is not valid JSON at line {error.lineno}: {reason}") from None
    except RecursionError:
        raise _refused(label, f"nests more than {_DEEPEST} deep") from None
    except ValueError as error:
        raise _refused(label, f"is not acceptable JSON: {error}") from None
    if not isinstance(document, dict):
        raise _refused(label, "is not a JSON object")
    if _depth(document) > _DEEPEST:
        raise _refused(label, f"nests more than {_DEEPEST} deep")
    if b"\\u" in data and any(map(_is_broken, _strings(document))):
        raise _refused(label, "holds half a surrogate pair")
    return document


def _refused(label: str, fault: str) -> Unusable:
    return Unusable(f"{label} {fault}.", remedy="Get the file from its source again.")


def _without_repeats(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ValueError(f"`{printable(name[:100])}` is there twice")
            seen.add(name)
    return found


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError("a number is out of range")
    return value


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON value")


def _depth(document: Json) -> int:
    level: list[Json] = [document]
    depth = 0
    while level:
        containers = [each for each in level if isinstance(each, (dict, list))]
        depth += bool(containers)
        level = [inner for each in containers for inner in _inner(each)]
    return depth


def _inner(container: dict[str, Json] | list[Json]) -> Iterator[Json]:
    yield from container.values() if isinstance(container, dict) else container


def _strings(document: Json) -> Iterator[str]:
    waiting: list[Json] = [document]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, (dict, list)):
            if isinstance(each, dict):
                yield from each
            waiting.extend(_inner(each))


def _is_broken(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False
