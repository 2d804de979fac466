"""Read the reports of ranks and of chains, strictly and bounded.

What they say passed is parsed and never believed: `judge` asks the artifacts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...records.names import printable
from ...records.strict_json import Json, parse_object
from .json_fields import Fields
from .model import (
    CHAIN_SCHEMA,
    RANK_SCHEMA,
    ArtifactRecord,
    CellResult,
    CellStatus,
    ChainCell,
    ChainReport,
    Difference,
    Drift,
    GateVerdict,
    Place,
    PredecessorRecord,
    Provenance,
    RankReport,
)
from .topology import read_topology

LIMIT = 256 << 20
_MOST_FAULTS = 8
_REMEDY = "Get the report from its source again, or run the stage again."


def parse_rank_report(data: bytes, label: str) -> RankReport:
    """Parse `rank-N.json`. Raises Unusable where it is cut short, no object or lacks a key."""
    return read_rank_report(parse_object(data, label), label)


def read_rank_report(document: dict[str, Json], label: str) -> RankReport:
    """Read a parsed `rank-N.json`; keys that are not known are passed over. Raises Unusable."""
    said = Fields(document, label, _REMEDY)
    said.schema(RANK_SCHEMA)
    topology = read_topology(said.inner("topology"), complete=True)
    rank = said.count("rank")
    if rank >= topology.world_size:
        raise said.fault(f"is of rank {rank} of {topology.world_size}, which cannot be")
    cells = tuple(_cell(each) for each in said.objects("cells"))
    if len({cell.id for cell in cells}) != len(cells):
        raise said.fault("has a cell twice")
    passed = said.flag("passed")
    report = RankReport(
        stage=said.text("stage"),
        config_fingerprint=said.sha256("config_fingerprint"),
        rank=rank,
        topology=topology,
        cells=cells,
        provenance=_provenance(said.inner("provenance")),
        manifest_sha256=said.optional_sha256("manifest_sha256"),
        manifest_path=said.optional_text("manifest_path"),
        quick=said.flag("quick"),
        predecessor=_predecessor(said),
    )
    found = [f"{fault} for cell `{printable(c.id)}`" for c in cells for fault in _faults(c)]
    if passed != report.passed:
        found.insert(0, f'`"passed": {str(passed).lower()}` and what does not go with it')
    return replace(report, contradictions=tuple(found[:_MOST_FAULTS]))


def _faults(cell: CellResult) -> Iterator[str]:
    """Say what in a cell's result does not go with its status."""
    if cell.status is not CellStatus.PASSED:
        if not cell.reason:
            yield f"`{cell.status.value}` without a reason"
        return
    if cell.reason is not None:
        yield "`passed` and a reason why it did not"
    if cell.differences:
        yield "`passed` and differences"
    if cell.fallback:
        yield "`passed` and a fallback"
    if cell.exit_code != 0:
        yield "`passed` and a command that did not end well"


def _provenance(said: Fields) -> Provenance:
    return Provenance(
        execution_id=said.optional_text("execution_id"),
        commit=said.optional_text("commit"),
        tree=said.optional_text("tree"),
        dirty=said.optional_flag("dirty"),
        environment=said.optional_mapping("environment"),
        run_sha256=said.optional_sha256("run_sha256"),
    )


def _predecessor(said: Fields) -> PredecessorRecord | None:
    given = said.optional_inner("predecessor")
    if given is None:
        return None
    return PredecessorRecord(
        stage=given.text("stage"),
        config_fingerprint=given.sha256("config_fingerprint"),
        sha256=given.sha256("sha256"),
        commit=given.optional_text("commit"),
    )


def _status(said: Fields) -> CellStatus:
    text = said.text("status")
    try:
        return CellStatus(text)
    except ValueError:
        raise said.fault("has a `status` that is not known") from None


def _cell(said: Fields) -> CellResult:
    exit_code = said.get("exit_code")
    if exit_code is not None and (not isinstance(exit_code, int) or isinstance(exit_code, bool)):
        raise said.fault("has an `exit_code` that is no integer")
    artifacts = tuple(
        ArtifactRecord(
            each.text("name"),
            each.sha256("sha256"),
            each.count("size"),
            each.optional_sha256("reference_sha256"),
        )
        for each in said.objects("artifacts")
    )
    if len({artifact.name for artifact in artifacts}) != len(artifacts):
        raise said.fault("has an artifact twice")
    return CellResult(
        id=said.text("id"),
        status=_status(said),
        reason=said.optional_text("reason"),
        artifacts=artifacts,
        differences=tuple(_difference(each) for each in said.objects("differences")),
        compared=said.count("compared"),
        exit_code=exit_code,
        fallback=said.optional_flag("fallback"),
        notes=said.texts("notes"),
    )


def _difference(said: Fields) -> Difference:
    family = said.optional_text("family")
    place = Place(said.optional_count("layer"), family or "other", said.optional_text("node"))
    return Difference(
        artifact=said.text("artifact"),
        tensor=said.optional_text("tensor"),
        reason=said.text("reason"),
        element=said.optional_count("element"),
        different=said.optional_count("different"),
        total=said.optional_count("total"),
        place=None if family is None else place,
        position=said.optional_count("position") or 0,
    )


def parse_chain_report(data: bytes, label: str) -> ChainReport:
    """Parse `chain.json`. Raises Unusable where it is cut short, no object or lacks a key."""
    return read_chain_report(parse_object(data, label), label)


def read_chain_report(document: dict[str, Json], label: str) -> ChainReport:
    """Read a parsed `chain.json`; one that contradicts itself is not a pass. Raises Unusable."""
    said = Fields(document, label, _REMEDY)
    said.schema(CHAIN_SCHEMA)
    passed = said.flag("passed")
    cells = tuple(
        ChainCell(
            id=each.text("id"),
            status=_status(each),
            reason=each.optional_text("reason"),
            rank=each.optional_count("rank"),
            compared=each.optional_count("compared") or 0,
        )
        for each in said.objects("cells")
    )
    said.required("first_drift")
    drift = _drift(said)
    reasons = said.texts("reasons")
    whole = bool(cells) and all(
        cell.status is CellStatus.PASSED and cell.reason is None for cell in cells
    )
    verdict = said.text("verdict")
    if verdict not in {each.value for each in GateVerdict}:
        raise said.fault("has a `verdict` that is not known")
    believable = passed and whole and drift is None and not reasons and verdict == "PASSED"
    if passed and not believable:
        reasons = (*reasons, "The chain report contradicts itself: it says that it passed.")
    topology = said.optional_inner("topology")
    reports = said.optional_mapping("reports") or {}
    digests = Fields(reports, f"`reports` of {label}", _REMEDY)
    if not believable and verdict == "PASSED":
        verdict = "FAILED"
    return ChainReport(
        stage=said.text("stage"),
        config_fingerprint=said.optional_sha256("config_fingerprint"),
        cells=cells,
        verdict=GateVerdict(verdict),
        reasons=reasons,
        notes=said.texts("notes"),
        first_drift=drift,
        topology=None if topology is None else read_topology(topology, complete=True),
        ranks=_ranks(said),
        commit=said.optional_text("commit"),
        tree=said.optional_text("tree"),
        dirty=said.optional_flag("dirty"),
        predecessor=_predecessor(said),
        reports={name: digests.sha256(name) for name in reports},
    )


def _ranks(said: Fields) -> tuple[int, ...]:
    value = said.required("ranks")
    if not isinstance(value, list):
        raise said.fault("has `ranks` that are no list")
    ranks = tuple(each for each in value if isinstance(each, int) and not isinstance(each, bool))
    if len(ranks) != len(value):
        raise said.fault("has `ranks` that are no integers")
    return ranks


def _drift(said: Fields) -> Drift | None:
    given = said.optional_inner("first_drift")
    if given is None:
        return None
    return Drift(
        stage=given.text("stage"),
        cell=given.text("cell"),
        rank=given.optional_count("rank"),
        layer=given.optional_count("layer"),
        family=given.optional_text("family"),
        node=given.optional_text("node"),
        tensor=given.optional_text("tensor"),
        artifact=given.optional_text("artifact"),
        element=given.optional_count("element"),
        reason=given.optional_text("reason"),
    )
