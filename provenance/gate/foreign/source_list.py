"""`{revision, tracked_diff_sha256, source_sha256, files}`: the sources of a run (RL-Kernel).

It is a list of digests and carries no verdict; the files are what can be asked.
"""

from __future__ import annotations

import hashlib

from ....records.names import printable
from ...sums.names import fault_in
from ..json_fields import Fields
from ..model import Provenance
from .model import Claim, ForeignReport
from .source import REMEDY, Schema, Source, object_id

NAME = "source-list"
_KEYS = frozenset({"revision", "tracked_diff_sha256", "source_sha256"})
_NO_CHANGE = hashlib.sha256(b"").hexdigest()


def _fits(source: Source) -> bool:
    return source.schema is None and len(_KEYS & source.document.keys()) >= 2


def _read(source: Source) -> ForeignReport:
    said = source.said
    revision = object_id(said.text("revision"))
    if revision is None:
        raise said.fault("has a `revision` that is not a full commit id")
    dirty = said.sha256("tracked_diff_sha256") != _NO_CHANGE
    said.sha256("source_sha256")
    files = said.mapping("files")
    if not files:
        raise said.fault("lists no file")
    each = Fields(files, f"`files` of {source.label}", REMEDY)
    faults = tuple(
        f"`{printable(name[:100])}` is {fault}" for name in files if (fault := fault_in(name))
    )
    return ForeignReport(
        NAME,
        source.label,
        Claim.NONE,
        Provenance(commit=revision, dirty=dirty),
        scope=f"{len(files):,} files",
        files={name: each.sha256(name) for name in files},
        faults=faults[:4],
        gaps=("tracked files had changes",) if dirty else (),
    )


SCHEMA = Schema(NAME, _fits, _read)
