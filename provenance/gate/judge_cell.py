"""Judge one cell on one rank by the bytes that it left."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ...errors import ReefError, Unusable
from ...records.names import printable
from ...records.strict_json import Json, parse_object
from ...recover.readable import Readable
from .files import Files, read_small
from .manifest import Cell
from .model import ArtifactRecord, CellResult, CellStatus, Difference, Place
from .patterns import STATUS_FILE, filled, matching
from .place_in_model import order_of, place_of
from .references import Reference
from .tensor_bits import compare_bits

UNAVAILABLE_CODE = 77
_STATUS_LIMIT = 1 << 20


@dataclass(frozen=True)
class Ran:
    """How a cell's command ended. `unavailable` or `trouble` say what kept it from ending well."""

    exit_code: int | None = None
    unavailable: str | None = None
    trouble: str | None = None


@dataclass(frozen=True)
class _Said:
    """What a cell said of itself in `cell.json`."""

    unavailable: str | None = None
    fallback: bool | None = None
    trouble: str | None = None


def judge_cell(
    cell: Cell,
    ran: Ran,
    files: Files,
    values: Mapping[str, str],
    reference: Callable[[], Reference | None],
) -> CellResult:
    """Judge a cell: it ended well, said what it had to, wrote what it had to, and the bits agree.

    `reference` is asked only when there is something to compare.
    """
    said = _read_status(files)
    result = CellResult(cell.id, CellStatus.FAILED, exit_code=ran.exit_code, fallback=said.fallback)
    try:
        result = replace(result, artifacts=_records(files))
    except ReefError as error:
        return replace(result, reason=f"an artifact cannot be read: {error.message}")
    unavailable = ran.unavailable or said.unavailable
    if unavailable is None and ran.exit_code == UNAVAILABLE_CODE:
        unavailable = f"the command exited with {UNAVAILABLE_CODE}, and gave no reason"
    if unavailable is not None:
        return replace(result, status=CellStatus.UNAVAILABLE, reason=unavailable)
    reason = _trouble(cell, ran, said, files)
    if reason is not None:
        return replace(result, reason=reason)
    try:
        return _compare(cell, files, values, reference(), result)
    except ReefError as error:
        return replace(result, reason=f"it cannot be compared: {error.message}")


def _trouble(cell: Cell, ran: Ran, said: _Said, files: Files) -> str | None:
    if ran.trouble is not None:
        return ran.trouble
    if ran.exit_code is None:
        return "nothing says that its command ended"
    if ran.exit_code != 0:
        how = f"exited with {ran.exit_code}" if ran.exit_code > 0 else "was killed by signal "
        return f"the command {how}{-ran.exit_code if ran.exit_code < 0 else ''}"
    if said.trouble is not None:
        return said.trouble
    if said.fallback:
        return "the cell says that it fell back"
    if cell.explicit_fallback and said.fallback is None:
        return f'the cell did not say `"fallback": false` in {STATUS_FILE}, which it must'
    return files.faults()[0] if files.faults() else None


def _read_status(files: Files) -> _Said:
    if STATUS_FILE not in files.names():
        return _Said()
    try:
        found = parse_object(read_small(files, STATUS_FILE, _STATUS_LIMIT), STATUS_FILE)
    except ReefError as error:
        return _Said(trouble=error.message)
    status, reason, fallback = found.get("status"), found.get("reason"), found.get("fallback")
    if fallback is not None and not isinstance(fallback, bool):
        return _Said(trouble=f"`fallback` in {STATUS_FILE} is neither true nor false")
    if status == "unavailable":
        return _Said(unavailable=_reason(reason), fallback=fallback)
    if status not in (None, "ok"):
        return _Said(trouble=f'`status` in {STATUS_FILE} is neither "ok" nor "unavailable"')
    return _Said(fallback=fallback)


def _reason(reason: Json) -> str:
    text = printable(reason.strip()[:500]) if isinstance(reason, str) else ""
    return text or "the cell says so, and gives no reason"


def _records(files: Files) -> tuple[ArtifactRecord, ...]:
    return tuple(ArtifactRecord(name, *files.sha256(name)) for name in sorted(files.names()))


def _compare(
    cell: Cell,
    files: Files,
    values: Mapping[str, str],
    reference: Reference | None,
    result: CellResult,
) -> CellResult:
    if reference is not None and reference.fault is not None:
        return replace(result, reason=reference.fault)
    records = {record.name: record for record in result.artifacts}
    written = [name for name in records if name != STATUS_FILE]
    expected = [] if reference is None or reference.only else list(reference.names())
    differences: list[Difference] = []
    notes: list[str] = []
    seen: set[str] = set()
    compared = position = 0
    for pattern in cell.artifacts:
        wanted = filled(pattern, values)
        names = matching(wanted, {*written, *expected} - seen)
        if not any(name in records for name in matching(wanted, written)):
            names = names or [wanted]
        for name in names:
            seen.add(name)
            found: tuple[Difference, ...] = ()
            if name not in records:
                found = (Difference(name, None, "was not written"),)
            elif reference is not None and not reference.only and name not in expected:
                found = (Difference(name, None, "has no reference"),)
            elif reference is not None:
                compared += 1
                sha256 = reference.sha256(name)
                pinned = reference.pins.get(name)
                if pinned is not None and sha256 != pinned:
                    found = (Difference(name, None, "the reference is not the one pinned"),)
                elif sha256 != records[name].sha256:
                    found, note = _differences(name, files, reference)
                    notes.extend([note] if note else [])
                records[name] = replace(records[name], reference_sha256=sha256)
            differences.extend(placed(cell, one, position) for one in found)
            position += 1
    if reference is not None and reference.only and compared > 1:
        raise Unusable("one reference file cannot stand for several artifacts")
    left = sorted(set(written) - seen)
    if left:
        more = f" and {len(left) - 1:,} more" if len(left) > 1 else ""
        notes.append(f"{printable(left[0])}{more}: not declared as artifacts, and not compared")
    result = replace(
        result,
        artifacts=tuple(records.values()),
        differences=tuple(differences),
        compared=compared,
        notes=tuple(notes),
    )
    if not differences:
        return replace(result, status=CellStatus.PASSED)
    first = min(differences, key=order_of)
    return replace(result, reason=_sentence(first, len(differences)))


def _differences(
    name: str, files: Files, reference: Reference
) -> tuple[tuple[Difference, ...], str | None]:
    opened = reference.open(name)
    if opened is None:
        reason = "its SHA-256 is not that of the reference, which is not here to be compared with"
        return (Difference(name, None, reason),), None
    with files.open(name) as ours, opened as theirs:
        found = compare_bits(name, ours, theirs)
    return found.differences, found.note


def differences_between(
    name: str, ours: Readable, theirs: Readable
) -> tuple[tuple[Difference, ...], bool]:
    """Compare files whose bytes are not all the same; tell whether only their form differs."""
    found = compare_bits(name, ours, theirs)
    return found.differences, found.note is not None


def placed(cell: Cell, one: Difference, position: int) -> Difference:
    """Say where in the model it is: by the tensor, else the artifact's name, else the cell."""
    stem = one.artifact.rsplit("/", 1)[-1].rsplit(".", 1)[0]
    by_file = place_of(stem)
    by_name = place_of(one.tensor) if one.tensor is not None else by_file
    families = [each for each in (by_name.family, by_file.family) if each != "other"]
    layers = [each for each in (by_name.layer, by_file.layer, cell.layer) if each is not None]
    node = cell.node if one.tensor is None and cell.node is not None else by_name.node
    place = Place(
        layers[0] if layers else None,
        families[0] if families else cell.family or "other",
        node if node is not None else cell.node,
    )
    return replace(one, place=place, position=position)


def _sentence(first: Difference, count: int) -> str:
    tensor = "" if first.tensor is None else f", tensor `{printable(first.tensor)}`"
    element = "" if first.element is None else f", element {first.element:,}"
    extent = ""
    if first.different is not None and first.total is not None:
        extent = f" ({first.different:,} of {first.total:,} differ)"
    more = f", and {count - 1:,} more" if count > 1 else ""
    return f"{printable(first.artifact)}{tensor}{element}: {first.reason}{extent}{more}"
