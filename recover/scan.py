"""Find the checkpoints that processes map or hold open, whatever became of their names.

A file counts by its content, not by its name, and its state is told by comparing inodes, not by
the text ` (deleted)`: a living file may be called that, an overwritten one has a path that exists.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ..errors import HeaderError, NotPermitted, ProcessGone
from ..records.names import decoded
from .adapter.rank import lora_ranks
from .formats.safetensors import Header, read_header
from .formats.sniff import Kind, kind_of
from .mappings import FileMapping, OpenFile
from .process import Process
from .procfs import leased_files
from .routes import Route
from .sources import FileSource, Holding, MemorySource, Source, open_file, read_available
from .states import State, is_silly_renamed, locate

SCHEMA = "reefkit.scan/1"
_SNIFFED = 4096
_SUFFIX = b".safetensors"
_LEASED: str | None = "The file is under a lease, which opening it would break."
_KERNEL_OBJECTS = (b"/dev/zero", b"/SYSV", b"/anon_hugepage", b"/[aio]", b"/drm mm object")
_DEVICES = re.compile(rb"/dev/(?!shm/|hugepages/|zero\b)")


@dataclass(frozen=True)
class Candidate:
    """A file that could be recovered, and who holds it; the first holding is the best way to it."""

    name: bytes
    state: State
    kind: Kind
    size: int | None
    device: int
    inode: int
    header: Header | None
    problem: HeaderError | None
    route: Route | None
    blocked_by: str | None
    path_size: int | None
    command: str
    holdings: tuple[Holding, ...]

    @property
    def pid(self) -> int:
        """The process that the bytes would be read from."""
        return self.holdings[0].pid

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The distinct dtypes of the tensors."""
        return tuple(sorted({t.dtype for t in self.header.tensors})) if self.header else ()

    @property
    def ranks(self) -> tuple[int, ...]:
        """The distinct LoRA ranks; empty where it is no adapter."""
        return lora_ranks(self.header) if self.header else ()

    def to_json(self) -> dict[str, object]:
        """Give one row of `scan --json`."""
        ranks = self.ranks
        return {
            "pid": self.pid,
            "pids": sorted({h.pid for h in self.holdings}),
            "command": self.command,
            "name": decoded(self.name),
            "name_bytes": self.name.hex(),
            "state": self.state.value,
            "size": self.size,
            "format": self.kind.value,
            "tensors": len(self.header.tensors) if self.header else None,
            "dtypes": list(self.dtypes),
            "rank": ranks[0] if len(ranks) == 1 else None,
            "ranks": list(ranks),
            "route": self.route.value if self.route else None,
            "blocked_by": self.blocked_by,
            "problem": self.problem.message if self.problem else None,
        }


@dataclass(frozen=True)
class Refused:
    """A process that could not be looked into."""

    pid: int
    command: str
    reason: str


@dataclass(frozen=True)
class Scan:
    """What was found, and what was looked at."""

    candidates: tuple[Candidate, ...]
    processes: int
    files: int
    refused: tuple[Refused, ...]

    def to_json(self) -> dict[str, object]:
        """Give the document of `scan --json`."""
        return {
            "schema": SCHEMA,
            "candidates": [c.to_json() for c in self.candidates],
            "looked_at": {
                "processes": self.processes,
                "files": self.files,
                "refused": [vars(r) for r in self.refused],
            },
        }


@dataclass(frozen=True)
class _Group:
    """One file as one process holds it, before it was opened."""

    name: bytes
    device: int
    inode: int
    holding: Holding


@dataclass(frozen=True)
class _Content:
    """What opening a file told."""

    kind: Kind
    size: int | None
    header: Header | None
    problem: HeaderError | None


@dataclass(frozen=True)
class _Found:
    """A file that was looked into. Its identity is `trusted` when it comes from fstat.

    `where` is how this process knows it: device and inode as its mappings show them, path, mount
    namespace. Alone it tells files apart that fstat would (btrfs shows all subvolumes as one).
    """

    identity: tuple[int, int]
    trusted: bool
    where: tuple[object, ...]
    state: State
    path: bytes
    content: _Content
    path_size: int | None


class Scanner:
    """Look into processes one after another; the same file is one candidate however many hold it.

    With `keep_open`, the descriptor on each candidate's inode is kept from the moment it was
    found, in `sources` by (device, inode), so that nothing that happens later can lose it.
    """

    def __init__(self, *, any_format: bool = False, keep_open: bool = False) -> None:
        self.sources: dict[tuple[int, int], FileSource] = {}
        self._any_format = any_format
        self._keep_open = keep_open
        self._leased = leased_files()
        self._candidates: dict[tuple[object, ...], Candidate] = {}
        self._contents: dict[tuple[int, ...], _Content] = {}
        self._known_at: dict[tuple[object, ...], tuple[int, int]] = {}
        self._uninteresting: set[tuple[int, int, bytes]] = set()
        self._files: set[tuple[int, int, bytes]] = set()
        self._refused: list[Refused] = []
        self._processes = 0

    def look(self, process: Process) -> None:
        """Look into one process. What cannot be read is noted, a process that ends is skipped."""
        self._processes += 1
        try:
            groups = _groups(process)
        except NotPermitted as error:
            self._refused.append(Refused(process.pid, command_line(process), error.message))
            return
        except (ProcessGone, ProcessLookupError):
            return
        for group in groups:
            key = (group.device, group.inode, group.name)
            self._files.add(key)
            if key not in self._uninteresting and not _DEVICES.match(group.name):
                with contextlib.suppress(ProcessGone, FileNotFoundError):
                    if self._examine(process, group) is False:
                        self._uninteresting.add(key)

    def look_at_all(self, pids: Iterable[int]) -> None:
        """Look into processes that /proc lists, holding each only while it is looked into."""
        for pid in pids:
            try:
                with contextlib.suppress(ProcessGone), Process(pid, is_listed=True) as process:
                    self.look(process)
            except NotPermitted as error:
                self._processes += 1
                self._refused.append(Refused(pid, "", error.message))

    def close(self) -> None:
        """Close what was kept open."""
        while self.sources:
            self.sources.popitem()[1].close()

    def result(self) -> Scan:
        """Give what was found: the deleted first, then the replaced, the largest first."""
        order = list(State)
        found = sorted(
            self._candidates.values(),
            key=lambda c: (order.index(c.state), -(c.size or 0), c.name),
        )
        return Scan(tuple(found), self._processes, len(self._files), tuple(self._refused))

    def add_open_file(
        self, process: Process, fd: int, name: bytes, state: State, command: str
    ) -> None:
        """Take in a file that was opened elsewhere, under the name and state it had then."""
        source = FileSource(fd, Route.FD)
        info = os.fstat(fd)
        identity = (info.st_dev, info.st_ino)
        if identity in self.sources:
            source.close()
            return
        self.sources[identity] = source
        found = _Found(
            identity, True, identity, state, name, _content(source, name, info.st_size), None
        )
        self._add(found, source, None, command, Holding(process.pid, info.st_ino, (), ()))

    def _examine(self, process: Process, group: _Group) -> bool | None:
        """Open and classify one file; False when it is a candidate in no process.

        None when it is none in this one: of a file that cannot be opened, another process may
        show the part that tells.
        """
        if (group.device, group.inode) in self._leased:
            source, blocked_by = None, _LEASED
        else:
            source, blocked_by = _open(process, group.holding)
        keep = False
        try:
            found = _find(process, group, source, self._contents)
            if not self._wanted(found):
                return False if found.trusted else None
            if self._keep_open and isinstance(source, FileSource):
                keep = self.sources.setdefault(found.identity, source) is source
            self._add(found, source, blocked_by, command_line(process), group.holding)
            return True
        finally:
            if source is not None and not keep:
                source.close()

    def _wanted(self, found: _Found) -> bool:
        path = found.path
        if found.content.kind is Kind.SAFETENSORS or path.endswith(_SUFFIX):
            return True
        lost = found.state is not State.LIVE and not path.startswith(_KERNEL_OBJECTS)
        return self._any_format and lost

    def _add(
        self,
        found: _Found,
        source: Source | None,
        blocked_by: str | None,
        command: str,
        holding: Holding,
    ) -> None:
        new = Candidate(
            name=found.path,
            state=found.state,
            kind=found.content.kind,
            size=found.content.size,
            device=found.identity[0],
            inode=found.identity[1],
            header=found.content.header,
            problem=found.content.problem,
            route=source.route if source else None,
            blocked_by=blocked_by,
            path_size=found.path_size,
            command=command,
            holdings=(holding,),
        )
        if found.trusted:
            self._known_at[found.where] = found.identity
            if (unsure := self._candidates.pop(found.where, None)) is not None:
                self._merge(found.identity, unsure)
        self._merge(self._known_at.get(found.where, found.where), new)

    def _merge(self, key: tuple[object, ...], new: Candidate) -> None:
        old = self._candidates.get(key, new)
        better, other = (new, old) if _rung(new) < _rung(old) else (old, new)
        together = dict.fromkeys(better.holdings + other.holdings)
        self._candidates[key] = replace(better, holdings=tuple(together))


def _find(
    process: Process,
    group: _Group,
    source: Source | None,
    contents: dict[tuple[int, ...], _Content],
) -> _Found:
    """Tell which file it is, what became of its path, and what is in it.

    What is in an inode that did not change is looked up only once, in `contents`.
    """
    version: tuple[int, ...] | None = None
    identity, trusted = (group.device, group.inode), False
    if isinstance(source, FileSource):
        info = os.fstat(source.fd)
        identity, trusted = (info.st_dev, info.st_ino), True
        version = (*identity, info.st_size, info.st_mtime_ns, info.st_ctime_ns)
    state, path = locate(process, group.name, identity, trusted=trusted)
    if isinstance(source, FileSource) and is_silly_renamed(path, source.fd):
        state = State.DELETED
    path_size = _live_size(process, state, path)
    content = contents.get(version) if version else None
    if content is None:
        content = _content(source, path, path_size)
        if version:
            contents[version] = content
    where = (group.device, group.inode, path, process.mount_namespace())
    return _Found(identity, trusted, where, state, path, content, path_size)


def command_line(process: Process) -> str:
    """Give a process's command line in one string, or its short name in brackets."""
    arguments = process.arguments()
    if any(arguments):
        return " ".join(decoded(argument) for argument in arguments).strip()
    with contextlib.suppress(OSError, ProcessGone):
        return f"[{decoded(process.comm())}]"
    return ""


def _groups(process: Process) -> list[_Group]:
    """Put the mappings and descriptors of each file together."""
    mapped: dict[tuple[int, int, bytes], list[FileMapping]] = {}
    for mapping in process.mappings():
        mapped.setdefault((mapping.device, mapping.inode, mapping.name), []).append(mapping)
    opened: dict[tuple[int, int, bytes], list[OpenFile]] = {}
    with contextlib.suppress(NotPermitted):
        for file in process.open_files():
            opened.setdefault(_partner(file, mapped), []).append(file)
    return [
        _Group(
            name=key[2],
            device=key[0],
            inode=key[1],
            holding=Holding(
                process.pid,
                key[1],
                tuple(mapped.get(key, ())),
                tuple(file.number for file in opened.get(key, ())),
            ),
        )
        for key in {**mapped, **opened}
    ]


def _partner(
    file: OpenFile, mapped: dict[tuple[int, int, bytes], list[FileMapping]]
) -> tuple[int, int, bytes]:
    """Find the mappings of an open file; on btrfs and overlay the device numbers differ."""
    own = (file.device, file.inode, file.name)
    if own in mapped:
        return own
    same = (key for key in mapped if key[1:] == own[1:])
    return next(same, own)


def _open(process: Process, holding: Holding) -> tuple[Source | None, str | None]:
    """Climb the ladder; give the first source that opens, and what blocked the ones above."""
    try:
        return open_file(process, holding), None
    except NotPermitted as error:
        reasons = [error.message]
    if holding.mappings:
        try:
            return MemorySource(process, holding.mappings), reasons[0]
        except NotPermitted as error:
            reasons.append(error.message)
    return None, " ".join(reasons)


def _content(source: Source | None, path: bytes, live_size: int | None) -> _Content:
    if source is None:
        return _Content(Kind.OTHER, live_size, None, None)
    size = source.size if source.size is not None else live_size
    kind = kind_of(read_available(source, 0, _SNIFFED), size)
    if kind is not Kind.SAFETENSORS and not path.endswith(_SUFFIX):
        return _Content(kind, size, None, None)
    try:
        header = read_header(lambda offset, n: read_available(source, offset, n), size)
    except HeaderError as error:
        return _Content(kind, size, None, error)
    return _Content(kind, header.file_size if size is None else size, header, None)


def _live_size(process: Process, state: State, path: bytes) -> int | None:
    if state is State.LIVE:
        with contextlib.suppress(OSError):
            return process.stat_path(path).st_size
    return None


def _rung(candidate: Candidate) -> int:
    return list(Route).index(candidate.route) if candidate.route else len(Route)
