"""Whether the ranks are those of one run: same code, same packages, same variables.

What may differ from rank to rank is listed: the rank itself, the devices that it sees, network
interfaces and caches of its host. Where a launcher's id of the job is recorded, it is compared as
every other variable is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ...records.names import printable
from ...records.strict_json import Json
from .chain import Findings
from .model import Provenance

if TYPE_CHECKING:
    from ..evidence.run_document import RunRecord

_OF_A_RANK = frozenset(
    """
    LOCAL_WORLD_SIZE NCCL_IB_HCA CUDA_VISIBLE_DEVICES HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES
    ASCEND_RT_VISIBLE_DEVICES
    """.split()
)
_OF_A_RANK_ENDS = ("RANK", "_RANK_LOCAL", "_SOCKET_IFNAME", "_CACHE_DIR")
_MOST = 8


def check_same_run(
    runs: Mapping[int, Provenance], records: Mapping[int, RunRecord], findings: Findings
) -> None:
    """Add an incomplete finding for what rank by rank is not as on the first rank."""
    if len(runs) < 2:
        return
    described = {rank: dict(_described(run, records.get(rank))) for rank, run in runs.items()}
    (first, known), *others = described.items()
    told: set[str] = set()
    for rank, one in others:
        for name in sorted({*known, *one} - told):
            ours, theirs = known.get(name, "not set"), one.get(name, "not set")
            if ours == theirs:
                continue
            told.add(name)
            if len(told) <= _MOST:
                findings.incomplete.append(
                    f"Ranks {first} and {rank} are not of one run: {printable(name[:80])} is "
                    f"{_short(ours)} on one, {_short(theirs)} on the other."
                )
    if len(told) > _MOST:
        findings.incomplete.append(f"Ranks differ in {len(told) - _MOST:,} more ways.")


def is_of_a_rank(name: str) -> bool:
    """Tell whether a variable may differ between the ranks of one run."""
    return name in _OF_A_RANK or name.endswith(_OF_A_RANK_ENDS)


def _described(run: Provenance, record: RunRecord | None) -> Iterator[tuple[str, Json]]:
    yield "`dirty`", run.dirty
    if record is not None:
        yield "the digest of its changes", record.diff_sha256
        yield "what it measured", list[Json](sorted(each.sha256 for each in record.inputs))
        yield "the tool", dict(record.tool)
        before = record.predecessor
        yield "the run before", None if before is None else before.id
    for name, value in (run.environment or {}).items():
        if not isinstance(value, dict):
            yield f"`{name}`", value
            continue
        for inner, each in value.items():
            if name != "variables" or not is_of_a_rank(inner):
                yield f"{inner} ({name})", each


def _short(value: Json) -> str:
    text = value if isinstance(value, str) else repr(value)
    return f"`{printable(text[:60])}`" if len(text) <= 60 else f"`{printable(text[:57])}…`"
