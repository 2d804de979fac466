"""Refuse trust that comes with the evidence: whoever changes the files changes that, too."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import Unusable
from ...records.names import printable
from .package import Package

if TYPE_CHECKING:
    from ..trust.judge import Trust


def refuse_carried_trust(package: Package, trust: Trust) -> None:
    """Refuse files of the verifier that are members of what is verified. Raises Unusable.

    Links are resolved. Beside a list that covers only what it names they may lie.
    """
    if package.base is None or package.revision is not None:
        return
    base = Path(package.base).resolve()
    for path in _own_files(trust):
        found = path.resolve()
        if not found.is_relative_to(base):
            continue
        name = found.relative_to(base).as_posix()
        if package.demands_cover or name in package.members:
            raise Unusable(
                f"{printable(os.fsencode(path))} comes with the evidence, and cannot say whom to "
                "trust.",
                remedy="Take the signers' keys from elsewhere, into a file of your own.",
            )


def _own_files(trust: Trust) -> Iterator[Path]:
    if trust.source is not None:
        yield trust.source
    if trust.policy is not None:
        yield trust.policy.path
        yield from trust.policy.timestamp_authorities
