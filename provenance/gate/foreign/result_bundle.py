"""The result bundle of RL-Kernel's timestep reports: many results in one file, no verdict.

Each has the SHA-256 of the file it came from; `content.result_bundle` rebuilds what can be rebuilt.
"""

from __future__ import annotations

from ...content.result_bundle import read_result_bundle
from ...finding import Gravity
from .model import Claim, ForeignReport
from .source import Schema, Source

NAME = "result-bundle"
_SHOWN = 4


def _fits(source: Source) -> bool:
    artifacts = source.document.get("artifacts")
    return source.document.get("schema_version") == 1 and isinstance(artifacts, dict)


def _read(source: Source) -> ForeignReport:
    bundle = read_result_bundle(source.data, source.label)
    if bundle.gpu is None or bundle.description is None:
        raise source.said.fault("does not say on which GPU it was made, or what it is")
    if not bundle.artifacts:
        raise source.said.fault("holds no result")
    failed = [f.diagnosis.rstrip(".") for f in bundle.findings if f.gravity is Gravity.FAILED]
    open_ = [f.diagnosis.rstrip(".") for f in bundle.findings if f.gravity is not Gravity.FAILED]
    rebuilt = sum(artifact.rule is not None for artifact in bundle.artifacts)
    return ForeignReport(
        NAME,
        source.label,
        Claim.NONE,
        scope=bundle.gpu,
        files={artifact.name: artifact.original_sha256 for artifact in bundle.artifacts},
        faults=tuple(failed[:_SHOWN]),
        gaps=tuple(open_[:_SHOWN]),
        notes=(f"{rebuilt} of {len(bundle.artifacts)} originals have the SHA-256 stated",),
    )


SCHEMA = Schema(NAME, _fits, _read)
