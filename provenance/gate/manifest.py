"""A gate's manifest, `reefkit.gate-manifest/1`: the pinned cells that a stage must pass.

The ids are pinned apart from the cells (`pinned_ids`: all of them listed, or their count and the
SHA-256 of the sorted ids with a newline after each), so that a cell that is deleted, or renamed,
is a failure until somebody changes the pin as well.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...errors import DoesNotHold
from ...records.names import printable
from ...records.strict_json import Json, parse_object
from .fingerprint import config_fingerprint, ids_sha256
from .json_fields import Fields
from .manifest_file import parse_toml, read_bytes
from .model import Topology
from .patterns import pattern_fault
from .topology import read_topology

SCHEMA = "reefkit.gate-manifest/1"
_REMEDY = "Correct the manifest; docs/gate.md describes it."
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+=,@\[\]-]{0,127}(?<![.])")
_MOST_CELLS = 10_000
_DEFAULT_TIMEOUT = 3600


class VanishedCell(DoesNotHold):
    """The cells of a manifest are not those whose ids are pinned."""


@dataclass(frozen=True)
class Reference:
    """What a cell's artifacts must equal, bit for bit; with none of the three, nothing.

    `path`: a file, or a folder that holds artifacts of the same names, relative to the manifest;
    `{rank}` and `{world_size}` may stand in it. `cell`: an earlier cell, same rank, same names.
    `sha256`: of each artifact, by its name.
    """

    path: str | None = None
    cell: str | None = None
    sha256: Mapping[str, str] = field(default_factory=lambda: dict[str, str](), hash=False)

    @property
    def is_none(self) -> bool:
        """Tell whether nothing is compared: the cell's exit code alone decides."""
        return self.path is None and self.cell is None and not self.sha256


@dataclass(frozen=True)
class Cell:
    """One case: a command, the artifacts that it must write, and what they must equal.

    `artifacts` are names or patterns in order of execution. `layer`, `family` and `node` stand for
    what a tensor's name does not say. With `explicit_fallback` the cell itself must say that it
    fell back on nothing.
    """

    id: str
    command: tuple[str, ...]
    artifacts: tuple[str, ...]
    reference: Reference
    quick: bool = False
    explicit_fallback: bool = False
    timeout_s: int = _DEFAULT_TIMEOUT
    layer: int | None = None
    family: str | None = None
    node: str | None = None


@dataclass(frozen=True)
class PredecessorPin:
    """The stage that must have passed before, and the identity that it must have had.

    `path` is relative to the manifest: a gate's folder or zip, or a chain report alone, which
    then needs `sha256`. `commit` is one, or "same" for that of this run.
    """

    path: str
    stage: str
    config_fingerprint: str | None = None
    commit: str | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class Manifest:
    """A gate: its stage, its configuration, the topologies it accepts, its cells in order."""

    stage: str
    config: Mapping[str, Json] = field(hash=False)
    topologies: tuple[Topology, ...]
    cells: tuple[Cell, ...]
    raw: bytes = field(repr=False)
    pinned: Mapping[str, Json] | tuple[str, ...] = field(hash=False, default=())
    predecessor: PredecessorPin | None = None
    path: Path | None = None
    file_name: str = "gate-manifest.json"

    @property
    def folder(self) -> Path | None:
        """Give the folder that paths in it are relative to."""
        return None if self.path is None else self.path.parent

    @property
    def config_fingerprint(self) -> str:
        """Give the fingerprint of the configuration."""
        return config_fingerprint(self.config)

    @property
    def sha256(self) -> str:
        """Give the SHA-256 of the manifest's bytes."""
        return hashlib.sha256(self.raw).hexdigest()

    def vanished(self) -> tuple[tuple[str, ...], str] | None:
        """Name the pinned ids that no cell has, and say what is wrong; None when nothing is."""
        ids = [cell.id for cell in self.cells]
        if isinstance(self.pinned, Mapping):
            if self.pinned == pin_of(ids):
                return None
            return (), (
                f"The manifest pins {self.pinned.get('count')} ids, and its {len(ids)} cells are "
                "not these: a cell was taken out, added or renamed."
            )
        gone = tuple(each for each in self.pinned if each not in set(ids))
        new = [each for each in ids if each not in set(self.pinned)]
        if gone:
            return gone, f"The pinned cell `{printable(gone[0])}` is not in the manifest any more."
        return ((), f"The cell `{printable(new[0])}` is not among the pinned ids.") if new else None

    def check_pin(self) -> None:
        """Raise VanishedCell unless the cells are exactly those that are pinned."""
        found = self.vanished()
        if found is not None:
            pin = pin_of([cell.id for cell in self.cells])
            raise VanishedCell(
                found[1],
                remedy='Restore the cell, or, if it is meant, pin `{"count": '
                f'{pin["count"]}, "sha256": "{pin["sha256"]}"}}`.',
            )


def pin_of(ids: Sequence[str]) -> dict[str, Json]:
    """Give the pin of a set of ids."""
    return {"count": len(ids), "sha256": ids_sha256(ids)}


def load_manifest(path: Path) -> Manifest:
    """Read a manifest, JSON or (by its suffix) TOML. Raises Unusable, NotPermitted."""
    toml = path.suffix.lower() == ".toml"
    raw = read_bytes(path)
    return replace(parse_manifest(raw, printable(path.name), toml=toml), path=path)


def parse_manifest(raw: bytes, label: str, *, toml: bool = False) -> Manifest:
    """Parse a manifest's bytes; a key that is not known is refused. Raises Unusable."""
    document = parse_toml(raw, label) if toml else parse_object(raw, label)
    said = Fields(document, label, _REMEDY)
    said.schema(SCHEMA)
    stage = said.text("stage")
    if not stage.strip() or len(stage) > 200:
        raise said.fault("has an empty or very long `stage`")
    topologies = tuple(read_topology(each, complete=False) for each in said.objects("topologies"))
    if not topologies:
        raise said.fault("accepts no topology")
    given = said.objects("cells")
    if not 0 < len(given) <= _MOST_CELLS:
        raise said.fault(f"must have 1 to {_MOST_CELLS:,} cells")
    cells = _cells(given)
    manifest = Manifest(
        stage=stage,
        config=_config(said),
        topologies=topologies,
        cells=cells,
        raw=raw,
        pinned=_pinned(said),
        predecessor=_predecessor(said),
        file_name="gate-manifest.toml" if toml else "gate-manifest.json",
    )
    said.nothing_else()
    return manifest


def _config(said: Fields) -> dict[str, Json]:
    config = said.mapping("config")
    try:
        config_fingerprint(config)
    except (ValueError, RecursionError):  # a string that is not Unicode, a number too long
        raise said.fault("has a `config` that has no canonical form") from None
    return config


def _cells(given: Sequence[Fields]) -> tuple[Cell, ...]:
    cells: list[Cell] = []
    folded: set[str] = set()
    earlier: dict[str, None] = {}
    for each in given:
        cell = _cell(each, earlier)
        if cell.id.casefold() in folded:
            raise each.fault(f"has the id `{cell.id}` of another cell")
        folded.add(cell.id.casefold())
        earlier[cell.id] = None
        cells.append(cell)
    return tuple(cells)


def _cell(said: Fields, earlier: Collection[str]) -> Cell:
    name = said.text("id")
    if not _ID.fullmatch(name):
        raise said.fault("has an `id` that cannot name a folder (letters, digits, `._+=,@[]-`)")
    command = said.texts("command")
    if not command or not command[0] or any("\0" in word for word in command):
        raise said.fault("has a `command` that is not a list of words")
    artifacts = said.texts("artifacts")
    for pattern in artifacts:
        fault = pattern_fault(pattern)
        if fault:
            raise said.fault(f"has an artifact `{printable(pattern[:80])}` {fault}")
    reference = _reference(said, earlier)
    if not artifacts and not reference.is_none:
        raise said.fault("has a `reference` but no `artifacts`")
    family = said.optional_text("family")
    cell = Cell(
        id=name,
        command=command,
        artifacts=artifacts,
        reference=reference,
        quick=said.flag("quick", default=False),
        explicit_fallback=said.flag("explicit_fallback", default=False),
        timeout_s=said.optional_count("timeout_s", least=1) or _DEFAULT_TIMEOUT,
        layer=said.optional_count("layer"),
        family=family,
        node=said.optional_text("node"),
    )
    if cell.timeout_s > 30 * 24 * 3600:
        raise said.fault("has a `timeout_s` of more than 30 days")
    said.nothing_else()
    return cell


def _reference(said: Fields, earlier: Collection[str]) -> Reference:
    value = said.required("reference")
    if value == "none":
        return Reference()
    if isinstance(value, str):
        return Reference(path=_path(said, "reference", value))
    given = said.inner("reference")
    path, cell = given.optional_text("path"), given.optional_text("cell")
    digests = given.optional_mapping("sha256") or {}
    inner = Fields(digests, f"`sha256` of {given.label}", given.remedy)
    sums = {name: inner.sha256(name) for name in digests}
    given.nothing_else()
    if cell is not None and (path is not None or sums):
        raise given.fault("names a cell and something else")
    if path is None and cell is None and not sums:
        raise given.fault('names nothing (say `"none"` if nothing is to be compared)')
    if cell is not None and cell not in earlier:
        raise given.fault(f"names `{printable(cell[:80])}`, which is no earlier cell")
    return Reference(None if path is None else _path(given, "path", path), cell, sums)


def _path(said: Fields, name: str, value: str) -> str:
    if not value or "\0" in value:
        raise said.fault(f"has a `{name}` that is no path")
    return value


def _pinned(said: Fields) -> Mapping[str, Json] | tuple[str, ...]:
    if isinstance(said.required("pinned_ids"), list):
        return said.texts("pinned_ids")
    pin = said.inner("pinned_ids")
    found: dict[str, Json] = {"count": pin.count("count"), "sha256": pin.sha256("sha256")}
    pin.nothing_else()
    return found


def _predecessor(said: Fields) -> PredecessorPin | None:
    given = said.optional_inner("predecessor")
    if given is None:
        return None
    commit = given.optional_text("commit")
    if commit is not None and not re.fullmatch(r"same|[0-9a-f]{40}|[0-9a-f]{64}", commit):
        raise given.fault('has a `commit` that is neither a full commit id nor "same"')
    pin = PredecessorPin(
        path=_path(given, "path", given.text("path")),
        stage=given.text("stage"),
        config_fingerprint=given.optional_sha256("config_fingerprint"),
        commit=commit,
        sha256=given.optional_sha256("sha256"),
    )
    given.nothing_else()
    return pin
