"""What an earlier run of a rank ended, and whether it may stand in the report of another run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from ...records.names import printable
from ...records.strict_json import Json
from .chain import Findings
from .files import FolderFiles
from .judge_rank import cell_folder, judge_recorded, placeholders
from .manifest import Manifest
from .model import CellResult, RankReport
from .out_folder import OutFolder

# Variables that say where a rank runs, not how: the same rank may run elsewhere the next time.
_OF_RANKS = frozenset("RANK LOCAL_RANK GROUP_RANK LOCAL_WORLD_SIZE".split())
_MARK = "ended by the execution"


def environment_now() -> Mapping[str, Json]:
    """Give the environment as the record of a run that begins now would have it."""
    from ..evidence.environment import recorded_environment

    return recorded_environment(os.environ)


def difference(earlier: RankReport, now: RankReport) -> str | None:
    """Say why what one run ended cannot stand in the report of another; None where it can.

    Manifest, predecessor, topology, commit, tree and environment must be the same, and the tree
    must be without changes, of which a report does not say what they are.
    """
    one, other = earlier.provenance, now.provenance
    if earlier.manifest_sha256 != now.manifest_sha256:
        return "another manifest"
    if (earlier.topology, earlier.rank) != (now.topology, now.rank):
        return f"another topology: {earlier.topology}"
    if earlier.predecessor != now.predecessor:
        return "another run of the stage before"
    if one.commit is None or (one.commit, one.tree) != (other.commit, other.tree):
        return f"another commit: {printable(str(one.commit))[:12]}"
    if one.dirty is not False or other.dirty is not False:
        return "a tree with changes"
    return _environments(one.environment, other.environment)


def _environments(earlier: Mapping[str, Json] | None, now: Mapping[str, Json] | None) -> str | None:
    if earlier is None or now is None:
        return "an environment that is not recorded"
    before, after = _flat(earlier), _flat(now)
    names = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    if not names:
        return None
    listed = ", ".join(printable(name[:80]) for name in names[:4])
    return f"another environment: {listed}" + (", …" if len(names) > 4 else "")


def _flat(environment: Mapping[str, Json]) -> dict[str, Json]:
    """Give variables, packages and the rest by their names."""
    found: dict[str, Json] = {}
    for name, value in environment.items():
        if isinstance(value, dict):
            found |= {f"{name}.{inner}": each for inner, each in value.items()}
        else:
            found[name] = value
    for name in _OF_RANKS:
        found.pop(f"variables.{name}", None)
    return found


def kept_cells(manifest: Manifest, earlier: RankReport, out: OutFolder) -> dict[str, CellResult]:
    """Choose what an earlier run ended: well enough to be judged, on all ranks, and unchanged."""
    world = earlier.topology.world_size
    values = placeholders(out.rank, world)
    cells = {cell.id: cell for cell in manifest.cells}
    kept: dict[str, CellResult] = {}

    def files(cell: str) -> FolderFiles:
        return FolderFiles(out.path / cell_folder(cell, out.rank))

    for one in earlier.cells:
        cell = cells.get(one.id)
        if cell is None or one.exit_code != 0:
            continue
        # Cells may talk to the same cell of other ranks: they run on all of them or on none.
        if not out.peers_with(one.id, world):
            continue
        result = judge_recorded(cell, one, values, files, manifest.folder, Findings())
        if result.status is one.status and result.artifacts == one.artifacts:
            by = f"{_MARK} {earlier.provenance.execution_id}"
            notes = one.notes if any(each.startswith(_MARK) for each in one.notes) else (by,)
            kept[one.id] = replace(result, notes=tuple(dict.fromkeys((*notes, *result.notes))))
    return kept


def note_on_kept(report: RankReport) -> str | None:
    """Say how many cells of a report were not run by the run that it is of; None for none."""
    kept = [cell for cell in report.cells if any(note.startswith(_MARK) for note in cell.notes)]
    if not kept:
        return None
    if len(kept) == len(report.cells):
        return (
            f"Nothing was run: all {len(kept):,} cells of rank {report.rank} were ended by an "
            "earlier run, and are kept (--force runs them anew)."
        )
    return (
        f"{len(kept):,} of {len(report.cells):,} cells of rank {report.rank} were ended by an "
        "earlier run, and are kept."
    )
