"""Judge what one rank reports by the artifacts that it left."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from ...errors import ReefError
from ...records.names import printable
from ..content.members import Content, Member
from ..finding import Finding
from .chain import Findings
from .files import ContentFiles, Files
from .judge_cell import Ran, judge_cell
from .manifest import Cell, Manifest
from .model import CellResult, CellStatus, RankReport
from .patterns import STATUS_FILE
from .references import Reference, find_reference


def cell_folder(cell: str, rank: int) -> str:
    """Name the folder of a cell's artifacts of one rank."""
    return f"cells/{cell}/rank-{rank}"


def placeholders(rank: int, world_size: int) -> dict[str, str]:
    """Give what stands for the placeholders in names and paths."""
    return {"rank": str(rank), "world_size": str(world_size)}


class CellFolders:
    """The folders of all cells and ranks in a container, listed once."""

    def __init__(self, content: Content) -> None:
        """Sort the members by the folder that they lie in."""
        self._content = content
        self._members: dict[str, list[Member]] = {}
        for member in content.members:
            parts = member.name.split("/", 3)
            if parts[0] == "cells" and len(parts) == 4:
                self._members.setdefault("/".join(parts[:3]), []).append(member)

    def files(self, cell: str, rank: int) -> ContentFiles:
        """Give the files of a cell on a rank."""
        folder = cell_folder(cell, rank)
        return ContentFiles(_Some(self._content, self._members.get(folder, [])), f"{folder}/")


@dataclass(frozen=True)
class _Some:
    """Some members of a container."""

    content: Content
    members: Sequence[Member]

    @property
    def label(self) -> str:
        return self.content.label

    @property
    def findings(self) -> Sequence[Finding]:
        return self.content.findings

    def open(self, member: Member) -> AbstractContextManager[BinaryIO]:
        return self.content.open(member)


def judge_rank(
    manifest: Manifest,
    report: RankReport,
    folders: CellFolders,
    folder: Path | None,
    findings: Findings,
    *,
    pinned: bool = False,
) -> dict[str, CellResult]:
    """Judge every cell that a rank reports; `folder` is where references lie, if that is known.

    `pinned`: the report's own bytes are pinned, so that digests of references in it count.
    """
    recorded = {cell.id: cell for cell in report.cells}
    for each in recorded.keys() - {cell.id for cell in manifest.cells}:
        findings.failed.append(
            f"Rank {report.rank} reports a cell `{printable(each)}` that the manifest lacks."
        )
    files: dict[str, Files] = {}

    def files_of(cell: str) -> Files:
        if cell not in files:
            files[cell] = folders.files(cell, report.rank)
        return files[cell]

    values = placeholders(report.rank, report.topology.world_size)
    found: dict[str, CellResult] = {}
    for cell in manifest.cells:
        if cell.id not in recorded:
            continue
        one = judge_recorded(
            cell, recorded[cell.id], values, files_of, folder, findings, pinned=pinned
        )
        found[cell.id] = one
        for note in one.notes:
            findings.note(f"{cell.id}, rank {report.rank}: {note}.")
    return found


def judge_recorded(
    cell: Cell,
    recorded: CellResult,
    values: Mapping[str, str],
    files_of: Callable[[str], Files],
    folder: Path | None,
    findings: Findings | None = None,
    *,
    pinned: bool = False,
) -> CellResult:
    """Judge a recorded cell anew. What the record says was wrong never becomes a pass.

    Its references must be here, pinned by the manifest, or the record itself `pinned`; and they
    must be those that were compared with when it ran. Raises nothing for what cannot be read: that
    is a failure of the cell.
    """
    files = files_of(cell.id)
    said = printable(recorded.reason or "no reason is given")
    if recorded.status in (CellStatus.SKIPPED, CellStatus.MISSING):
        return replace(recorded, reason=said, differences=())
    try:
        changed = _changed(recorded, files)
    except ReefError as error:
        return _failed(recorded, f"an artifact cannot be read: {error.message}")
    if changed is not None:
        return changed
    failed = recorded.status is CellStatus.FAILED and recorded.exit_code != 0
    ran = Ran(
        exit_code=recorded.exit_code,
        unavailable=said if recorded.status is CellStatus.UNAVAILABLE else None,
        trouble=said if failed else None,
    )
    sums = {
        each.name: each.reference_sha256
        for each in recorded.artifacts
        if each.reference_sha256 is not None
    }

    unknown = False

    def reference() -> Reference | None:
        nonlocal unknown
        found = find_reference(cell, values, folder, files_of, sums)
        if found is not None and not found.is_here:
            unknown = folder is None or found.fault is None
        if unknown and pinned and findings is not None:
            findings.note(
                "References are not here: the reports, which are pinned, name their SHA-256."
            )
        return found

    result = judge_cell(cell, ran, files, values, reference)
    if recorded.status is not CellStatus.PASSED:
        passed = result.status is CellStatus.PASSED
        why = f"its report says so, though its artifacts agree: {said}"
        return _failed(result, why) if passed else result
    if unknown and not pinned:
        reason = "its reference is not here (--manifest says where the manifest and references lie)"
        return replace(result, status=CellStatus.MISSING, reason=reason, differences=(), compared=0)
    other = _other_reference(result, sums)
    return result if other is None else _failed(result, other)


def _other_reference(result: CellResult, sums: Mapping[str, str]) -> str | None:
    """Say which reference of a cell that passed is not the one that it was compared with."""
    passed = result.status is CellStatus.PASSED
    for each in result.artifacts:
        if not passed and each.reference_sha256 is None:
            continue
        if each.reference_sha256 != sums.get(each.name):
            return (
                f"the reference of {printable(each.name)} is not the one that it was compared "
                "with when it ran"
            )
    return None


def _changed(recorded: CellResult, files: Files) -> CellResult | None:
    """Hold the artifacts against what the report recorded when the cell ended."""
    there = set(files.names())
    known = {each.name: each for each in recorded.artifacts}
    for name in sorted(there - known.keys()):
        return _failed(recorded, f"the file {printable(name)} is not in its report")
    for name, record in known.items():
        if name not in there:
            reason = f"the artifact {printable(name)} is not here"
            return replace(recorded, status=CellStatus.MISSING, reason=reason, differences=())
        sha256, size = files.sha256(name)
        if (sha256, size) != (record.sha256, record.size):
            what = "what it said of itself" if name == STATUS_FILE else "the artifact"
            return _failed(
                recorded, f"{what} {printable(name)} was changed after its report was written"
            )
    return None


def _failed(result: CellResult, reason: str) -> CellResult:
    return replace(result, status=CellStatus.FAILED, reason=reason)
