"""The result of a recovery: what `recovery.json` holds."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ...errors import ExitCode
from ...records.names import decoded
from ...records.tool import tool_identity
from ..ranges import Range
from ..scan import Candidate
from .header_facts import HeaderFacts
from .verdict import Verdict, worst
from .writers import Writer

SCHEMA = "reefkit.recovery/1"


@dataclass(frozen=True)
class Read:
    """One reading of a whole file. `sha256` is None where it differed from the bytes saved."""

    route: str
    sha256: str | None
    bytes: int
    unread: tuple[Range, ...]
    independent: bool

    def to_json(self) -> dict[str, object]:
        """Give one entry of `reads`."""
        return {
            "route": self.route,
            "sha256": self.sha256,
            "bytes": self.bytes,
            "unread": [r.to_json() for r in self.unread],
            "independent": self.independent,
        }


@dataclass(frozen=True)
class RecoveredFile:
    """One file: where it was, where it is now, how it was read, and what that proves."""

    candidate: Candidate
    path: str
    size: int
    sha256: str
    verdict: Verdict
    reads: tuple[Read, ...]
    header: HeaderFacts
    unread: tuple[Range, ...] = ()
    differing: tuple[Range, ...] = ()
    copied_pages: tuple[Range, ...] = ()
    dirty_tensors: tuple[str, ...] = ()
    expected_sha256: str | None = None
    inode: Mapping[str, int] | None = None
    writers: tuple[Writer, ...] = ()
    cloned: bool = False
    notes: tuple[str, ...] = ()

    @property
    def matches_expected(self) -> bool | None:
        """Compare with the digest known beforehand; None where none was."""
        return None if self.expected_sha256 is None else self.sha256 == self.expected_sha256

    def to_json(self) -> dict[str, object]:
        """Give one entry of `files`."""
        source_path = self.candidate.name
        return {
            "path": decoded(self.path),
            "path_bytes": os.fsencode(self.path).hex(),
            "name": decoded(source_path.rpartition(b"/")[2]),
            "source": {
                "path": decoded(source_path),
                "path_bytes": source_path.hex(),
                "pid": self.candidate.pid,
                "state": self.candidate.state.value,
                "device": self.candidate.device,
                "inode": self.candidate.inode,
                "status": dict(self.inode) if self.inode else None,
                "writers": [vars(writer) for writer in self.writers],
            },
            "size": self.size,
            "sha256": self.sha256,
            "verdict": self.verdict.value,
            "reads": [read.to_json() for read in self.reads],
            "unread": [r.to_json() for r in self.unread],
            "differing": [r.to_json() for r in self.differing],
            "copied_pages": [r.to_json() for r in self.copied_pages],
            "dirty_tensors": list(self.dirty_tensors),
            "expected_sha256": self.expected_sha256,
            "matches_expected": self.matches_expected,
            "header": self.header.to_json(self.size),
            "cloned": self.cloned,
            "notes": list(self.notes),
        }

    def at(self, path: str) -> RecoveredFile:
        """Give the same result with the file's path written another way."""
        return replace(self, path=path)


@dataclass(frozen=True)
class BlockedFile:
    """A file that was asked for and could not be read by any way that is open."""

    name: str
    reason: str


@dataclass(frozen=True)
class Recovery:
    """A run of `dump`: whose files, what became of them, and the worst verdict."""

    process: Mapping[str, object]
    files: tuple[RecoveredFile, ...]
    blocked: tuple[BlockedFile, ...] = ()
    processes_not_searched: int = 0
    expected_sha256: str | None = None

    @property
    def verdict(self) -> Verdict:
        """Give the run's verdict: the worst of its files'; PARTIAL when one was out of reach."""
        files = [file.verdict for file in self.files]
        return worst([*files, Verdict.PARTIAL] if self.blocked else files)

    @property
    def exit_code(self) -> ExitCode:
        """Give 0 only when every file is byte-exact and none contradicts a digest asked for."""
        if self.expected_sha256 and not any(file.matches_expected for file in self.files):
            return ExitCode.DOES_NOT_HOLD
        return self.verdict.exit_code

    def to_json(self) -> dict[str, object]:
        """Give the document of `dump --json` and `recovery.json`."""
        return {
            "schema": SCHEMA,
            "verdict": self.verdict.value,
            "process": dict(self.process),
            "files": [file.to_json() for file in self.files],
            "blocked": [vars(b) for b in self.blocked],
            "processes_not_searched_for_writers": self.processes_not_searched,
            "tool": tool_identity(),
        }
