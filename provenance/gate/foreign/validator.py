"""`{"passed": bool, "errors": [...]}`: what RL-Kernel's validators print."""

from __future__ import annotations

from ..model import Provenance
from .model import ForeignReport
from .source import Schema, Source, claim_of, object_id, parts_failed

NAME = "validator"


def _fits(source: Source) -> bool:
    return source.schema is None and {"passed", "errors"} <= source.document.keys()


def _read(source: Source) -> ForeignReport:
    said = source.said
    passed, errors = said.flag("passed"), said.required("errors")
    if not isinstance(errors, list):
        raise said.fault("has `errors` that are no list")
    faults: list[str] = []
    if passed and errors:
        faults.append(f"it says that it passed, and lists {len(errors):,} errors")
    if passed and parts_failed(source.document):
        faults.append("it says that it passed, and a part of it did not")
    dirty = source.document.get("tracked_tree_dirty")
    commit = source.document.get("rl_kernel_commit")
    environment = source.document.get("environment")
    return ForeignReport(
        NAME,
        source.label,
        claim_of(passed),
        Provenance(
            commit=object_id(commit) if isinstance(commit, str) else None,
            dirty=dirty if isinstance(dirty, bool) else None,
            environment=environment if isinstance(environment, dict) else None,
        ),
        faults=tuple(faults),
    )


SCHEMA = Schema(NAME, _fits, _read)
