"""Public schemas that are known and carry no verdict: captures, requests, envelopes, matrices."""

from __future__ import annotations

from ....records.names import printable
from .model import Claim, ForeignReport
from .source import Schema, Source, named

NAMES = (
    "rlkernel.capture.v1",
    "rlkernel.diagnostic_report.v2",
    "rlkernel.repro.profile.v1",
    "rlkernel.vime_rocm_attention_operator_arm.v1",
    "rlkernel.vime_rocm_attention_operator_matrix.v1",
    "rlkernel.vime_rocm_attention_arm_launch.v1",
    "cross_config.requested.v1",
    "cross_config.actual.v1",
    "cross_config.identity_envelope.v1",
    "cross_config.materialized_envelope.v1",
    "cross_config.alignment_result.v1",
    "cross_config.execution_identity.v1",
    "cross_config.environment.v1",
    "cross_config.score_artifact.v1",
    "cross_config.token_comparison.v1",
)


def _read(source: Source) -> ForeignReport:
    status = source.document.get("status")
    notes = (f"its status is `{printable(status[:60])}`",) if isinstance(status, str) else ()
    return ForeignReport(str(source.schema), source.label, Claim.NONE, notes=notes)


SCHEMA = Schema("verdictless", named(*NAMES), _read)
