"""`qwen3_next_norm_reuse_check`: one operator held against those of other libraries (RL-Kernel).

The operator's own gates decide; other libraries may fail theirs, which is what it measures.
`contract_gates` are asked for their return codes, not only for `passed`.
"""

from __future__ import annotations

from ....records.names import printable
from ..json_fields import Fields
from .model import Claim, ForeignReport
from .source import Schema, Source, named, tracked

NAME = "qwen3_next_norm_reuse_check"
_OWN = "rl_kernel"


def _read(source: Source) -> ForeignReport:
    said = source.said
    said.flag("quick")
    said.texts("checks")
    results = said.inner("results")
    own = results.inner(_OWN)
    faults: list[str] = []
    outcomes: list[bool] = []
    gates = own.optional_mapping("contract_gates") or {}
    inner = Fields(gates, f"`contract_gates` of {source.label}", own.remedy)
    for name in gates:
        gate = inner.inner(name)
        passed, code = gate.flag("passed"), gate.count("returncode", least=-255)
        failed_lines = gate.texts("failed_lines")
        if passed and (code != 0 or failed_lines):
            faults.append(
                f"gate `{printable(name[:60])}` says that it passed, with return code {code}"
            )
        outcomes.append(passed and code == 0 and not failed_lines)
    claim = Claim.NONE if not outcomes else Claim.PASSED if all(outcomes) else Claim.FAILED
    if source.document["quick"] is True and claim is Claim.NONE:
        claim = Claim.INCOMPLETE
    return ForeignReport(
        NAME, source.label, claim, tracked(said), scope=said.text("op"), faults=tuple(faults)
    )


SCHEMA = Schema(NAME, named(NAME), _read)
