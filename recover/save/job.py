"""One file to save: what the file route and the memory route share."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Protocol

from ..ranges import Range, merge, subtract
from ..routes import Route
from ..scan import Candidate
from ..sources import Source
from .outputs import Output
from .rescue_map import RescueMap
from .transfer import Plan, Progress, Transfer, transfer
from .writers import Writer

_CHECKPOINT_SECONDS = 5.0
_SMALL = 64 << 20
_DIGEST_NAME = re.compile(rb"(?:sha256[-:])?([0-9a-f]{64})")


class Listener(Protocol):
    """Hears how a dump goes on; called from several threads."""

    def start(self, candidate: Candidate, route: Route, size: int) -> None:
        """A file's bytes begin to be read."""
        ...

    def advance(self, count: int) -> None:
        """`count` more bytes are read, compared, hashed and written."""
        ...

    def note(self, message: str) -> None:
        """Something that a person should know now."""
        ...


class Stopped(Exception):
    """Another file failed, or a person interrupted: this one ends where it is."""


@dataclass(frozen=True)
class Job:
    """One file to save, and what it needs."""

    candidate: Candidate
    output: Output
    listener: Listener
    stopped: threading.Event
    expected_sha256: str | None = None
    is_only_file: bool = True
    writers: tuple[Writer, ...] = ()

    @property
    def has_shared_writer(self) -> bool:
        """Tell whether a process maps the file so that it can change without a new mtime."""
        return any(writer.is_mapping for writer in self.writers)

    def known_digest(self, digest: str) -> str | None:
        """Give the digest known beforehand: the one asked for, or the name where it is equal.

        Of several files, only the one that has the digest asked for was meant. Content-addressed
        stores name a file by its sha256 (Hugging Face cache blobs of LFS files, Ollama); a name
        that differs may be anything else.
        """
        asked = self.expected_sha256
        if asked is not None and (self.is_only_file or asked == digest):
            return asked
        named = _DIGEST_NAME.fullmatch(self.candidate.name.rpartition(b"/")[2])
        return digest if named and named[1].decode() == digest else None


def save(
    job: Job,
    sources: tuple[Source, Source],
    size: int,
    *,
    trust_earlier: bool,
    is_placed: Callable[[], bool] = lambda: False,
) -> Transfer:
    """Move the bytes; leave a map of what was read behind, whatever happens.

    With `trust_earlier` (the inode is the same and unchanged) what an interrupted run had read
    is not read again; else it only fills what cannot be read any more. Raises OSError when the
    destination cannot be written, Stopped.
    """
    output = job.output
    earlier = output.earlier
    kept_source = output.read_back() if earlier else None
    keeper = _Keeper(job, size)
    in_order = output.in_order
    try:
        return transfer(
            Plan(
                size=size,
                first=sources[0],
                second=sources[1],
                place=None if in_order else output.write,
                is_placed=is_placed,
                follow=output.write if in_order else None,
                progress=keeper.progress,
                kept=earlier.finished if earlier else (),
                kept_source=kept_source,
                keep_first=trust_earlier,
            )
        )
    except BaseException:
        with contextlib.suppress(OSError):
            keeper.checkpoint()
        raise
    finally:
        if kept_source is not None:
            kept_source.close()


def finish(
    output: Output,
    moved: Transfer,
    *,
    complete: bool,
    facts: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """End a file; leave the map of what was read where a later run could need it.

    A small file that is complete is read again sooner than its map is on the disk.
    """
    if not complete or moved.size > _SMALL:
        read = map_of(moved.size, moved.first_unread, moved.differing)
        output.checkpoint(replace(read, facts=dict(facts)))
    output.finish(complete=complete)


def is_stable(source: Source, moved: Transfer) -> bool:
    """Read everything once more: a slow writer in memory leaves neither mtime nor a torn page."""
    return transfer(Plan(moved.size, source, source)).sha256 == moved.sha256


class _Keeper:
    """Keeps the rescue map up to date while the bytes move."""

    def __init__(self, job: Job, size: int) -> None:
        self._job = job
        self._output = output = job.output
        self._size = size
        self._last = Progress(0, (), ())
        self._saved_at = time.monotonic()
        self._earlier = output.earlier.finished if output.earlier else ()

    def progress(self, progress: Progress) -> None:
        """Take note; every few seconds, make it durable."""
        self._job.listener.advance(progress.position - self._last.position)
        self._last = progress
        if self._job.stopped.is_set():
            raise Stopped
        if time.monotonic() - self._saved_at > _CHECKPOINT_SECONDS:
            self.checkpoint()
            self._saved_at = time.monotonic()

    def checkpoint(self) -> None:
        """Write the map of what is read so far."""
        last = self._last
        tried = map_of(last.position, last.unread, last.differing)
        untouched = (Range(max(r.start, last.position), r.stop) for r in self._earlier)
        finished = merge((*tried.finished, *untouched))
        self._output.checkpoint(RescueMap(self._size, finished, tried.bad, tried.doubtful))


def map_of(size: int, unread: tuple[Range, ...], differing: tuple[Range, ...]) -> RescueMap:
    """Make the map of a file of which all `size` bytes were tried."""
    doubtful = merge(r for d in differing for r in subtract(d, unread))
    finished = subtract(Range(0, size), (*unread, *doubtful))
    return RescueMap(size, finished, unread, doubtful)
