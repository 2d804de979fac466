"""What `dump --base --recipe` says of each checkpoint that it saved."""

from __future__ import annotations

from collections.abc import Iterator

from ..recover.prove import Proof
from .rebuild_config import rebuilt_lines
from .validate_report import report


def proof_lines(proof: Proof) -> Iterator[str]:
    """Give the verdict of the validation, and the rebuilt configuration with its sources."""
    if proof.validation is not None:
        yield ""
        yield report(proof.validation)
    if proof.rebuilt is not None:
        yield ""
        yield from rebuilt_lines(proof.rebuilt)
