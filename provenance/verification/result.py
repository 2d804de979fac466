"""The result of a verification: what was checked, what was found, who signed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from ...errors import ExitCode
from ...records.names import decoded
from ...records.tool import tool_identity
from ..finding import Finding, Gravity

SCHEMA = "reefkit.verification/1"


class Verdict(str, Enum):
    """What a verification says of its target."""

    VERIFIED = "VERIFIED"
    UNTRUSTED = "UNTRUSTED"
    INCOMPLETE = "INCOMPLETE"
    FAILED = "FAILED"

    @property
    def exit_code(self) -> ExitCode:
        """Give the exit code."""
        if self is Verdict.VERIFIED:
            return ExitCode.HOLDS
        return ExitCode.UNTRUSTED if self is Verdict.UNTRUSTED else ExitCode.DOES_NOT_HOLD


_VERDICTS = {
    Gravity.NOTE: Verdict.VERIFIED,
    Gravity.UNTRUSTED: Verdict.UNTRUSTED,
    Gravity.INCOMPLETE: Verdict.INCOMPLETE,
    Gravity.FAILED: Verdict.FAILED,
}


@dataclass(frozen=True)
class SignerReport:
    """One valid signature: who made it by the verifier's own files, in which form.

    `identity` is None where nothing of the verifier's names the key; `fingerprint` is OpenSSH's
    (`SHA256:…`), None where the form carries no key and none fitted.
    """

    identity: str | None
    scheme: str
    trusted: bool
    path: str
    fingerprint: str | None = None
    reason: str | None = None

    def to_json(self) -> dict[str, object]:
        """Give one entry of `signers`."""
        return {**vars(self), "path": decoded(self.path)}


@dataclass(frozen=True)
class Verification:
    """What became of a target. `checked` counts files whose digest was computed and compared.

    `files` are their names. `base` is the folder that the members lie in, `container` the one
    file that holds them, or None; `lists` are
    the members that listed them.
    """

    target: str
    checked: int
    findings: tuple[Finding, ...]
    signers: tuple[SignerReport, ...]
    integrity_only: bool = False
    files: tuple[str, ...] = ()
    base: str | None = None
    container: str | None = None
    lists: tuple[str, ...] = ()

    def counts(self, finding: Finding) -> bool:
        """Tell whether a finding weighs in the verdict."""
        return not (self.integrity_only and finding.gravity is Gravity.UNTRUSTED)

    @property
    def verdict(self) -> Verdict:
        """Let the gravest finding decide."""
        return _VERDICTS[max(self._gravities(), default=Gravity.NOTE)]

    def _gravities(self) -> Sequence[Gravity]:
        return [finding.gravity for finding in self.findings if self.counts(finding)]

    @property
    def exit_code(self) -> ExitCode:
        """Give the verdict's exit code."""
        return self.verdict.exit_code

    def to_json(self) -> dict[str, object]:
        """Give the document of `verify --json`."""
        return {
            "schema": SCHEMA,
            "target": self.target,
            "verdict": self.verdict.value,
            "integrity_only": self.integrity_only,
            "checked": self.checked,
            "lists": [decoded(name) for name in self.lists],
            "findings": [
                {
                    "kind": finding.kind.value,
                    "gravity": finding.gravity.name.lower(),
                    "path": None if finding.path is None else decoded(finding.path),
                    "diagnosis": finding.diagnosis,
                }
                for finding in self.findings
            ],
            "signers": [signer.to_json() for signer in self.signers],
            "tool": tool_identity(),
        }
