"""The document of `run.json`: who measured what, with which code, on what, after what."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from ...records.strict_json import Json, parse_object
from ..gate.json_fields import Fields
from ..gate.model import Provenance, Topology
from ..gate.topology import read_topology
from .inputs import InputFile

SCHEMA = "reefkit.run/1"
LIMIT = 64 << 20
_UUID4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_OBJECT_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_REMEDY = "Get the run record from its source again; it is written once and never edited."


class RunStatus(str, Enum):
    """How a run ended."""

    PASSED = "passed"
    FAILED = "failed"
    UNAVAILABLE = "unavailable"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class Predecessor:
    """The run before: its execution id, and the SHA-256 of its run record's bytes."""

    id: str
    sha256: str

    def to_json(self) -> dict[str, object]:
        """Give the JSON form."""
        return dict(vars(self))


@dataclass(frozen=True)
class RunRecord:
    """What one rank of a run says of itself; None is what is not known.

    `dirty` is about tracked files; `diff_sha256` is there exactly when it is true.
    `repository_changed`: commit, tree or tracked files were others at the end than at the start.
    `missing` says why commit, tree or dirty is not known, `reason` why the run did not pass.
    """

    execution_id: str
    argv: tuple[str, ...]
    status: RunStatus
    rank: int = 0
    commit: str | None = None
    tree: str | None = None
    dirty: bool | None = None
    diff_sha256: str | None = None
    untracked: int | None = None
    repository_changed: bool = False
    missing: str | None = None
    topology: Topology | None = None
    environment: Mapping[str, Json] | None = field(default=None, hash=False)
    inputs: tuple[InputFile, ...] = ()
    predecessor: Predecessor | None = None
    reason: str | None = None
    tool: Mapping[str, Json] = field(default_factory=lambda: dict[str, Json](), hash=False)

    def to_json(self) -> dict[str, object]:
        """Give the document."""
        return {
            "schema": SCHEMA,
            "execution_id": self.execution_id,
            "argv": list(self.argv),
            "status": self.status.value,
            "reason": self.reason,
            "rank": self.rank,
            "commit": self.commit,
            "tree": self.tree,
            "dirty": self.dirty,
            "diff_sha256": self.diff_sha256,
            "untracked": self.untracked,
            "repository_changed": self.repository_changed,
            "missing": self.missing,
            "topology": None if self.topology is None else self.topology.to_json(),
            "environment": None if self.environment is None else dict(self.environment),
            "inputs": [each.to_json() for each in self.inputs],
            "predecessor": None if self.predecessor is None else self.predecessor.to_json(),
            "tool": dict(self.tool),
        }

    def provenance(self, run_sha256: str | None = None) -> Provenance:
        """Give what a gate's report says of the run; a repository that changed counts as dirty."""
        dirty = True if self.repository_changed else self.dirty
        return Provenance(
            self.execution_id, self.commit, self.tree, dirty, self.environment, run_sha256
        )


def provenance_gaps(record: RunRecord) -> tuple[str, ...]:
    """Name what is missing or speaks against it: a run with any gap is no pass.

    `dirty` where it is not known or tracked files had changes, `status` where the run did not end.
    """
    gaps = [name for name in ("commit", "tree") if getattr(record, name) is None]
    if record.dirty is not False or record.repository_changed:
        gaps.append("dirty")
    gaps += [name for name in ("environment", "topology") if not getattr(record, name)]
    if record.status is RunStatus.INTERRUPTED:
        gaps.append("status")
    return tuple(gaps)


def read_run(data: bytes, label: str) -> RunRecord:
    """Read `run.json`; `label` begins every message. Raises Unusable on anything that is off."""
    said = Fields(parse_object(data, label), label, _REMEDY)
    said.schema(SCHEMA)
    record = RunRecord(
        execution_id=_matching(said, "execution_id", _UUID4, "a random UUID") or "",
        argv=said.texts("argv"),
        status=_status(said),
        reason=_nullable_text(said, "reason"),
        rank=said.count("rank"),
        commit=_matching(said, "commit", _OBJECT_ID, "an object id of git", nullable=True),
        tree=_matching(said, "tree", _OBJECT_ID, "an object id of git", nullable=True),
        dirty=_nullable_flag(said, "dirty"),
        diff_sha256=_nullable_sha256(said, "diff_sha256"),
        untracked=_nullable_count(said, "untracked"),
        repository_changed=said.flag("repository_changed"),
        missing=_nullable_text(said, "missing"),
        topology=_topology(said),
        environment=_nullable_mapping(said, "environment"),
        inputs=_inputs(said),
        predecessor=_predecessor(said),
        tool=said.mapping("tool"),
    )
    said.nothing_else()
    _check(record, said)
    return record


def _check(record: RunRecord, said: Fields) -> None:
    if (record.diff_sha256 is not None) != (record.dirty is True):
        raise said.fault("must have a `diff_sha256` exactly when `dirty` is true")
    if (record.commit is None) != (record.tree is None):
        raise said.fault("names only one of commit and tree")
    if record.commit is None and record.dirty is not None:
        raise said.fault("says how clean a tree was that it does not name")
    if record.status is RunStatus.PASSED and record.reason is not None:
        raise said.fault("passed, and says why it did not")
    world = None if record.topology is None else record.topology.world_size
    if world is not None and record.rank >= world:
        raise said.fault(f"is of rank {record.rank} of {world}, which cannot be")
    if record.predecessor is not None and record.predecessor.id == record.execution_id:
        raise said.fault("names itself as its predecessor")


def _matching(
    said: Fields, name: str, pattern: re.Pattern[str], what: str, *, nullable: bool = False
) -> str | None:
    value = said.required(name)
    if value is None and nullable:
        return None
    if not isinstance(value, str) or pattern.fullmatch(value) is None:
        raise said.fault(f"has a `{name}` that is not {what}")
    return value


def _status(said: Fields) -> RunStatus:
    text = said.text("status")
    try:
        return RunStatus(text)
    except ValueError:
        raise said.fault("has a `status` that is not known") from None


def _nullable_text(said: Fields, name: str) -> str | None:
    said.required(name)
    return said.optional_text(name)


def _nullable_flag(said: Fields, name: str) -> bool | None:
    said.required(name)
    return said.optional_flag(name)


def _nullable_count(said: Fields, name: str) -> int | None:
    said.required(name)
    return said.optional_count(name)


def _nullable_sha256(said: Fields, name: str) -> str | None:
    said.required(name)
    return said.optional_sha256(name)


def _nullable_mapping(said: Fields, name: str) -> dict[str, Json] | None:
    said.required(name)
    return said.optional_mapping(name)


def _topology(said: Fields) -> Topology | None:
    said.required("topology")
    given = said.optional_inner("topology")
    return None if given is None else read_topology(given, complete=True)


def _inputs(said: Fields) -> tuple[InputFile, ...]:
    found: list[InputFile] = []
    for each in said.objects("inputs"):
        found.append(InputFile(each.text("path"), each.sha256("sha256"), each.count("size")))
        each.nothing_else()
    return tuple(found)


def _predecessor(said: Fields) -> Predecessor | None:
    said.required("predecessor")
    given = said.optional_inner("predecessor")
    if given is None:
        return None
    found = Predecessor(
        _matching(given, "id", _UUID4, "a random UUID") or "", given.sha256("sha256")
    )
    given.nothing_else()
    return found
