"""`cross_config.complete.v1`: the marker that ends an attempt of RL-Kernel's ArtifactStore.

Attempts are append-only folders `cases/CASE/ATTEMPT`. One without a marker is partial and ignored;
the newest whose marker is whole, and whose artifacts have the digests in it, counts.
"""

from __future__ import annotations

import re
from dataclasses import replace

from ....errors import ReefError
from ....records.names import printable
from ...sums.names import fault_in
from ..files import Files, read_small
from ..json_fields import Fields
from ..model import Provenance
from .model import Claim, ForeignReport, check_files
from .source import REMEDY, Schema, Source, named

NAME = "cross_config.complete.v1"
MARKER = "COMPLETE"
REQUIRED = frozenset(
    """
    requested.json materialized.json actual.json identity.json comparison.json
    score_rollout.pt score_training.pt token_diffs.pt
    """.split()
)
_LIMIT = 16 << 20
_CLAIMS = {
    "pass": Claim.PASSED,
    "passed": Claim.PASSED,
    "fail": Claim.FAILED,
    "failed": Claim.FAILED,
}
_DIGITS = re.compile(r"(\d{1,18})")


def _read(source: Source) -> ForeignReport:
    said = source.said
    case, attempt = said.text("case_id"), said.text("attempt_id")
    if not case or not attempt:
        raise said.fault("names no case or no attempt")
    status = said.text("status")
    digests = said.mapping("artifact_sha256")
    each = Fields(digests, f"`artifact_sha256` of {source.label}", REMEDY)
    files = {name: each.sha256(name) for name in digests}
    claim = _CLAIMS.get(status.lower(), Claim.INCOMPLETE)
    faults = [f"`{printable(name[:80])}` is {fault}" for name in files if (fault := fault_in(name))]
    if files.keys() != REQUIRED:
        faults.append("it does not name exactly the artifacts that an attempt must have")
    mismatches = said.optional_count("mismatch_count")
    if claim is Claim.PASSED and (said.get("passed") is False or mismatches):
        faults.append("its status is a pass, and it counts mismatches or says that it did not pass")
    if claim is Claim.PASSED and said.get("comparable") is False:
        faults.append("its status is a pass, and it says that nothing could be compared")
    fingerprint = said.optional_text("environment_fingerprint")
    return ForeignReport(
        NAME,
        source.label,
        claim,
        Provenance(environment={"fingerprint": fingerprint} if fingerprint else None),
        scope=f"{case} {attempt}",
        config_fingerprint=said.optional_text("execution_fingerprint"),
        files=files,
        faults=tuple(faults[:4]),
    )


def newest_attempts(files: Files) -> dict[str, ForeignReport]:
    """Give for each case's folder its newest whole attempt, the artifacts hashed.

    Where an attempt has a marker and none is whole, the newest broken one is given, with its
    faults; a case with partial attempts only is given as incomplete.
    """
    cases: dict[str, set[str]] = {}
    for name in files.names():
        parts = name.split("/")
        at = parts.index("cases") if "cases" in parts else len(parts)
        if len(parts) > at + 3:
            cases.setdefault("/".join(parts[: at + 2]), set()).add(parts[at + 2])
    return {case: _newest(files, case, attempts) for case, attempts in sorted(cases.items())}


def _newest(files: Files, case: str, attempts: set[str]) -> ForeignReport:
    broken: ForeignReport | None = None
    for attempt in sorted(attempts, key=_age, reverse=True):
        folder = f"{case}/{attempt}"
        if f"{folder}/{MARKER}" not in files.names():
            continue
        found = _checked(files, folder, case.rpartition("/")[2], attempt)
        if not found.faults and found.intact:
            return found
        broken = broken or found
    if broken is not None:
        return broken
    gaps = ("no attempt was completed: what is partial counts for nothing",)
    return ForeignReport(NAME, printable(case), Claim.INCOMPLETE, gaps=gaps)


def _checked(files: Files, folder: str, case: str, attempt: str) -> ForeignReport:
    from .read import read_report

    label = f"{folder}/{MARKER}"
    try:
        report = read_report(read_small(files, label, _LIMIT), label)
    except ReefError as error:
        faults = (error.message.rstrip("."),)
        return ForeignReport(NAME, printable(label), Claim.INCOMPLETE, faults=faults)
    if not isinstance(report, ForeignReport) or report.schema != NAME:
        faults = ("its marker is of another schema",)
        return ForeignReport(NAME, printable(label), Claim.INCOMPLETE, faults=faults)
    if report.scope != f"{case} {attempt}":
        report = replace(report, faults=(*report.faults, "its marker is of another attempt"))
    return check_files(report, files, f"{folder}/")


def _age(attempt: str) -> list[tuple[int, str]]:
    """Sort `attempt-10` after `attempt-9`."""
    parts = _DIGITS.split(attempt)
    return [(int(part), "") if part.isdigit() and part.isascii() else (-1, part) for part in parts]


SCHEMA = Schema(NAME, named(NAME), _read)
