"""Say which known file some bytes are: by digests of the file and of its tensors."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TypeAlias

from ..errors import ExitCode, NothingFound, ReefError
from ..records.manifest import LIMIT as MANIFEST_LIMIT
from ..records.manifest import FileEntry, Manifest, TensorEntry, read_manifest
from ..records.names import decoded, printable
from ..records.tool import tool_identity
from .fingerprint import Fingerprint, ReadInto, fingerprint
from .formats.sniff import Kind
from .held import HeldFiles
from .operands import open_candidate, open_in_process
from .readable import FileReadable, Readable
from .routes import Wanted

SCHEMA = "reefkit.identity/1"
_SUFFIX = ".safetensors"
_Progress: TypeAlias = "Callable[[int], object] | None"
_Digest: TypeAlias = "tuple[str, tuple[int, ...], str]"
_LEAST_CUT = 16  # bytes of a header; fewer say nothing


class Likeness(str, Enum):
    """How a file is like a known one, best first."""

    SAME_FILE = "same-file"
    SAME_TENSORS = "same-tensors"
    DAMAGED = "damaged"
    TRUNCATED = "truncated"
    SOME_TENSORS = "some-tensors"
    SAME_HEADER = "same-header"

    @property
    def is_whole(self) -> bool:
        """Tell whether nothing of the known file is missing, and nothing else is there."""
        return self in (Likeness.SAME_FILE, Likeness.SAME_TENSORS)


@dataclass(frozen=True)
class Known:
    """A manifest and what to call it."""

    label: str
    manifest: Manifest


@dataclass(frozen=True)
class Match:
    """A file that is like a known one; `tensors` of the known one's `known_tensors` are equal.

    `where` is the path of the file, or PID:PATH for one of a process; `entry` is the path in the
    manifest. `renamed` counts tensors that are equal under another name.
    """

    manifest: str
    entry: str
    where: str
    likeness: Likeness
    tensors: int
    known_tensors: int
    renamed: int
    same_header: bool

    def to_json(self) -> dict[str, object]:
        """Give one entry of `matches`."""
        paths = {"entry": decoded(self.entry), "where": decoded(self.where)}
        return {**vars(self), **paths, "likeness": self.likeness.value}


@dataclass(frozen=True)
class Unread:
    """A file that a process holds and that could not be read."""

    where: str
    reason: str


@dataclass(frozen=True)
class Looked:
    """A file that was read."""

    where: str
    found: Fingerprint = field(repr=False)
    doubt: str | None = None


@dataclass(frozen=True)
class Identity:
    """What the files that were read are. `held` tells of each manifest whether it was found."""

    files: tuple[Looked, ...]
    matches: tuple[Match, ...]
    held: dict[str, bool]
    unread: tuple[Unread, ...] = ()

    @property
    def exit_code(self) -> ExitCode:
        """Give 0 where every manifest is held."""
        return ExitCode.HOLDS if all(self.held.values()) else ExitCode.DOES_NOT_HOLD

    def to_json(self) -> dict[str, object]:
        """Give the document of `identify --json`."""
        return {
            "schema": SCHEMA,
            "files": [
                {
                    "where": decoded(each.where),
                    "size": each.found.size,
                    "sha256": each.found.sha256,
                    "fault": each.found.fault,
                    "doubt": each.doubt,
                }
                for each in self.files
            ],
            "matches": [match.to_json() for match in self.matches],
            "manifests": [{"manifest": name, "held": held} for name, held in self.held.items()],
            "unread": [{"where": decoded(u.where), "reason": u.reason} for u in self.unread],
            "tool": tool_identity(),
        }


def read_known(path: Path) -> Known:
    """Read a manifest. Raises Unusable, NotPermitted."""
    with FileReadable(path) as file:
        data = file.read(0, min(file.size, MANIFEST_LIMIT + 1))
    return Known(file.label, read_manifest(data, printable(os.fsencode(path.name))))


def identify_file(path: Path, known: Sequence[Known], progress: _Progress = None) -> Identity:
    """Look at one file. A manifest is held when the file is one of its entries, wholly.

    Raises Unusable, NotPermitted.
    """
    with FileReadable(path) as file:
        looked = _look(os.fsdecode(path), file, path.name, progress)
    return _identity([looked], (), known, whole_folder=False)


def identify_matching(
    operand: str, known: Sequence[Known], wanted: Wanted, progress: _Progress = None
) -> Identity:
    """Look at the files that PID:GLOB names, as at those of a process. Raises what opening does."""
    with open_in_process(operand, wanted) as opened:
        looked = [
            _look(_place(c.pid, c.name), readable, decoded(c.name), progress)
            for c, readable in opened
        ]
    return _identity(looked, (), known, whole_folder=True)


def identify_process(
    pid: int,
    known: Sequence[Known],
    wanted: Wanted,
    *,
    children: bool = True,
    cgroup: bool = False,
    progress: _Progress = None,
) -> Identity:
    """Look at each safetensors file that a process holds, or that is pinned of it.

    A manifest is held when the process has every safetensors file of one of its folders, or at
    least all their tensors in files without a fault. Raises NothingFound, NotPermitted,
    ProcessGone.
    """
    looked: list[Looked] = []
    unread: list[Unread] = []
    with HeldFiles(pid, children=children, cgroup=cgroup, pinned=True) as held:
        for candidate in held.scan.candidates:
            if candidate.kind is not Kind.SAFETENSORS:
                continue
            where = _place(candidate.pid, candidate.name)
            try:
                with open_candidate(held, candidate, wanted) as readable:
                    looked.append(_look(where, readable, decoded(candidate.name), progress))
            except ReefError as error:
                unread.append(Unread(where, error.message))
    if not looked and not unread:
        raise NothingFound(
            f"Process {pid} holds no safetensors file.",
            remedy=f"`reef-recover scan --pid {pid} --any-format` lists what it holds.",
        )
    return _identity(looked, unread, known, whole_folder=True)


def _place(pid: int, name: bytes) -> str:
    return f"{pid}:{os.fsdecode(name)}"


def _look(where: str, readable: Readable, name: str, progress: _Progress) -> Looked:
    found = fingerprint(
        _reader(readable),
        readable.size,
        named_safetensors=name.removesuffix(".partial").endswith(_SUFFIX),
        progress=progress,
    )
    return Looked(where, found, readable.doubt)


def _reader(readable: Readable) -> ReadInto:
    def read_into(buffer: memoryview, offset: int) -> int:
        length = min(len(buffer), readable.size - offset)
        data = readable.read(offset, length) if length > 0 else b""
        buffer[: len(data)] = data
        return len(data)

    return read_into


def _identity(
    looked: Sequence[Looked],
    unread: Iterable[Unread],
    known: Sequence[Known],
    *,
    whole_folder: bool,
) -> Identity:
    matches = [match for each in looked for match in _matches(each, known)]
    held = {
        one.label: _all_held(one, looked, matches)
        if whole_folder
        else any(m.likeness.is_whole for m in matches if m.manifest == one.label)
        for one in known
    }
    return Identity(tuple(looked), tuple(matches), held, tuple(unread))


def _matches(looked: Looked, known: Sequence[Known]) -> list[Match]:
    """Give what a file is like, best first; the poorer are left out where it is known wholly."""
    by_digest = {_digest(tensor): tensor for tensor in looked.found.tensors}
    names = {(tensor.name, *_digest(tensor)) for tensor in looked.found.tensors}
    found = [
        match
        for one in known
        for entry in one.manifest.files
        if (match := _match(looked, one.label, entry, set(by_digest), names)) is not None
    ]
    order = list(Likeness)
    found.sort(key=lambda m: (order.index(m.likeness), -m.tensors))
    best = [match for match in found if match.likeness.is_whole]
    return best or [m for m in found if m.likeness is not Likeness.SAME_HEADER] or found


def _digest(tensor: TensorEntry) -> _Digest:
    return tensor.dtype, tensor.shape, tensor.sha256


def _match(
    looked: Looked,
    label: str,
    entry: FileEntry,
    digests: set[_Digest],
    names: set[tuple[str, str, tuple[int, ...], str]],
) -> Match | None:
    found = looked.found
    equal = [tensor for tensor in entry.tensors if _digest(tensor) in digests]
    named = sum((tensor.name, *_digest(tensor)) in names for tensor in equal)
    same_header = entry.header is not None and found.head == entry.header
    likeness = _likeness(found, entry, equal, named, same_header=same_header)
    if likeness is None:
        return None
    return Match(
        label,
        entry.path,
        looked.where,
        likeness,
        len(equal),
        len(entry.tensors),
        len(equal) - named,
        same_header,
    )


def _likeness(
    found: Fingerprint,
    entry: FileEntry,
    equal: Sequence[TensorEntry],
    named: int,
    *,
    same_header: bool,
) -> Likeness | None:
    if (found.sha256, found.size) == (entry.sha256, entry.size):
        return Likeness.SAME_FILE
    if entry.header is None:
        return None
    cut_in_header = _LEAST_CUT <= found.size == len(found.head) < len(entry.header)
    if cut_in_header and entry.header.startswith(found.head):
        return Likeness.TRUNCATED
    if same_header and found.size < entry.size and len(equal) == len(found.tensors) == named:
        return Likeness.TRUNCATED
    if entry.tensors and len(entry.tensors) == len(found.tensors) == named:
        if found.fault is not None:
            return Likeness.DAMAGED
        return Likeness.SAME_TENSORS if _is_whole(found) else Likeness.SOME_TENSORS
    if any(tensor.anchors for tensor in equal):  # zeros are equal to anybody's zeros
        return Likeness.SOME_TENSORS
    return Likeness.SAME_HEADER if same_header else None


def _is_whole(found: Fingerprint) -> bool:
    return found.header is not None and len(found.tensors) == len(found.header.tensors)


def _all_held(one: Known, looked: Sequence[Looked], matches: Sequence[Match]) -> bool:
    """Tell whether all safetensors files of one folder of a manifest are there."""
    whole = {m.entry for m in matches if m.manifest == one.label and m.likeness.is_whole}
    sound = (each.found for each in looked if each.found.fault is None)
    there = {(t.name, *_digest(t)) for found in sound for t in found.tensors}
    folders: dict[str, list[FileEntry]] = {}
    for entry in one.manifest.files:
        if entry.header is not None:
            folders.setdefault(os.path.dirname(entry.path), []).append(entry)
    return any(
        all(entry.path in whole or _has_tensors(entry, there) for entry in entries)
        for entries in folders.values()
    )


def _has_tensors(entry: FileEntry, there: set[tuple[str, str, tuple[int, ...], str]]) -> bool:
    return bool(entry.tensors) and all((t.name, *_digest(t)) in there for t in entry.tensors)
