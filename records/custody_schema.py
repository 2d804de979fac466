"""What a link of custody may say: each key that is documented, and the type that it must have.

A key that reads as another type would be passed over by whoever compares links, so that a link
could hide what it says. Keys that are not documented say nothing, and are left alone.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

from .strict_json import Json

CONTINUED = "continued"
WITHDRAWN = "withdrawn"
SUPERSEDED = "superseded-by"
PACK = "pack"
ACTIONS = frozenset({"carried", "rebuilt", "copied", "dropped"})

_SHA256 = re.compile(r"[0-9a-f]{64}")
_RUN_ID = re.compile(r"[0-9a-f]{32}")
_STAGE = re.compile(r"[a-z][a-z0-9-]{0,63}")
_REDACTION = re.compile(r"[a-z0-9][a-z0-9./-]{0,63}")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_SPECIAL = {each.replace("-", ""): each for each in (CONTINUED, WITHDRAWN, SUPERSEDED)}
_WITHOUT_RUN = frozenset({PACK, CONTINUED})
_WITH_REASON = frozenset({CONTINUED, WITHDRAWN, SUPERSEDED})
_ALWAYS = ("stage", "seq", "previous", "run_id", "time", "inputs", "outputs", "verdict", "tool")
_Check: TypeAlias = "Callable[[Json], bool]"


def fault_in(predicate: Mapping[str, Json]) -> str | None:
    """Say what is wrong with the predicate of a link; None where nothing is."""
    for key in _ALWAYS:
        if key not in predicate:
            return f"has no `{key}`"
    stage = predicate["stage"]
    if not isinstance(stage, str) or _STAGE.fullmatch(stage) is None:
        return "names no usable stage"
    meant = _SPECIAL.get(stage.replace("-", ""))
    if meant is not None and meant != stage:
        return f"names a stage that looks like `{meant}` and is not"
    for key, check in _KEYS.items():
        if key in predicate and not check(predicate[key]):
            return f"has an unusable `{key}`"
    for key in ("inputs", "outputs"):
        fault = _fault_in_files(predicate[key], key)
        if fault is not None:
            return fault
    if predicate["run_id"] is None and stage not in _WITHOUT_RUN:
        return "has no `run_id`, which only a stage that repeats exactly may lack"
    if stage in _WITH_REASON and predicate.get("reason") is None:
        return "gives no `reason`"
    if stage == SUPERSEDED and predicate.get("by") is None:
        return "does not say by what, in `by`"
    return None


def moment(value: Json) -> datetime.datetime | None:
    """Give the time that a link says; None where it says none."""
    if not isinstance(value, str) or _TIME.fullmatch(value) is None:
        return None
    try:
        return datetime.datetime.fromisoformat(value[:-1])
    except ValueError:
        return None


def is_sha256(value: object) -> bool:
    """Tell whether something is a sha256 in lower-case hex."""
    return isinstance(value, str) and _SHA256.fullmatch(value) is not None


def _fault_in_files(value: Json, key: str) -> str | None:
    if not isinstance(value, list):
        return f"has `{key}` that are no list"
    said: dict[str, Json] = {}
    for each in value:
        if not isinstance(each, dict) or not is_sha256(each.get("sha256")):
            return f"has `{key}` without names and sha256 digests"
        name, elsewhere = each.get("name"), each.get("elsewhere", False)
        if type(elsewhere) is not bool or (elsewhere and key == "outputs"):
            return f"has an unusable `elsewhere` in its `{key}`"
        if not isinstance(name, str) or not name or not (elsewhere or _is_plain(name)):
            return f"has a name in its `{key}` that is not the plain name of a file in its folder"
        for inner, check in _FILE_KEYS.items():
            if inner in each and not check(each[inner]):
                return f"has an unusable `{inner}` in its `{key}`"
        if not elsewhere and said.setdefault(name, each["sha256"]) != each["sha256"]:
            return f"gives one file two digests in its `{key}`"
    return None


def _is_plain(name: str) -> bool:
    """Tell whether this is the one spelling of a name in the chain's folder."""
    return "\0" not in name and not {"", ".", ".."}.intersection(name.split("/"))


def _or_null(check: _Check) -> _Check:
    return lambda value: value is None or check(value)


def _is_text(value: Json) -> bool:
    return isinstance(value, str)


def _is_said(value: Json) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_count(value: Json) -> bool:
    return type(value) is int and value >= 0


def _is_object(value: Json) -> bool:
    return isinstance(value, dict)


def _is_action(value: Json) -> bool:
    return isinstance(value, str) and value in ACTIONS


def _is_digest_object(value: Json) -> bool:
    return isinstance(value, dict) and is_sha256(value.get("sha256"))


def _is_tool(value: Json) -> bool:
    return (
        isinstance(value, dict)
        and _is_said(value.get("name"))
        and _is_said(value.get("version"))
        and _or_null(_is_text)(value.get("commit"))
    )


def _is_run_id(value: Json) -> bool:
    return isinstance(value, str) and _RUN_ID.fullmatch(value) is not None


def _is_time(value: Json) -> bool:
    return moment(value) is not None


def _is_list_of(check: _Check) -> _Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


def _is_redaction(value: Json) -> bool:
    return isinstance(value, str) and _REDACTION.fullmatch(value) is not None


def _is_counts(value: Json) -> bool:
    return isinstance(value, dict) and all(map(_is_count, value.values()))


def _is_blocked(value: Json) -> bool:
    return isinstance(value, dict) and all(map(_is_text, (value.get("name"), value.get("reason"))))


def _is_range(value: Json) -> bool:
    if not isinstance(value, dict):
        return False
    return (
        all(_is_count(value.get(key)) for key in ("offset", "bytes"))
        and ("action" not in value or _is_action(value["action"]))
        and ("from" not in value or is_sha256(value["from"]))
        and ("from_offset" not in value or _is_count(value["from_offset"]))
    )


def _is_tensor(value: Json) -> bool:
    return (
        isinstance(value, dict)
        and _is_action(value.get("action"))
        and all(_is_list_of(_is_range)(value.get(key, [])) for key in ("ranges", "unread"))
        and type(value.get("changed_in_memory", False)) is bool
    )


def _is_tensors(value: Json) -> bool:
    return isinstance(value, dict) and all(map(_is_tensor, value.values()))


def _is_header(value: Json) -> bool:
    return (
        isinstance(value, dict)
        and _is_action(value.get("action"))
        and _or_null(_is_text)(value.get("from"))
    )


_KEYS: Mapping[str, _Check] = {
    "seq": _is_count,
    "previous": _or_null(_is_digest_object),
    "run_id": _or_null(_is_run_id),
    "resumes": _or_null(is_sha256),
    "unrecorded": _or_null(_is_text),
    "verdict": _or_null(_is_text),
    "time": _or_null(_is_time),
    "tool": _is_tool,
    "process": _is_object,
    "blocked": _is_list_of(_is_blocked),
    "sources": _is_counts,
    "base": _or_null(_is_text),
    "expected": _is_count,
    "found": _is_count,
    "damage": _is_count,
    "not_checked": _is_list_of(_is_text),
    "redaction": _is_redaction,
    "reason": _or_null(_is_said),
    "by": _or_null(_is_said),
}
_FILE_KEYS: Mapping[str, _Check] = {
    "size": _or_null(_is_count),
    "action": _is_action,
    "tensors": _is_tensors,
    "header": _is_header,
    "from": _is_object,
    "verdict": _is_text,
}
