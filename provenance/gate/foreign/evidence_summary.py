"""`h3-down-evidence-summary-v1`: what remains of a full report, with that report's SHA-256.

It names the sources that ran, and the full report, which is kept elsewhere (RL-Kernel).
"""

from __future__ import annotations

from ....records.names import printable
from ..json_fields import Fields
from ..model import Provenance
from .model import Claim, ForeignReport
from .source import REMEDY, Schema, Source, named, object_id

NAME = "h3-down-evidence-summary-v1"
_HEADER = "h3-down-qualification-v2"
_CLAIMS = {"passed": Claim.PASSED, "failed": Claim.FAILED}


def _read(source: Source) -> ForeignReport:
    said = source.said
    header = said.inner("full_report_header")
    header.schema(_HEADER)
    who = header.inner("provenance")
    status = who.text("git_status")
    who.sha256("git_diff_sha256")
    gaps: list[str] = []
    if not said.flag("production_qualified"):
        gaps.append("it says that nothing is qualified for production")
    complete, remaining = header.flag("acceptance_complete"), header.texts("remaining_acceptance")
    if not complete or remaining:
        gaps.append(f"acceptance is not complete: {len(remaining)} items remain")
    faults = ("acceptance is complete, and items of it remain",) if complete and remaining else ()
    return ForeignReport(
        NAME,
        source.label,
        _CLAIMS.get(header.text("status"), Claim.INCOMPLETE),
        Provenance(
            commit=object_id(who.text("git_commit")),
            dirty=bool(status.strip()),
            environment=who.optional_mapping("environment"),
        ),
        scope=header.optional_text("scope"),
        gaps=tuple(gaps),
        faults=faults,
        files=_files(said, who),
        notes=(f"readiness `{printable(said.text('readiness')[:80])}`",),
    )


def _files(said: Fields, who: Fields) -> dict[str, str]:
    """Give the sources by their paths, and the full report by the name it was written under."""
    sources = who.mapping("source_hashes")
    each = Fields(sources, f"`source_hashes` of {said.label}", REMEDY)
    found = {name: each.sha256(name) for name in sources}
    arguments = who.optional_inner("args")
    output = None if arguments is None else arguments.optional_text("output")
    report = (output or "").replace("\\", "/").rpartition("/")[2] or "report.json"
    return {**found, report: said.sha256("source_report_sha256")}


SCHEMA = Schema(NAME, named(NAME), _read)
