"""`ws1-c10-c11-v5`: the chain gate of a dense model, forward and backward (RL-Kernel).

Its own rules say what it must have run, on which weights, and that a dirty tree does not count.
"""

from __future__ import annotations

from ....records.strict_json import Json
from ..fingerprint import config_fingerprint
from ..json_fields import Fields
from ..model import Drift, Provenance
from .model import ForeignReport
from .source import Schema, Source, claim_of, named, object_id, parts_failed

NAME = "ws1-c10-c11-v5"
_EXECUTED = (
    "backward_executed",
    "train_infer_executed",
    "accuracy_executed",
    "gradient_accuracy_executed",
    "all_parameter_gradients",
)
_MACHINE = ("gpu_name", "compute_capability", "device", "backend_profile")


def _read(source: Source) -> ForeignReport:
    said = source.said
    passed = said.flag("passed")
    said.required("first_drift")
    first = said.optional_text("first_drift")
    gaps = [f"`{key}` is not true" for key in _EXECUTED if said.get(key) is not True]
    weights = said.optional_text("weight_source")
    if weights is None or weights.startswith("synthetic"):
        gaps.append("it ran on synthetic weights, or does not say on which")
    if said.optional_text("weight_hash") is None:
        gaps.append("it does not name the weights by a digest")
    faults: list[str] = []
    if passed and first is not None:
        faults.append("it says that it passed, and names a first drift")
    if passed and parts_failed(source.document):
        faults.append("it says that it passed, and a part of it did not")
    config = said.optional_mapping("config_fingerprint")
    return ForeignReport(
        NAME,
        source.label,
        claim_of(passed),
        Provenance(
            commit=object_id(said.text("git_sha")),
            dirty=said.flag("git_dirty"),
            environment=_machine(said),
        ),
        scope=said.optional_text("backend_profile"),
        config_fingerprint=None if config is None else config_fingerprint(config),
        gaps=tuple(gaps),
        faults=tuple(faults),
        files={
            "tolerance_contract.json": said.sha256("contract_sha256"),
            "ws1_manifest.json": said.sha256("manifest_sha256"),
        },
        first_drift=None
        if first is None
        else Drift(NAME, first, None, None, None, first, None, reason="differs"),
    )


def _machine(said: Fields) -> dict[str, Json] | None:
    found = {name: said.get(name) for name in _MACHINE}
    return found if found["gpu_name"] is not None else None


SCHEMA = Schema(NAME, named(NAME), _read)
