"""`qwen3-next-chain-v1`: a chain report that names the first drift by family, layer and cell."""

from __future__ import annotations

from ....records.strict_json import Json
from ..json_fields import Fields
from ..model import Drift, Provenance
from .model import ForeignReport
from .source import Schema, Source, claim_of, named, object_id, parts_failed

NAME = "qwen3-next-chain-v1"
_KEYS = ("first_drift_family", "first_drift_layer", "first_drift_cell")


def _read(source: Source) -> ForeignReport:
    said = source.said
    passed = said.flag("passed")
    fingerprint = said.text("config_fingerprint")
    if not fingerprint:
        raise said.fault("has an empty `config_fingerprint`")
    for key in _KEYS:
        said.required(key)
    family, layer = said.optional_text("first_drift_family"), said.get("first_drift_layer")
    cell = said.optional_text("first_drift_cell")
    number = _layer(said, layer)
    drifted = any(each is not None for each in (family, layer, cell))
    faults: list[str] = []
    if passed and drifted:
        faults.append("it says that it passed, and names a first drift")
    if passed and parts_failed(source.document):
        faults.append("it says that it passed, and a part of it did not")
    drift = Drift(NAME, cell or "", None, number, family, None, None, reason="differs")
    return ForeignReport(
        NAME,
        source.label,
        claim_of(passed),
        _provenance(said),
        scope=said.optional_text("scope"),
        config_fingerprint=fingerprint,
        faults=tuple(faults),
        first_drift=drift if drifted else None,
    )


def _layer(said: Fields, value: Json) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 9:
        return int(value)
    return said.optional_count("first_drift_layer")


def _provenance(said: Fields) -> Provenance:
    """Read what there is under any of the names that RL-Kernel's reports use."""
    commit = said.optional_text("rl_kernel_commit") or said.optional_text("git_sha")
    dirty = said.optional_flag("tracked_tree_dirty")
    if dirty is None:
        dirty = said.optional_flag("git_dirty")
    return Provenance(
        commit=object_id(commit), dirty=dirty, environment=said.optional_mapping("environment")
    )


SCHEMA = Schema(NAME, named(NAME), _read)
