"""Tell which schema a report is of, and read it."""

from __future__ import annotations

from ....errors import Unusable
from ....records.names import printable
from ....records.strict_json import parse_object
from ..model import CHAIN_SCHEMA, RANK_SCHEMA, ChainReport, RankReport
from ..report import LIMIT, read_chain_report, read_rank_report
from . import (
    attempt,
    chain_gate,
    chain_replay,
    evidence_summary,
    next_chain,
    norm_reuse,
    operator_report,
    rank_file,
    result_bundle,
    source_list,
    validator,
    verdictless,
)
from .model import Claim, ForeignReport
from .source import REMEDY, Source, completed

# Those that name their schema come first; those told by their keys follow.
SCHEMAS = (
    next_chain.SCHEMA,
    norm_reuse.SCHEMA,
    operator_report.SCHEMA,
    chain_replay.SCHEMA,
    evidence_summary.SCHEMA,
    chain_gate.SCHEMA,
    attempt.SCHEMA,
    verdictless.SCHEMA,
    result_bundle.SCHEMA,
    rank_file.SCHEMA,
    source_list.SCHEMA,
    validator.SCHEMA,
)


def read_report(data: bytes, name: str) -> ForeignReport | RankReport | ChainReport | None:
    """Read a report of any schema that is known; None for JSON of another kind.

    `name` is the file's: `rank-0.json` must be of rank 0, and what is called `.partial` never
    counts. Raises Unusable for what is cut short, no object, empty, or lacks a key it must have.
    """
    last = name.replace("\\", "/").rpartition("/")[2]
    label = printable(name[-200:]) or "The report"
    if last.endswith(".partial"):
        gaps = ("it was not finished: a partial report counts for nothing",)
        return ForeignReport("partial", label, Claim.INCOMPLETE, gaps=gaps)
    if len(data) > LIMIT:
        raise Unusable(
            f"{label} has {len(data):,} bytes, more than the {LIMIT:,} that are read.",
            remedy="Check that it is the report that was meant.",
        )
    document = parse_object(data, label)
    if not document:
        raise Unusable(f"{label} is an empty object.", remedy=REMEDY)
    if document.get("schema") == RANK_SCHEMA:
        return read_rank_report(document, label)
    if document.get("schema") == CHAIN_SCHEMA:
        return read_chain_report(document, label)
    source = Source(document, label, last, data)
    for schema in SCHEMAS:
        if schema.fits(source):
            return completed(schema.read(source), source)
    return None
