"""Which commits the evidence says it was made with: in run records and in public reports."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ...errors import ReefError
from ...records.strict_json import Json, parse_object

_OBJECT_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_OWN = ("reefkit.run/1", "reefkit.gate/1", "reefkit.chain/1")
# What public reports call the commit of the code that was measured.
_KEYS = ("rl_kernel_commit", "git_commit", "git_sha")


@dataclass(frozen=True)
class NamedCommit:
    """A commit, the tree that it is said to have, and files of it, as `source` names them."""

    source: str
    commit: str
    tree: str | None = None
    files: Mapping[str, str] = field(default_factory=lambda: dict[str, str](), hash=False)


def named_commits(data: bytes, name: str) -> Iterator[NamedCommit]:
    """Find the commits in a JSON document; none in what is no JSON object."""
    try:
        document = parse_object(data, name)
    except ReefError:
        return
    schema = document.get("schema")
    inner = document.get("provenance")
    provenance = inner if isinstance(inner, dict) else {}
    if schema in _OWN or name.rpartition("/")[2] == "run.json" or "tree" in document:
        yield from _own(document, name)
        yield from _own(provenance, name)
    for place in (document, provenance):
        for key in _KEYS:
            commit = _object_id(place.get(key))
            if commit is not None:
                yield NamedCommit(name, commit)
    revision, files = _object_id(document.get("revision")), document.get("files")
    if revision is not None and isinstance(files, dict):
        digests = {path: sha for path, sha in files.items() if _is_sha256(sha)}
        if digests:
            yield NamedCommit(name, revision, files={k: str(v) for k, v in digests.items()})


def _own(place: Mapping[str, Json], name: str) -> Iterator[NamedCommit]:
    commit = _object_id(place.get("commit"))
    if commit is not None:
        yield NamedCommit(name, commit, _object_id(place.get("tree")))


def _object_id(value: Json) -> str | None:
    return value if isinstance(value, str) and _OBJECT_ID.fullmatch(value) else None


def _is_sha256(value: Json) -> bool:
    return isinstance(value, str) and _SHA256.fullmatch(value) is not None
