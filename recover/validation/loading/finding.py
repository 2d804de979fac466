"""What one loader does about one fault, and which loaders there are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

PEFT = "PeftModel.from_pretrained"
RESUME = "PeftModel.load_adapter"
TRANSFORMERS = "transformers load_adapter"
VLLM = "vLLM"
SGLANG = "SGLang"
FULL = "transformers from_pretrained"

VERSIONS: Mapping[str, str] = {
    PEFT: "peft 0.21.2",
    RESUME: "peft 0.21.2",
    TRANSFORMERS: "transformers 5.24.0",
    VLLM: "source of 2026, not run",
    SGLANG: "source of 2025, not run",
    FULL: "transformers 5.24.0",
}
OF_ADAPTERS = (PEFT, RESUME, TRANSFORMERS, VLLM, SGLANG)


class Outcome(str, Enum):
    """What a loader does about a fault."""

    RAISES = "raises"
    WARNS = "warns"
    SILENT = "silent"
    LOADS = "loads"


@dataclass(frozen=True)
class LoaderFinding:
    """What one loader does; `message` is what it says, `effect` what it means. Fit to print."""

    loader: str
    outcome: Outcome
    message: str
    effect: str = ""

    @property
    def version(self) -> str:
        """The version that the fact is from."""
        return VERSIONS[self.loader]

    def to_json(self) -> dict[str, object]:
        """Give one entry of `loaders`."""
        return {
            "loader": self.loader,
            "version": self.version,
            "outcome": self.outcome.value,
            "message": self.message,
            "effect": self.effect,
        }


Findings: TypeAlias = Iterator[LoaderFinding]
REPORT = "logs a LOAD REPORT: {} keys {}."  # of transformers
BASE_OUTPUT = "the output equals the base model's"
MISSING_KEYS = "UserWarning: Found missing adapter keys while loading the checkpoint: [{}, ...]."
