"""`rank-N.json` of the Qwen3-Next gates (RL-Kernel, tools/validation/models).

`{status, scope, rank, rl_kernel_commit, tracked_tree_dirty, provider, environment, …}`; written as
`.json.partial` and renamed, so that only a finished one has the name.
"""

from __future__ import annotations

import re

from ....records.names import printable
from .model import Claim, ForeignReport
from .source import Schema, Source, parts_failed, tracked

NAME = "qwen3-next-rank"
_FILE = re.compile(r"rank-(\d{1,6})\.json")
_CLAIMS = {"passed": Claim.PASSED, "failed": Claim.FAILED}


def _fits(source: Source) -> bool:
    if source.schema is not None:
        return False
    keys = {"rank", "rl_kernel_commit"}
    return keys <= source.document.keys() or _FILE.fullmatch(source.name) is not None


def _read(source: Source) -> ForeignReport:
    said = source.said
    status, rank = said.text("status"), said.count("rank")
    found = _FILE.fullmatch(source.name)
    if found is not None and int(found[1]) != rank:
        raise said.fault(f"says that it is of rank {rank}")
    provider = said.text("provider")
    claim = _CLAIMS.get(status, Claim.INCOMPLETE)
    faults: tuple[str, ...] = ()
    if claim is Claim.PASSED and parts_failed(source.document):
        faults = ("it says `passed`, and a part of it did not",)
    return ForeignReport(
        NAME,
        source.label,
        claim,
        tracked(said),
        scope=said.text("scope"),
        rank=rank,
        notes=(f"provider `{printable(provider[:100])}`",),
        faults=faults,
    )


SCHEMA = Schema(NAME, _fits, _read)
