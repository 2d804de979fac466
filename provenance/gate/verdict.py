"""Judge a gate by what lies there: its manifest, the reports of its ranks, and their artifacts.

No stored verdict is read. Every artifact is hashed and compared again; what a report says was
wrong stays wrong, what it says was right is asked of the bytes.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ...errors import Unusable
from ...records.names import printable
from ..content.members import Content, MemberKind
from .chain import (
    Findings,
    absent_ranks,
    first_drift,
    fold_cells,
    judge_cells,
    without_ranks,
)
from .claims import judge_claims
from .files import ContentFiles, read_small
from .judge_rank import CellFolders, judge_rank
from .manifest import Manifest, parse_manifest
from .manifest_file import LIMIT as MANIFEST_LIMIT
from .manifest_file import read_bytes
from .model import CellResult, CellStatus, ChainReport, RankReport
from .part import MANIFEST_NAMES, gate_part
from .predecessor import place, recall
from .provenance import check_provenance
from .report import LIMIT, parse_rank_report
from .topology import check_accepted

REPORT_NAME = re.compile(r"rank-(0|[1-9][0-9]{0,5})\.json")
CHAIN_NAME = "chain.json"


@dataclass(frozen=True)
class Question:
    """What is judged: `target` is where it lies, if that is a folder on disk.

    `manifest` and `predecessor` say where these are now; `depth` counts the stages behind.
    `pinned_reports`: SHA-256 of reports that somebody who is believed has stated (a later stage's
    manifest, by that of the chain report); what such reports recorded of references and of the
    stage before then counts where these are not at hand.
    """

    content: Content
    target: Path | None = None
    manifest: Path | None = None
    predecessor: Path | None = None
    depth: int = 0
    pinned_reports: Mapping[str, str] | None = None


def judge(
    target: Path, *, manifest: Path | None = None, predecessor: Path | None = None, depth: int = 0
) -> ChainReport:
    """Judge a gate's folder or zip anew.

    `manifest` says where the manifest, and with it the references, lies now; without it they are
    looked for in a folder above `target` only. `predecessor` says where the stage before lies.
    Nothing that is not here passes unless the manifest pins its SHA-256. Reports without a
    manifest are told as claims, which are no pass. Raises Unusable for what cannot be judged: no
    reports, one that is cut short, a topology that is not accepted.
    """
    from ..content.open import open_content

    with open_content(target) as content:
        folder = target if target.is_dir() else None
        part = gate_part(content)
        if not any(member.name in MANIFEST_NAMES for member in part.members):
            return judge_claims(part)
        return judge_content(Question(part, folder, manifest, predecessor, depth))


def judge_content(asked: Question) -> ChainReport:
    """Judge what lies in a container. Raises Unusable."""
    manifest = read_manifest(asked.content)
    reports, digests = read_reports(asked.content)
    if not reports:
        raise Unusable(
            f"{asked.content.label} holds no report of any rank.",
            remedy="Run the gate first: `reef-archive gate MANIFEST --out DIR`.",
        )
    findings = Findings()
    findings.take(asked.content.findings)
    _check_pin(manifest, findings)
    world = _check_identity(manifest, reports, findings)
    run = check_provenance(reports, asked.content, findings)
    pinned = asked.pinned_reports is not None and asked.pinned_reports == digests
    folder = _beside(asked, manifest, reports, findings)
    predecessor = recall(
        manifest, reports, asked.content, place(manifest, folder, asked.predecessor), run.commit,
        findings, asked.depth, pinned=pinned,
    )  # fmt: skip
    folders = CellFolders(asked.content)
    results = {
        rank: judge_rank(manifest, report, folders, folder, findings, pinned=pinned)
        for rank, report in reports.items()
    }
    ids = [cell.id for cell in manifest.cells]
    cells = fold_cells(ids, list(reports), results)
    judge_cells(cells, world, findings)
    cells = without_ranks(cells, [rank for rank in range(world) if rank not in reports], world)
    gone = manifest.vanished()
    if gone is not None:
        lost = CellResult("", CellStatus.MISSING, "it is pinned, but not in the manifest any more")
        vanished = {each: replace(lost, id=each) for each in gone[0]}
        cells = (*cells, *fold_cells(gone[0], [0], {0: vanished}))
    return ChainReport(
        stage=manifest.stage,
        config_fingerprint=manifest.config_fingerprint,
        cells=cells,
        verdict=findings.verdict,
        reasons=findings.reasons,
        notes=tuple(findings.notes),
        first_drift=first_drift(manifest.stage, ids, results),
        topology=next(iter(reports.values())).topology,
        ranks=tuple(sorted(reports)),
        commit=run.commit,
        tree=run.tree,
        dirty=run.dirty,
        predecessor=predecessor,
        reports=digests,
    )


def read_manifest(content: Content) -> Manifest:
    """Read the copy of the manifest that lies beside the reports. Raises Unusable."""
    found = [member.name for member in content.members if member.name in MANIFEST_NAMES]
    if len(found) != 1:
        raise Unusable(
            f"{content.label} holds {'two manifests' if found else 'no manifest'} of a gate.",
            remedy=f"Name a folder that a gate wrote; {MANIFEST_NAMES[0]} lies in it.",
        )
    raw = read_small(ContentFiles(content, ""), found[0], MANIFEST_LIMIT)
    return parse_manifest(raw, found[0], toml=found[0].endswith(".toml"))


def read_reports(content: Content) -> tuple[dict[int, RankReport], dict[str, str]]:
    """Read the reports of all ranks, and give each one's SHA-256. Raises Unusable."""
    reports: dict[int, RankReport] = {}
    digests: dict[str, str] = {}
    root = ContentFiles(content, "")
    for member in content.members:
        found = REPORT_NAME.fullmatch(member.name)
        if found is None or member.kind is not MemberKind.FILE:
            continue
        data = read_small(root, member.name, LIMIT)
        report = parse_rank_report(data, member.name)
        if report.rank != int(found[1]):
            raise Unusable(
                f"{member.name} says that it is of rank {report.rank}.",
                remedy="Get the reports from their source again.",
            )
        reports[report.rank] = report
        digests[member.name] = hashlib.sha256(data).hexdigest()
    return dict(sorted(reports.items())), digests


def _check_pin(manifest: Manifest, findings: Findings) -> None:
    gone = manifest.vanished()
    if gone is not None:
        findings.failed.append(gone[1])


def _check_identity(
    manifest: Manifest, reports: Mapping[int, RankReport], findings: Findings
) -> int:
    """Check that all reports are of this gate and of one topology; give the world size."""
    topologies = {report.topology for report in reports.values()}
    for topology in topologies:
        check_accepted(topology, manifest.topologies, manifest.stage)
    if len(topologies) > 1:
        raise Unusable(
            "The reports of the ranks name different topologies: "
            + "; ".join(sorted(map(str, topologies)))
            + ".",
            remedy="Keep reports of different runs in different folders.",
        )
    for rank, report in reports.items():
        if report.stage != manifest.stage:
            findings.failed.append(f"Rank {rank} ran another stage: `{printable(report.stage)}`.")
        if report.config_fingerprint != manifest.config_fingerprint:
            findings.failed.append(f"Rank {rank} ran with another configuration.")
        if report.manifest_sha256 is None:
            findings.incomplete.append(f"Rank {rank} does not say which manifest it ran.")
        elif report.manifest_sha256 != manifest.sha256:
            findings.failed.append(f"Rank {rank} ran another manifest than the one here.")
        if report.quick:
            findings.incomplete.append("Only the quick subset was run, which is never a pass.")
    world = next(iter(topologies)).world_size
    absent = [rank for rank in range(world) if rank not in reports]
    if absent:
        text = absent_ranks(absent, world)
        findings.incomplete.append(f"{text[0].upper()}{text[1:]} gave no report.")
    return world


def _beside(
    asked: Question, manifest: Manifest, reports: Mapping[int, RankReport], findings: Findings
) -> Path | None:
    """Find the folder that references are relative to; None where it is not known.

    It is where `asked.manifest` lies, else the folder above the target from which the reports say
    that they were run. Whoever makes reports says in them what they like: no path leads out of the
    folders that the target was named in, nor into the target.
    """
    if asked.manifest is not None:
        if hashlib.sha256(read_bytes(asked.manifest)).hexdigest() != manifest.sha256:
            raise Unusable(
                f"{printable(os.fsencode(asked.manifest))} is not the manifest of this run.",
                remedy="Name the manifest as it was, or leave it out.",
            )
        return asked.manifest.parent
    paths = {report.manifest_path for report in reports.values()}
    recorded = paths.pop() if len(paths) == 1 else None
    if asked.target is None or recorded is None or os.path.isabs(recorded):
        return None
    target = Path(os.path.abspath(asked.target))
    path = Path(os.path.abspath(target / recorded))
    if path.parent not in target.parents:
        return None
    try:
        same = path.is_file() and hashlib.sha256(read_bytes(path)).hexdigest() == manifest.sha256
    except (OSError, ValueError, Unusable):
        return None
    if not same:
        return None
    if any(cell.reference.path is not None for cell in manifest.cells):
        findings.note(
            f"References are those beside {printable(os.fsencode(path))}, where the reports say "
            "that the manifest lay (--manifest names another place)."
        )
    return path.parent
