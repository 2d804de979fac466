"""What a gate knows: topology, cells, what became of them, the report of a rank, of the chain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum

from ...errors import ExitCode
from ...records.strict_json import Json
from ...records.tool import tool_identity

RANK_SCHEMA = "reefkit.gate/1"
CHAIN_SCHEMA = "reefkit.chain/1"


class CellStatus(str, Enum):
    """What became of a cell; only the first is ever a pass."""

    PASSED = "passed"
    FAILED = "failed"
    UNAVAILABLE = "unavailable"
    SKIPPED = "skipped"
    MISSING = "missing"


class GateVerdict(str, Enum):
    """What is said of a chain; the worst that was found decides."""

    PASSED = "PASSED"
    INCOMPLETE = "INCOMPLETE"
    FAILED = "FAILED"


@dataclass(frozen=True)
class Topology:
    """How a model is spread: tensor, pipeline, expert, expert-tensor and context parallel sizes."""

    tp: int = 1
    pp: int = 1
    ep: int = 1
    etp: int = 1
    cp: int = 1
    world_size: int = 1

    def to_json(self) -> dict[str, int]:
        """Give the JSON form."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def __str__(self) -> str:
        """Name it for people: what is 1 is left out, but for the world size."""
        sizes = {name: size for name, size in self.to_json().items() if size != 1}
        sizes["world_size"] = self.world_size
        return " ".join(f"{name}={size}" for name, size in sizes.items())


@dataclass(frozen=True)
class ArtifactRecord:
    """One artifact as it was when the cell ended; the name is relative to the cell's folder.

    `reference_sha256` is that of the file it was compared with, None where there was none.
    """

    name: str
    sha256: str
    size: int
    reference_sha256: str | None = None

    def to_json(self) -> dict[str, object]:
        """Give the JSON form."""
        return dict(vars(self))


@dataclass(frozen=True)
class Place:
    """Where in a model a tensor stands, by its name; `family` is "other" where no rule fits."""

    layer: int | None
    family: str
    node: str | None


@dataclass(frozen=True)
class Difference:
    """Where an artifact parts from its reference: the first element of the first tensor.

    `tensor` is None where the file as a whole differs, `element` (counted in elements of the
    tensor, in bytes without one) where no single element does. `different` of `total` elements
    or bytes differ, None where they cannot be held against each other. `position` is the
    artifact's place in the order of execution within the cell.
    """

    artifact: str
    tensor: str | None
    reason: str
    element: int | None = None
    different: int | None = None
    total: int | None = None
    place: Place | None = None
    position: int = 0

    def to_json(self) -> dict[str, object]:
        """Give the JSON form, with layer, family and node beside the rest."""
        found: dict[str, object] = {name: value for name, value in vars(self).items()}
        place = found.pop("place")
        return {**found, **(vars(place) if isinstance(place, Place) else {})}


@dataclass(frozen=True)
class CellResult:
    """What became of one cell on one rank.

    `reason` says why it did not pass, and is None exactly when it passed. `fallback` is what the
    cell itself said of it, None when it said nothing. `differences` are in order of execution.
    `compared` counts the artifacts that were held against a reference.
    """

    id: str
    status: CellStatus
    reason: str | None = None
    artifacts: tuple[ArtifactRecord, ...] = ()
    differences: tuple[Difference, ...] = ()
    compared: int = 0
    exit_code: int | None = None
    fallback: bool | None = None
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """Give the JSON form."""
        return {
            "id": self.id,
            "status": self.status.value,
            "reason": self.reason,
            "artifacts": [artifact.to_json() for artifact in self.artifacts],
            "differences": [difference.to_json() for difference in self.differences],
            "compared": self.compared,
            "exit_code": self.exit_code,
            "fallback": self.fallback,
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class Provenance:
    """Who measured it: what a report must say of the run, None where it does not.

    `dirty` is about tracked files. `run_sha256` is that of the run record's bytes.
    """

    execution_id: str | None = None
    commit: str | None = None
    tree: str | None = None
    dirty: bool | None = None
    environment: Mapping[str, Json] | None = field(default=None, hash=False)
    run_sha256: str | None = None

    def lacking(self) -> tuple[str, ...]:
        """Name what is not known; a run that lacks any of it cannot pass."""
        needed = ("execution_id", "commit", "tree", "dirty", "environment")
        return tuple(name for name in needed if getattr(self, name) in (None, "", {}))

    def to_json(self) -> dict[str, object]:
        """Give the JSON form."""
        return dict(vars(self))


@dataclass(frozen=True)
class PredecessorRecord:
    """The stage before, as it was when this one began; `sha256` is that of its chain report."""

    stage: str
    config_fingerprint: str
    sha256: str
    commit: str | None = None

    def to_json(self) -> dict[str, object]:
        """Give the JSON form."""
        return dict(vars(self))


@dataclass(frozen=True)
class RankReport:
    """What one rank did: `rank-N.json`.

    `manifest_sha256` is that of the manifest's bytes, `manifest_path` where it lay as seen from
    the report's folder. `quick`: only a subset was asked for. `contradictions` say, fit to print,
    where a report that was read is not of one mind.
    """

    stage: str
    config_fingerprint: str
    rank: int
    topology: Topology
    cells: tuple[CellResult, ...]
    provenance: Provenance
    manifest_sha256: str | None = None
    manifest_path: str | None = None
    quick: bool = False
    predecessor: PredecessorRecord | None = None
    contradictions: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Say whether every cell passed here, for people; what a chain says is judged anew."""
        whole = bool(self.cells) and not self.quick and not self.provenance.lacking()
        return whole and all(cell.status is CellStatus.PASSED for cell in self.cells)

    def to_json(self) -> dict[str, object]:
        """Give the document."""
        return {
            "schema": RANK_SCHEMA,
            "stage": self.stage,
            "config_fingerprint": self.config_fingerprint,
            "rank": self.rank,
            "topology": self.topology.to_json(),
            "passed": self.passed,
            "quick": self.quick,
            "manifest_sha256": self.manifest_sha256,
            "manifest_path": self.manifest_path,
            "provenance": self.provenance.to_json(),
            "predecessor": None if self.predecessor is None else self.predecessor.to_json(),
            "cells": [cell.to_json() for cell in self.cells],
            "tool": tool_identity(),
        }


@dataclass(frozen=True)
class Drift:
    """The first divergence, by order of execution."""

    stage: str
    cell: str
    rank: int | None
    layer: int | None
    family: str | None
    node: str | None
    tensor: str | None
    artifact: str | None = None
    element: int | None = None
    reason: str | None = None

    def to_json(self) -> dict[str, object]:
        """Give the JSON form."""
        return dict(vars(self))


@dataclass(frozen=True)
class ChainCell:
    """One cell over all ranks: the worst of its results, and on which rank."""

    id: str
    status: CellStatus
    reason: str | None = None
    rank: int | None = None
    compared: int = 0

    def to_json(self) -> dict[str, object]:
        """Give the JSON form."""
        return {**vars(self), "status": self.status.value}


@dataclass(frozen=True)
class ChainReport:
    """What a gate came to, over all ranks: `chain.json`.

    `reasons` are sentences, fit to print, that say why it is no pass (none exactly when it is);
    `notes` say what else should be known. `ranks` are those whose reports were there.
    """

    stage: str
    config_fingerprint: str | None
    cells: tuple[ChainCell, ...]
    verdict: GateVerdict
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    first_drift: Drift | None = None
    topology: Topology | None = None
    ranks: tuple[int, ...] = ()
    commit: str | None = None
    tree: str | None = None
    dirty: bool | None = None
    predecessor: PredecessorRecord | None = None
    reports: Mapping[str, str] = field(default_factory=lambda: dict[str, str](), hash=False)

    @property
    def passed(self) -> bool:
        """Say whether it is a pass."""
        return self.verdict is GateVerdict.PASSED

    @property
    def exit_code(self) -> ExitCode:
        """Give the exit code."""
        return ExitCode.HOLDS if self.passed else ExitCode.DOES_NOT_HOLD

    def to_json(self) -> dict[str, object]:
        """Give the document; `reports` maps the names of the rank reports to their sha256."""
        return {
            "schema": CHAIN_SCHEMA,
            "stage": self.stage,
            "passed": self.passed,
            "verdict": self.verdict.value,
            "reasons": list(self.reasons),
            "notes": list(self.notes),
            "config_fingerprint": self.config_fingerprint,
            "topology": None if self.topology is None else self.topology.to_json(),
            "ranks": list(self.ranks),
            "cells": [cell.to_json() for cell in self.cells],
            "first_drift": None if self.first_drift is None else self.first_drift.to_json(),
            "commit": self.commit,
            "tree": self.tree,
            "dirty": self.dirty,
            "predecessor": None if self.predecessor is None else self.predecessor.to_json(),
            "reports": dict(self.reports),
            "tool": tool_identity(),
        }
