"""The links of `validate` and `rebuild-config`: what was looked at, and what came of it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...records.custody import Artifact, Link, now
from ...records.custody_lines import FILE
from ..checkpoint import Checkpoint
from .place import described, files, recorded

if TYPE_CHECKING:
    from ..rebuild_config import Rebuilt
    from ..validation.result import Validation

_CONFIG = "adapter_config.json"


def validated(folder: Path, checkpoint: Checkpoint, result: Validation) -> str | None:
    """Append a link to the chain that a folder has already, and to no other.

    Gives a sentence where one should be there and could not be written.
    """
    if not os.path.lexists(folder / FILE):
        return None

    def link() -> Link:
        return Link(
            "validate",
            inputs=_inputs(checkpoint, folder),
            verdict="holds" if result.ok else "does not hold",
            time=now(),
            facts={
                "base": result.base,
                "expected": result.expected,
                "found": result.found,
                "damage": len(result.damage),
                "not_checked": list(result.not_checked),
            },
        )

    return recorded(folder, link)


def rebuilt(
    folder: Path, checkpoint: Checkpoint, recipes: Sequence[str], result: Rebuilt
) -> str | None:
    """Append a link about a configuration that was written; give a sentence where that fails."""

    def link() -> Link:
        fields = result.decision.ledger.fields.values()
        return Link(
            "rebuild-config",
            inputs=[*shards(checkpoint, folder), *files(map(Path, recipes), folder)],
            outputs=files(result.written, folder),
            verdict="complete",
            time=now(),
            facts={
                "base": result.base.identity if result.base else None,
                "sources": dict(Counter(field.source.value for field in fields)),
            },
        )

    return recorded(folder, link)


def _inputs(checkpoint: Checkpoint, folder: Path) -> tuple[Artifact, ...]:
    weights = shards(checkpoint, folder)
    place = checkpoint.folder
    return weights if place is None else (*weights, *files([place / _CONFIG], folder))


def shards(checkpoint: Checkpoint, folder: Path) -> tuple[Artifact, ...]:
    """Hash the open shards of a checkpoint."""
    place = checkpoint.folder
    return tuple(
        described(shard.readable, None if place is None else place / shard.name, folder)
        for shard in checkpoint.shards
    )
