"""What a foreign report says, what it lacks, and what can be asked of the files it names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from ....errors import ExitCode, ReefError
from ....records.names import printable
from ..files import Files
from ..model import Drift, GateVerdict, Provenance

_SHOWN = 4


class Claim(str, Enum):
    """What a report says of itself."""

    PASSED = "passed"
    FAILED = "failed"
    INCOMPLETE = "incomplete"
    NONE = "none"


@dataclass(frozen=True)
class ForeignReport:
    """A report of a schema that is not ours. All sentences are fit to print.

    `gaps` say what would keep even a true claim from being a pass; `faults` what contradicts it.
    `files` are the SHA-256 of files that it names, by their names there; `intact` is None until
    they were hashed, and where not all of them were there.
    """

    schema: str
    label: str
    claim: Claim
    provenance: Provenance = field(default_factory=Provenance)
    scope: str | None = None
    rank: int | None = None
    config_fingerprint: str | None = None
    gaps: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=lambda: dict[str, str](), hash=False)
    first_drift: Drift | None = None
    intact: bool | None = None

    @property
    def verdict(self) -> GateVerdict:
        """Judge it: a claim is never a pass."""
        if self.claim is Claim.FAILED or self.faults or self.intact is False:
            return GateVerdict.FAILED
        return GateVerdict.INCOMPLETE

    @property
    def exit_code(self) -> ExitCode:
        """Give the exit code."""
        return ExitCode.DOES_NOT_HOLD

    @property
    def statement(self) -> str:
        """Say in a sentence what it comes to."""
        if self.faults:
            return f"{self.label} contradicts itself or its files: {self.faults[0]}."
        if self.claim is Claim.NONE:
            return f"{self.label} ({self.schema}) is known, and carries no verdict."
        said = f"{self.label} ({self.schema}) says `{self.claim.value}`: claimed, not recomputed"
        files = ", though the files it names are intact" if self.intact else ""
        return f"{said}{files}."

    @property
    def reasons(self) -> tuple[str, ...]:
        """Say why it is no pass: there is always a reason."""
        return (self.statement, *(f"{self.label}: {each}." for each in (*self.faults, *self.gaps)))

    def to_json(self) -> dict[str, object]:
        """Give the JSON form."""
        return {
            "schema": self.schema,
            "label": self.label,
            "claim": self.claim.value,
            "verdict": self.verdict.value,
            "recomputed": False,
            "statement": self.statement,
            "scope": self.scope,
            "rank": self.rank,
            "config_fingerprint": self.config_fingerprint,
            "provenance": self.provenance.to_json(),
            "gaps": list(self.gaps),
            "faults": list(self.faults),
            "notes": list(self.notes),
            "files": dict(self.files),
            "intact": self.intact,
            "first_drift": None if self.first_drift is None else self.first_drift.to_json(),
        }


def check_files(report: ForeignReport, files: Files, prefix: str = "") -> ForeignReport:
    """Hash the files that a report names, as far as they are there, below `prefix`.

    One that differs is a fault. Raises nothing: what cannot be read is a fault, too.
    """
    present = set(files.names())
    absent: list[str] = []
    faults: list[str] = []
    for name, sha256 in report.files.items():
        if prefix + name not in present:
            absent.append(name)
            continue
        try:
            if files.sha256(prefix + name)[0] != sha256:
                faults.append(f"{printable(name)} has not the SHA-256 that is stated")
        except ReefError as error:
            faults.append(f"{printable(name)} cannot be read: {error.message.rstrip('.')}")
    gaps: tuple[str, ...] = ()
    if absent:
        shown = ", ".join(map(printable, absent[:_SHOWN])) + (", …" if len(absent) > _SHOWN else "")
        gaps = (f"{len(absent):,} of {len(report.files):,} files it names are not here: {shown}",)
    intact = False if faults else None if absent or not report.files else True
    return replace(
        report,
        faults=(*report.faults, *faults[:_SHOWN]),
        gaps=(*report.gaps, *gaps),
        intact=intact,
    )
