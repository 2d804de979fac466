"""Hold the references of a run still: none is the run's own, none changes while cells run."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from ...errors import ReefError, Unusable
from ...records.names import printable
from .manifest import Cell, Manifest
from .model import CellResult, CellStatus
from .patterns import filled, matching
from .references import Reference, find_reference

_ONLY = ""


def refuse_own_references(manifest: Manifest, out: Path, values: Mapping[str, str]) -> None:
    """Refuse references that lie where the run goes. Raises Unusable."""
    folder = manifest.folder
    if folder is None:
        return
    own = _resolved(out)
    for cell in manifest.cells:
        if cell.reference.path is None:
            continue
        there = _resolved(folder / filled(cell.reference.path, values))
        if own == there or own in there.parents:
            raise Unusable(
                f"The reference of cell `{printable(cell.id)}` lies in "
                f"{printable(os.fsencode(out))}, where the run goes: a run is no reference of "
                "its own.",
                remedy="Name another --out, or keep references elsewhere.",
            )


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):
        return path.absolute()


class HeldReferences:
    """The digests of references as they were before any cell ran."""

    def __init__(
        self, cells: Iterable[Cell], values: Mapping[str, str], folder: Path | None
    ) -> None:
        """Hash the references of cells that lie in files; those that cannot be read count as none.

        A folder that several cells name is listed, and each of its files hashed, once.
        """
        self._values = values
        self._before: dict[str, dict[str, str]] = {}
        self._left: dict[str, dict[str, str]] = {}
        known: dict[str, Reference | None] = {}
        for cell in cells:
            if cell.reference.path is None:
                continue
            path = filled(cell.reference.path, values)
            if path not in known:
                known[path] = find_reference(cell, values, folder, _no_cell, {})
            self._before[cell.id] = _digests(cell, known[path], values)

    def ended(self, result: CellResult) -> None:
        """Take note of what a cell left, which later cells may have to equal."""
        self._left[result.id] = {each.name: each.sha256 for each in result.artifacts}

    def check(self, cell: Cell, result: CellResult, reference: Reference | None) -> CellResult:
        """Let a cell fail whose reference, as it was compared, is not the one from before.

        `reference` is None where nothing was compared.
        """
        wanted = cell.reference
        if wanted.cell is not None:
            left = self._left.get(wanted.cell, {})
            before = {name: left[name] for name in _fitting(cell, left, self._values)}
        else:
            before = self._before.get(cell.id, {})
        if reference is None or (wanted.cell is None and wanted.path is None):
            return result
        now = _digests(cell, reference, self._values)
        changed = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
        if not changed:
            return result
        named = f" {printable(changed[0])}" if changed[0] != _ONLY else ""
        reason = f"its reference{named} was written or changed while the run lasted"
        return replace(result, status=CellStatus.FAILED, reason=reason)


def _digests(cell: Cell, reference: Reference | None, values: Mapping[str, str]) -> dict[str, str]:
    """Hash what can stand for the cell's artifacts: files that its patterns fit, or the only one.

    Where the reference hashed a file before, that digest is given: it is the one compared with.
    """
    if reference is None or reference.files is None:
        return {}
    try:
        if reference.only:
            return {_ONLY: reference.sha256(_ONLY)}
        fitting = _fitting(cell, reference.names(), values)
        return {name: reference.sha256(name) for name in fitting}
    except ReefError:
        return {}


def _fitting(cell: Cell, names: Iterable[str], values: Mapping[str, str]) -> set[str]:
    there = list(names)
    return {name for each in cell.artifacts for name in matching(filled(each, values), there)}


def _no_cell(cell: str) -> NoReturn:
    raise AssertionError(f"the reference is a path, not the cell {cell}")
