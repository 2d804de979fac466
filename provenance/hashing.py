"""Hash members: one read a file for all digests wanted of it, large files in threads."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import BinaryIO, NamedTuple, Protocol, TypeAlias, cast

from ..errors import ReefError
from .content.members import Content, Member
from .finding import FindingKind

# Below it a thread costs more than it saves: 20,000 files of 2 KiB take twice as long with two.
LARGE = 1 << 20
_AT_ONCE = 1 << 20
_AHEAD = 64
_SMALL = 64 << 10


class Hashed(NamedTuple):
    """One member as it was read: bytes, lower-case digests by hashlib's name of the algorithm.

    Where `fault` says in a sentence why it could not be hashed, there are no digests and `kind`
    is the finding that it makes: UNREADABLE, NOT_CHECKED or CHANGED_MEANWHILE.
    """

    member: Member
    size: int
    digests: Mapping[str, str]
    fault: str | None = None
    kind: FindingKind | None = None


class Hash(Protocol):
    """What hashlib makes."""

    def update(self, data: memoryview | bytes, /) -> None:
        """Feed bytes."""
        ...

    def hexdigest(self) -> str:
        """Give the digest in lower-case hexadecimal digits."""
        ...

    def copy(self) -> Hash:
        """Give another one that has been fed the same."""
        ...


_Makers: TypeAlias = "dict[str, Callable[..., Hash]]"


class _ReadInto(Protocol):
    def readinto(self, buffer: bytearray, /) -> int: ...


def hash_members(
    content: Content,
    wanted: Sequence[tuple[Member, frozenset[str]]],
    *,
    progress: Callable[[int], object] | None = None,
) -> Iterator[Hashed]:
    """Hash members in the order asked; `progress` is told of bytes read, by one thread at a time.

    Files of LARGE bytes or more are read in as many threads as there are cores; a `Content` whose
    files cannot be read at once says so by an attribute `one_at_a_time`.
    """
    large = sum(member.size >= LARGE for member, _ in wanted)
    jobs = min(_cores(), large)
    if jobs < 2 or getattr(content, "one_at_a_time", False):
        reader = _Reader(content, progress)
        for member, algorithms in wanted:
            yield reader.hash(member, algorithms)
    else:
        yield from _threaded(content, wanted, progress, jobs)


def _cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def _threaded(
    content: Content,
    wanted: Sequence[tuple[Member, frozenset[str]]],
    progress: Callable[[int], object] | None,
    jobs: int,
) -> Iterator[Hashed]:
    from concurrent.futures import Future, ThreadPoolExecutor

    readers = _Readers(content, progress)
    ahead = (each for each in wanted if each[0].size >= LARGE)
    waiting: deque[Future[Hashed]] = deque()
    with ThreadPoolExecutor(jobs, "hash") as pool:
        try:
            for member, algorithms in wanted:
                while len(waiting) < _AHEAD and (following := next(ahead, None)) is not None:
                    waiting.append(pool.submit(readers.hash, *following))
                if member.size >= LARGE:
                    yield waiting.popleft().result()
                else:
                    yield readers.hash(member, algorithms)
        finally:
            readers.stop()
            for future in waiting:
                future.cancel()


class _Stopped(Exception):
    """Nobody wants the result any more."""


class _Readers:
    """One reader a thread; what they report is told to the outside one at a time."""

    def __init__(self, content: Content, progress: Callable[[int], object] | None) -> None:
        self._content = content
        self._tell = progress
        self._lock = threading.Lock()
        self._stopped = False
        self._own = threading.local()

    def hash(self, member: Member, algorithms: frozenset[str]) -> Hashed:
        """Hash with the reader of this thread."""
        reader: _Reader | None = getattr(self._own, "reader", None)
        if reader is None:
            reader = self._own.reader = _Reader(self._content, self._progress)
        return reader.hash(member, algorithms)

    def stop(self) -> None:
        """Let every reader end at its next piece."""
        self._stopped = True

    def _progress(self, count: int) -> None:
        if self._stopped:
            raise _Stopped
        if self._tell is not None:
            with self._lock:
                self._tell(count)


class _Reader:
    """Reads one file after the other into one buffer."""

    def __init__(self, content: Content, progress: Callable[[int], object] | None) -> None:
        self._content = content
        self._progress = progress
        self._buffer = bytearray(_AT_ONCE)
        self._view = memoryview(self._buffer)
        self._known: dict[frozenset[str], _Makers] = {}
        self._read_small: Callable[[Member], bytes] | None = getattr(content, "read_small", None)

    def hash(self, member: Member, algorithms: frozenset[str]) -> Hashed:
        """Hash one member; what goes wrong is in the result."""
        makers = self._known.get(algorithms)
        if makers is None:
            for name in algorithms:
                if maker_of(name) is None:
                    fault = f"This Python cannot compute {name}."
                    return _failed(member, 0, FindingKind.NOT_CHECKED, fault)
            makers = {name: maker for name in algorithms if (maker := maker_of(name)) is not None}
            self._known[algorithms] = makers
        size = 0
        changed = False
        try:
            if self._read_small is not None and member.size < _SMALL:
                data = self._read_small(member)
                if (size := len(data)) == member.size:
                    if self._progress is not None:
                        self._progress(size)
                    digests = {name: make(data).hexdigest() for name, make in makers.items()}
                    return Hashed(member, size, digests)
                return _changed(member, size)
            hashes = {name: make() for name, make in makers.items()}
            with self._content.open(member) as file:
                if member.size < _AT_ONCE:  # one read, which nothing comes between
                    size = self._feed(file, hashes.values(), member.size)
                else:
                    before = _state(file)
                    size = self._feed(file, hashes.values(), member.size)
                    changed = before is not None and before != _state(file)
        except ReefError as error:
            return _failed(member, size, FindingKind.UNREADABLE, error.message)
        except OSError as error:
            reason = error.strerror or str(error) or type(error).__name__
            return _failed(member, size, FindingKind.UNREADABLE, f"It cannot be read: {reason}.")
        if changed or size != member.size:
            return _changed(member, size)
        return Hashed(member, size, {name: each.hexdigest() for name, each in hashes.items()})

    def _feed(self, file: BinaryIO, hashes: Collection[Hash], listed: int) -> int:
        """Read to the end, or until there is more than was listed: a file may grow for ever."""
        buffer, view, progress = self._buffer, self._view, self._progress
        readinto = cast("_ReadInto", file).readinto
        size = 0
        while size <= listed and (count := readinto(buffer)):
            piece = view[:count]
            for each in hashes:
                each.update(piece)
            size += count
            if progress is not None:
                progress(count)
        return size


def _failed(member: Member, size: int, kind: FindingKind, fault: str) -> Hashed:
    return Hashed(member, size, {}, fault, kind)


def _state(file: BinaryIO) -> tuple[int, int] | None:
    """Give size and time of change of a file of its own; a member of a zip has neither."""
    try:
        found = os.fstat(file.fileno())
    except (OSError, ValueError, AttributeError):
        return None
    return found.st_size, found.st_mtime_ns


def _changed(member: Member, size: int) -> Hashed:
    fault = "It was changed while it was read."
    if size != member.size:
        found = "more" if size > member.size else f"{size:,}"
        fault = f"It had {member.size:,} bytes when it was listed, and {found} when it was read."
    return _failed(member, size, FindingKind.CHANGED_MEANWHILE, fault)


def maker_of(algorithm: str) -> Callable[..., Hash] | None:
    """Give what makes a hash of one of hashlib's algorithms, or None where there is none."""
    return _MAKERS.get(algorithm)


def _maker(name: str) -> Callable[..., Hash]:
    if name in ("md5", "sha1"):  # not for security: a hardened OpenSSL refuses them otherwise
        return partial(hashlib.new, name, usedforsecurity=False)
    made: Callable[..., Hash] = getattr(hashlib, name, None) or partial(hashlib.new, name)
    return made


_MAKERS: Mapping[str, Callable[..., Hash]] = {
    name: _maker(name) for name in hashlib.algorithms_available if not name.startswith("shake")
}
