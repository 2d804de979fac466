"""The link of `dump`: which process, which files, what became of every tensor."""

from __future__ import annotations

import os
from pathlib import Path

from ...records.custody import Action, Artifact, Link, now, resumable
from ...records.names import decoded
from ..formats.safetensors import Header
from ..ranges import intersect
from ..save.destination import OutputFolder
from ..save.recovery import RecoveredFile, Recovery
from .place import recorded

STAGE = "dump"
UNRECORDED = (
    "It took over what an earlier, interrupted run had read, and that run left no link here."
)


def record_dump(folder: OutputFolder, recovery: Recovery, *, anew: bool) -> str | None:
    """Append a link to the chain of the output folder; give a sentence where that fails.

    Unless it runs `anew`, the folder has the record of an earlier run.
    """

    def link() -> Link:
        goes_on = folder.took_over or not anew
        resumes = resumable(Path(f"/proc/self/fd/{folder.fd}"), STAGE) if goes_on else None
        return dump_link(recovery, resumes=resumes, took_over=goes_on)

    return recorded(folder.fd, link)


def dump_link(recovery: Recovery, *, resumes: str | None, took_over: bool) -> Link:
    """Say what was saved from where.

    `resumes` is the link of an earlier run into the same folder; `took_over` tells that bytes of
    an earlier run were used, by a link or not.
    """
    facts: dict[str, object] = {"process": dict(recovery.process)}
    if recovery.blocked:
        facts["blocked"] = [{"name": b.name, "reason": b.reason} for b in recovery.blocked]
    if took_over and resumes is None:
        facts["unrecorded"] = UNRECORDED
    return Link(
        STAGE,
        outputs=[_output(file) for file in recovery.files],
        verdict=recovery.verdict.value,
        resumes=resumes,
        time=now(),
        facts=facts,
    )


def _output(file: RecoveredFile) -> Artifact:
    source = file.candidate
    return Artifact(
        os.fsdecode(file.path),
        file.sha256,
        file.size,
        action=Action.CARRIED,
        tensors=_exceptions(file),
        facts={
            "verdict": file.verdict.value,
            "from": {
                "path": decoded(source.name),
                "pid": source.pid,
                "state": source.state.value,
                "device": source.device,
                "inode": source.inode,
            },
        },
    )


def _exceptions(file: RecoveredFile) -> dict[str, object]:
    """Name the tensors that were not carried whole and unchanged."""
    found: dict[str, object] = {
        name: {"action": Action.CARRIED, "changed_in_memory": True} for name in file.dirty_tensors
    }
    if file.header.header is not None and file.unread:
        found |= _unread(file.header.header, file)
    return found


def _unread(header: Header, file: RecoveredFile) -> dict[str, object]:
    touched = set(header.touched(file.unread))
    found: dict[str, object] = {}
    for tensor in header.tensors:
        if tensor.name in touched:
            lost = intersect(file.unread, header.span(tensor))
            gone = sum(piece.size for piece in lost) == tensor.nbytes
            found[tensor.name] = {
                "action": Action.DROPPED if gone else Action.CARRIED,
                "unread": [piece.to_json() for piece in lost],
            }
    return found
