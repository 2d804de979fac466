"""Hold the artifacts of two runs against each other, name by name."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...errors import ReefError
from ..content.members import Content
from .chain import first_drift
from .files import ContentFiles
from .judge_cell import differences_between, placed
from .judge_rank import placeholders
from .manifest import Cell, Manifest
from .manifest import Reference as Wanted
from .manifest_file import read_bytes
from .model import CellResult, CellStatus, ChainReport, Difference, Drift, GateVerdict, RankReport
from .part import gate_part
from .patterns import STATUS_FILE, filled, matching, natural
from .verdict import Question, judge_content, read_manifest, read_reports

_ARTIFACT = re.compile(r"cells/([^/]+)/rank-(0|[1-9][0-9]{0,5})/(.+)", re.DOTALL)


@dataclass(frozen=True)
class Against:
    """What two runs have in common: `target` is the earlier one, safe to print.

    `identical` of `artifacts` names, those of both sides, are equal; `re_serialised` of these in
    their tensors only. `drift` is the first divergence, None when all are identical. `fault` says,
    fit to print, why the other side is no earlier run that counts.
    """

    target: str
    artifacts: int
    identical: int
    re_serialised: int
    only_here: tuple[str, ...]
    only_there: tuple[str, ...]
    drift: Drift | None
    fault: str | None = None

    @property
    def same(self) -> bool:
        """Say whether there is something, and all of it is identical on both sides."""
        return 0 < self.artifacts == self.identical

    @property
    def holds(self) -> bool:
        """Say whether all is identical, and the other side is another run, which passed."""
        return self.same and self.fault is None

    @property
    def sentence(self) -> str:
        """Say what was compared."""
        if not self.artifacts:
            return "Neither run has any artifact."
        if self.same:
            how = f" ({self.re_serialised:,} in other files)" if self.re_serialised else ""
            if self.artifacts == 1:
                return f"The only artifact is bitwise identical to the earlier run{how}."
            return f"All {self.artifacts:,} artifacts bitwise identical to the earlier run{how}."
        alone = len(self.only_here) + len(self.only_there)
        more = f" {alone:,} are on one side only." if alone else ""
        return (
            f"{self.identical:,} of {self.artifacts:,} artifacts are bitwise identical to the "
            f"earlier run.{more}"
        )

    def to_json(self) -> dict[str, object]:
        """Give the JSON form."""
        drift = None if self.drift is None else self.drift.to_json()
        return {**vars(self), "drift": drift, "all_identical": self.same}


def compare_runs(here: Path, there: Path, *, manifest: Path | None = None) -> Against:
    """Compare all artifacts of two gates, each a folder or a zip. Raises Unusable.

    The earlier one is judged anew: what is this run itself, or is no pass, is no proof. `manifest`
    says where this run's manifest lies, which counts for the earlier one if that ran the same.
    """
    from ..content.open import open_content

    with open_content(here) as ours, open_content(there) as theirs:
        a, b = gate_part(ours), gate_part(theirs)
        fault = _fault(a, b, there if there.is_dir() else None, manifest)
        return replace(compare_contents(a, b), fault=fault)


def _fault(
    ours: Content, theirs: Content, folder: Path | None, manifest: Path | None
) -> str | None:
    """Say why the other side is not an earlier run that passed."""
    try:
        reports, digests = read_reports(theirs)
        if not reports:
            return "What it is held against has no report of any rank: nothing says that it ran."
        if _is_copy(*read_reports(ours), reports, digests):
            return "What it is held against is this run itself, or a copy of it, and no other run."
        chain = judge_content(Question(theirs, folder, fitting(theirs, manifest)))
    except ReefError as error:
        return f"The earlier run cannot be judged: {error.message}"
    if not chain.passed:
        return f"The earlier run is no pass itself ({chain.verdict.value}): {chain.reasons[0]}"
    return None


def fitting(content: Content, manifest: Path | None) -> Path | None:
    """Give the path of a manifest if it is the one that a gate's content ran. Raises Unusable."""
    if manifest is None:
        return None
    same = hashlib.sha256(read_bytes(manifest)).hexdigest() == read_manifest(content).sha256
    return manifest if same else None


def _is_copy(
    ours: Mapping[int, RankReport],
    our_digests: Mapping[str, str],
    theirs: Mapping[int, RankReport],
    their_digests: Mapping[str, str],
) -> bool:
    same_bytes = set(our_digests.values()) & set(their_digests.values())
    return bool(same_bytes) or share_a_run(ours.values(), theirs.values())


def share_a_run(ours: Iterable[RankReport], theirs: Iterable[RankReport]) -> bool:
    """Tell whether reports of both sides name one execution, or one run record."""
    return bool(_runs(ours) & _runs(theirs))


def _runs(reports: Iterable[RankReport]) -> set[str]:
    return {
        each
        for report in reports
        for each in (report.provenance.execution_id, report.provenance.run_sha256)
        if each is not None
    }


def compare_contents(ours: Content, theirs: Content) -> Against:
    """Compare the artifacts below `cells/` of two gates. Raises Unusable."""
    manifest = read_manifest(ours)
    a, b = ContentFiles(ours, ""), ContentFiles(theirs, "")
    here, there = _artifacts(a), _artifacts(b)
    names = sorted({*here, *there}, key=_order(manifest))
    found = [_compare(name, a, b, name in here, name in there) for name in names]
    equal = [not differences for differences, _ in found]
    return Against(
        target=theirs.label,
        artifacts=len(names),
        identical=sum(equal),
        re_serialised=sum(same and noted for same, (_, noted) in zip(equal, found, strict=True)),
        only_here=tuple(name for name in names if name not in there),
        only_there=tuple(name for name in names if name not in here),
        drift=_drift(manifest, {name: one for name, (one, _) in zip(names, found, strict=True)}),
    )


def joined(chain: ChainReport, against: Against) -> ChainReport:
    """Let a chain pass only if its artifacts are those of another run, that passed, as well."""
    if against.holds:
        return replace(chain, notes=(*chain.notes, against.sentence))
    said = tuple(
        each for each in (against.fault, None if against.same else against.sentence) if each
    )
    failed = not against.same or chain.verdict is GateVerdict.FAILED
    return replace(
        chain,
        verdict=GateVerdict.FAILED if failed else GateVerdict.INCOMPLETE,
        reasons=(*chain.reasons, *said),
        first_drift=chain.first_drift or against.drift,
    )


def _artifacts(files: ContentFiles) -> set[str]:
    found = {name: _ARTIFACT.fullmatch(name) for name in files.names()}
    return {name for name, parts in found.items() if parts and parts[3] != STATUS_FILE}


def _parts(name: str) -> tuple[str, int, str]:
    found = _ARTIFACT.fullmatch(name)
    assert found is not None
    return found[1], int(found[2]), found[3]


def _order(manifest: Manifest) -> Callable[[str], tuple[object, ...]]:
    """Give a key that sorts artifacts as they are written: by cell, pattern, name, rank."""
    cells = {cell.id: (index, cell) for index, cell in enumerate(manifest.cells)}

    def key(name: str) -> tuple[int, str, int, tuple[tuple[int, str], ...], int]:
        cell, rank, artifact = _parts(name)
        index, known = cells.get(cell, (len(cells), None))
        return index, cell, _pattern(known, rank, artifact), natural(artifact), rank

    return key


def _pattern(cell: Cell | None, rank: int, artifact: str) -> int:
    patterns: Sequence[str] = () if cell is None else cell.artifacts
    # The world size is not known here; a pattern that has it comes last.
    values = {"rank": placeholders(rank, 1)["rank"]}
    for index, pattern in enumerate(patterns):
        if matching(filled(pattern, values), [artifact]):
            return index
    return len(patterns)


def _compare(
    name: str, a: ContentFiles, b: ContentFiles, in_a: bool, in_b: bool
) -> tuple[tuple[Difference, ...], bool]:
    _, _, artifact = _parts(name)
    if not in_a:
        return (Difference(artifact, None, "was not written by this run"),), False
    if not in_b:
        return (Difference(artifact, None, "is not in the earlier run"),), False
    if a.sha256(name) == b.sha256(name):
        return (), False
    with a.open(name) as left, b.open(name) as right:
        return differences_between(artifact, left, right)


def _drift(manifest: Manifest, found: dict[str, tuple[Difference, ...]]) -> Drift | None:
    cells = {cell.id: cell for cell in manifest.cells}
    results: dict[int, dict[str, CellResult]] = {}
    positions: dict[tuple[str, int], int] = {}
    ids = list(cells)
    for name, differences in found.items():
        each, rank, _ = _parts(name)
        position = positions[each, rank] = positions.get((each, rank), -1) + 1
        cell = cells.get(each) or Cell(each, ("",), (), Wanted())
        if each not in ids:
            ids.append(each)
        before = results.setdefault(rank, {}).get(each, CellResult(each, CellStatus.FAILED))
        now = tuple(placed(cell, one, position) for one in differences)
        results[rank][each] = replace(before, differences=(*before.differences, *now))
    return first_drift(manifest.stage, ids, results)
