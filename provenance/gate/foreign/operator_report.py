"""`h3_operator_report`: accuracy and speed of one operator (RL-Kernel). It states no verdict."""

from __future__ import annotations

from ....records.names import printable
from .model import Claim, ForeignReport
from .source import Schema, Source, named, tracked, walk

NAME = "h3_operator_report"


def _read(source: Source) -> ForeignReport:
    said = source.said
    accuracy = said.mapping("accuracy")
    said.objects("perf")
    flags = [value for _, value in walk(accuracy) if isinstance(value, bool)]
    held = f"{sum(flags)} of {len(flags)} yes-or-no results in `accuracy` are yes"
    revision, reference = said.text("model_revision"), said.text("reference_commit")
    return ForeignReport(
        NAME,
        source.label,
        Claim.NONE,
        tracked(said),
        scope=said.text("op"),
        notes=(
            held,
            f"model `{printable(revision[:80])}`",
            f"reference `{printable(reference[:80])}`",
        ),
    )


SCHEMA = Schema(NAME, named(NAME), _read)
