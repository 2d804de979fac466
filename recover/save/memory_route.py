"""Save a file from the memory of a process that maps it, when its inode cannot be opened.

The process's pages are the file's, except those that it wrote to; the page map, read before and
after, tells which those are. Reading makes the pages resident in the process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from ...errors import ProcessGone
from ..ranges import Range, merge, total
from ..routes import Route
from ..scan import Candidate
from ..sources import FileSource, MemorySource
from .header_facts import HeaderFacts, read_header_facts
from .job import Job, finish, is_stable, save
from .memory_proof import Length, MemoryView, differing_tensors, differs, length_in_memory
from .outputs import Attributes
from .recovery import Read, RecoveredFile
from .transfer import Transfer
from .verdict import Observations, Verdict, judge


@dataclass(frozen=True)
class _Dirt:
    """Pages that the process copied, and the tensors on them."""

    pages: tuple[Range, ...]
    tensors: tuple[str, ...]
    exact: bool


@dataclass(frozen=True)
class _Fate:
    """What became of the process and its view of the file while it was read."""

    ended: bool
    remapped: bool
    stable: bool


def recover_from_memory(
    job: Job, memory: MemoryView, file: FileSource | None, path_size: int | None
) -> RecoveredFile:
    """Save what the process sees of the file; with `file`, tell exactly what differs from it.

    Raises NotPermitted, ProcessGone, OSError (destination), Stopped.
    """
    output = job.output
    with memory.open(None) as whole:
        header = read_header_facts(file if file else whole, None)
        known_size = os.fstat(file.fd).st_size if file else path_size
        length = length_in_memory(whole, memory.mapped_stop(), header.header, known_size)
    with memory.open(length.size) as source:
        before = memory.copied(source)
        job.listener.start(job.candidate, Route.MEMORY, length.size)
        output.begin(Attributes(length.size), sparse=None, clone_of=None)
        moved = save(job, (source, source), length.size, trust_earlier=False)
        stable = is_stable(source, moved)
        after = memory.copied(source)
        fate = _Fate(memory.process.has_ended(), not _still_mapped(memory), stable)
        dirt = _dirt(header, source, file, merge((*(before or ()), *(after or ()))))
    page_map_known = before is not None and after is not None
    unread = merge((*moved.first_unread, *header.missing(length.size)))
    expected = job.known_digest(moved.sha256)
    verdict = judge(
        Observations(
            from_memory=True,
            source_changed=fate.remapped and not fate.ended and not unread,
            reads_differ=bool(moved.differing) or (not fate.stable and not fate.ended),
            unread=bool(unread),
            pages_copied=bool(dirt.pages),
            page_map_known=page_map_known,
            length_known=length.known,
            read_once=bool(moved.read_once),
            matches_expected=expected == moved.sha256 if expected else None,
        )
    )
    finish(output, moved, complete=verdict not in (Verdict.PARTIAL, Verdict.CHANGED))
    return RecoveredFile(
        candidate=job.candidate,
        path=os.fsdecode(output.path),
        size=length.size,
        sha256=moved.sha256,
        verdict=verdict,
        reads=tuple(_reads(moved)),
        header=header,
        unread=unread,
        differing=moved.differing,
        copied_pages=dirt.pages,
        dirty_tensors=dirt.tensors,
        expected_sha256=expected,
        writers=job.writers,
        notes=tuple(_notes(length, moved, dirt, fate, page_map_known=page_map_known)),
    )


def facts_of_memory(candidate: Candidate, memory: MemoryView) -> dict[str, str]:
    """Tell this process's view of the file from every other, for an interrupted run to go on."""
    identity = memory.process.identity()
    return {
        "source": "memory",
        "pid": str(identity.pid),
        "start_ticks": str(identity.start_ticks),
        "boot_id": identity.boot_id,
        "device": str(candidate.device),
        "inode": str(candidate.inode),
    }


def _still_mapped(memory: MemoryView) -> bool:
    try:
        now = {(m.start, m.stop, m.offset) for m in memory.mappings()}
    except ProcessGone:
        return False
    return all((m.start, m.stop, m.offset) in now for m in memory.holding.mappings)


def _dirt(
    header: HeaderFacts, source: MemorySource, file: FileSource | None, copied: tuple[Range, ...]
) -> _Dirt:
    """Name what the copied pages touch; where the file can be read, exactly what differs."""
    if file is None:
        names = header.header.touched(copied) if header.header else ()
        return _Dirt(copied, names, exact=False)
    changed = tuple(r for r in copied if differs(file, source, r))
    names = differing_tensors(header.header, file, source, changed) if header.header else ()
    return _Dirt(changed, names, exact=True)


def _reads(moved: Transfer) -> Iterator[Read]:
    count = moved.size - total(moved.first_unread)
    yield Read(Route.MEMORY.value, moved.sha256, count, moved.first_unread, False)
    same = not moved.differing and moved.second_unread == moved.first_unread
    yield Read(
        Route.MEMORY.value,
        moved.sha256 if same else None,
        moved.size - total(moved.second_unread),
        moved.second_unread,
        False,
    )


def _notes(
    length: Length, moved: Transfer, dirt: _Dirt, fate: _Fate, *, page_map_known: bool
) -> Iterator[str]:
    yield length.reason
    if not page_map_known:
        yield "The page map could not be read: nothing proves that no page was copied."
    if dirt.pages:
        known = "differ from the file" if dirt.exact else "may differ from the file"
        yield (
            f"{total(dirt.pages)} bytes are on pages that the process wrote to: "
            f"{len(dirt.tensors)} tensors {known}."
        )
    if moved.differing:
        yield f"{total(moved.differing)} bytes changed between the two reads."
    elif not fate.stable:
        yield "The memory changed after it was read."
    if fate.ended:
        yield "The process ended while its memory was read."
    elif fate.remapped:
        yield "The process changed its mappings of the file while they were read."
    if moved.kept:
        yield f"{total(moved.kept)} bytes come from an earlier run: they cannot be read any more."
