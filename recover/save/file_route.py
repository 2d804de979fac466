"""Save a file from its inode: the bytes themselves, at no cost to the process that holds it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass

from ...errors import NotPermitted, ProcessGone
from ..ranges import Range, merge, subtract, total
from ..sources import FileSource, SecondLook
from .header_facts import HeaderFacts, read_header_facts
from .job import Job, finish, is_stable, save
from .memory_proof import MemoryView, differing_tensors
from .outputs import Attributes, Output
from .recovery import Read, RecoveredFile
from .transfer import Plan, Transfer, transfer
from .verdict import Observations, Verdict, judge

_INDEPENDENT = "independent"


@dataclass(frozen=True)
class AgainstMemory:
    """How a process's memory compares with the file it maps."""

    read: Read
    copied: tuple[Range, ...]
    unexplained: tuple[Range, ...]
    dirty_tensors: tuple[str, ...]


def recover_from_file(
    job: Job, source: FileSource, memory: MemoryView | None = None
) -> RecoveredFile:
    """Save the file behind `source`; hold it against `memory` where that is given.

    Raises NotPermitted (memory), OSError (destination), Stopped.
    """
    before, link = os.fstat(source.fd), _link(source)
    output = job.output
    second = SecondLook(source)
    try:
        size = before.st_size
        job.listener.start(job.candidate, source.route, size)
        cloned = output.begin(
            Attributes(size, before.st_mode, before.st_mtime_ns),
            sparse=_data_ranges(source.fd, before),
            clone_of=source.fd,
        )
        header = read_header_facts(source, size)
        moved = save(
            job,
            (source, second),
            size,
            trust_earlier=True,
            # A clone has the storage's bytes: those that were just read from there.
            is_placed=lambda: cloned and second.independent,
        )
        against, refusal = _try_against_memory(source, size, header, moved, memory)
        changed = _has_changed(before, os.fstat(source.fd), renamed=link != _link(source))
        if job.has_shared_writer and not is_stable(source, moved):
            changed = True
        unread = merge((*moved.first_unread, *header.missing(size)))
        expected = job.known_digest(moved.sha256)
        verdict = judge(
            Observations(
                from_memory=False,
                source_changed=changed,
                reads_differ=bool(moved.differing),
                unread=bool(unread),
                read_once=bool(moved.read_once),
                unexplained_difference=bool(against and against.unexplained),
                matches_expected=expected == moved.sha256 if expected else None,
            )
        )
        independent = second.independent and _kept_were_independent(output, moved)
        _end(output, moved, verdict, independent=independent)
        return RecoveredFile(
            candidate=job.candidate,
            path=os.fsdecode(output.path),
            size=size,
            sha256=moved.sha256,
            verdict=verdict,
            reads=tuple(_reads(source, moved, against, independent=independent)),
            header=header,
            unread=unread,
            differing=moved.differing,
            copied_pages=against.copied if against else (),
            dirty_tensors=against.dirty_tensors if against else (),
            expected_sha256=expected,
            inode=_inode_json(before),
            writers=job.writers,
            cloned=cloned,
            notes=(*_notes(header, size, moved, against, changed=changed), *refusal),
        )
    finally:
        second.close()


def _end(output: Output, moved: Transfer, verdict: Verdict, *, independent: bool) -> None:
    facts = {_INDEPENDENT: "yes" if independent else "no"}
    complete = verdict not in (Verdict.PARTIAL, Verdict.CHANGED)
    finish(output, moved, complete=complete, facts=facts)


def _reads(
    source: FileSource, moved: Transfer, against: AgainstMemory | None, *, independent: bool
) -> Iterator[Read]:
    route = source.route.value
    yield Read(route, moved.sha256, _read_bytes(moved, first=True), moved.first_unread, False)
    same = not moved.differing and moved.second_unread == moved.first_unread
    yield Read(
        route,
        moved.sha256 if same else None,
        _read_bytes(moved, first=False),
        moved.second_unread,
        independent,
    )
    if against:
        yield against.read


def _read_bytes(moved: Transfer, *, first: bool) -> int:
    return moved.size - total(moved.first_unread if first else moved.second_unread)


def _try_against_memory(
    source: FileSource,
    size: int,
    header: HeaderFacts,
    moved: Transfer,
    memory: MemoryView | None,
) -> tuple[AgainstMemory | None, tuple[str, ...]]:
    """Compare with memory where that was asked for; the file counts without it, too."""
    if memory is None:
        return None, ()
    try:
        return _against_memory(source, size, header, moved, memory), ()
    except (NotPermitted, ProcessGone) as error:
        return None, (f"The memory could not be compared: {error.message}",)


def _against_memory(
    source: FileSource, size: int, header: HeaderFacts, moved: Transfer, memory: MemoryView
) -> AgainstMemory:
    """Read the mapped memory, too; a page that differs must be one that the process copied."""
    with memory.open(size) as seen:
        before = memory.copied(seen) or ()
        held = transfer(Plan(size=size, first=source, second=seen))
        copied = merge((*before, *(memory.copied(seen) or ())))
        tensors = (
            differing_tensors(header.header, source, seen, held.differing) if header.header else ()
        )
    same = not held.differing and not held.second_unread
    return AgainstMemory(
        read=Read(
            seen.route.value,
            moved.sha256 if same else None,
            size - total(held.second_unread),
            held.second_unread,
            False,
        ),
        copied=copied,
        unexplained=merge(r for page in held.differing for r in subtract(page, copied)),
        dirty_tensors=tensors,
    )


def _notes(
    header: HeaderFacts,
    size: int,
    moved: Transfer,
    against: AgainstMemory | None,
    *,
    changed: bool,
) -> Iterator[str]:
    covered = header.coverage(size)
    if header.problem:
        yield f"The header breaks a rule of the format: {header.problem}"
    if covered and covered.short_by:
        yield (
            f"The file is {covered.short_by} bytes shorter than its header declares: "
            f"{len(covered.whole)} tensors are whole, {len(covered.cut)} cut, "
            f"{len(covered.absent)} absent."
        )
    if covered and covered.trailing:
        yield f"{covered.trailing} bytes follow the end that the header declares; they are kept."
    if changed:
        yield "The file changed while it was read: run dump again."
    if moved.differing:
        yield (
            f"The page cache and the storage differ in {total(moved.differing)} bytes; "
            "those of the page cache, which the process sees, were saved."
        )
    if moved.kept:
        yield f"{total(moved.kept)} bytes were read by an earlier, interrupted run."
    if moved.unconfirmed:
        yield f"{total(moved.unconfirmed)} bytes of these cannot be read any more."
    elif moved.read_once:
        yield f"{total(moved.read_once)} bytes could be read only once."
    if against and against.unexplained:
        yield (
            f"Memory differs from the file in {total(against.unexplained)} bytes on pages that "
            "the process never copied: a fault of the machine or a change meanwhile."
        )


def facts_of_inode(source: FileSource) -> dict[str, str]:
    """Tell this inode in this state from every other, for an interrupted run to go on."""
    info = os.fstat(source.fd)
    return {
        "source": "file",
        "device": str(info.st_dev),
        "inode": str(info.st_ino),
        "size": str(info.st_size),
        "mtime_ns": str(info.st_mtime_ns),
    }


def _kept_were_independent(output: Output, moved: Transfer) -> bool:
    earlier = output.earlier
    return not moved.kept or bool(earlier and earlier.facts.get(_INDEPENDENT) == "yes")


def _link(source: FileSource) -> str | None:
    try:
        return os.readlink(f"/proc/self/fd/{source.fd}")
    except OSError:  # ENAMETOOLONG: a path longer than a page has no text
        return None


def _has_changed(before: os.stat_result, after: os.stat_result, *, renamed: bool) -> bool:
    """Tell whether the content may have changed; unlink, chmod and rename touch only ctime."""
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        return True
    metadata = ("st_nlink", "st_mode", "st_uid", "st_gid")
    explained = renamed or any(getattr(before, m) != getattr(after, m) for m in metadata)
    return before.st_ctime_ns != after.st_ctime_ns and not explained


def _data_ranges(fd: int, info: os.stat_result) -> tuple[Range, ...] | None:
    """Give the ranges that hold data where the file has holes; None where it has none."""
    if info.st_blocks * 512 >= info.st_size:
        return None
    found: list[Range] = []
    position = 0
    try:
        while position < info.st_size:
            start = os.lseek(fd, position, os.SEEK_DATA)
            position = os.lseek(fd, start, os.SEEK_HOLE)
            found.append(Range(start, position))
    except OSError as error:
        if error.errno != errno.ENXIO:  # ENXIO: only a hole is left
            return None
    return merge(found)


def _inode_json(info: os.stat_result) -> dict[str, int]:
    return {
        "device": info.st_dev,
        "inode": info.st_ino,
        "links": info.st_nlink,
        "mode": info.st_mode & 0o7777,
        "mtime_ns": info.st_mtime_ns,
        "ctime_ns": info.st_ctime_ns,
    }
