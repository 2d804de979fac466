"""What a person names where a file is expected: a path, or `PID:GLOB` for one that is mapped."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator
from pathlib import Path

from ..errors import DoesNotHold, NothingFound, NotPermitted, Unusable
from ..records.custody_lines import FILE as CUSTODY
from ..records.names import decoded, printable
from .formats.sniff import Kind
from .held import HeldFiles
from .readable import FileReadable, Readable
from .routes import Wanted
from .save.destination import RECORD
from .save.memory_proof import MemoryView, length_in_memory
from .scan import Candidate
from .select import PID_AND_GLOB, matching
from .sources import Source

_RECORD_SUFFIXES = (".rescue.map", ".recovery.json")
_MOST_SHARDS = 10_000


class SourceReadable:
    """A recovery source, read like a file."""

    def __init__(self, source: Source, size: int, label: str, doubt: str | None = None) -> None:
        self.size = size
        self.label = label
        self.doubt = doubt
        self._source = source

    def read(self, offset: int, length: int) -> bytes:
        """Read bytes; fewer than asked for only at the end. Raises DoesNotHold."""
        buffer = memoryview(bytearray(max(0, min(length, self.size - offset))))
        done = 0
        while done < len(buffer):
            try:
                count = self._source.read_into(buffer[done:], offset + done)
            except OSError as error:
                raise self._unreadable(offset + done, error.strerror) from None
            if count <= 0:
                raise self._unreadable(offset + done, "nothing is mapped there")
            done += count
        return bytes(buffer)

    def _unreadable(self, offset: int, reason: str | None) -> DoesNotHold:
        return DoesNotHold(
            f"{self.label} cannot be read at byte {offset}: {reason}.",
            remedy="`reef-recover dump` saves what can be read and lists the rest.",
        )


def names_a_process(operand: str) -> bool:
    """Tell whether an operand is PID:GLOB and not a path that exists."""
    return bool(PID_AND_GLOB.fullmatch(operand)) and not os.path.lexists(operand)


@contextlib.contextmanager
def open_operand(operand: str, wanted: Wanted) -> Generator[Readable, None, None]:
    """Open a file, the only file of a folder, or the one file that PID:GLOB names.

    Raises Unusable, NothingFound, NotPermitted, ProcessGone.
    """
    if not names_a_process(operand):
        path = Path(operand)
        with FileReadable(only_file(path) if path.is_dir() else path) as readable:
            yield readable
        return
    pid_text, _, pattern = operand.partition(":")
    with HeldFiles(int(pid_text), pinned=True) as held:
        candidate = _only_match(operand, matching(held.scan.candidates, pattern))
        with open_candidate(held, candidate, wanted) as readable:
            yield readable


@contextlib.contextmanager
def open_in_process(
    operand: str, wanted: Wanted
) -> Generator[tuple[tuple[Candidate, Readable], ...], None, None]:
    """Open every file that PID:GLOB fits, in the order of their names.

    Where safetensors are among them, the others are left out. Raises Unusable for more files than
    a checkpoint has, NothingFound, NotPermitted, ProcessGone.
    """
    pid_text, _, pattern = operand.partition(":")
    with contextlib.ExitStack() as stack:
        held = stack.enter_context(HeldFiles(int(pid_text), pinned=True))
        found = matching(held.scan.candidates, pattern)
        found = tuple(c for c in found if c.kind is Kind.SAFETENSORS) or found
        if len(found) > _MOST_SHARDS:
            raise Unusable(
                f"{printable(operand)} fits {len(found):,} files.",
                remedy="Make the glob fit the files of one checkpoint.",
            )
        if not found:
            raise _no_match(operand)
        yield tuple(
            (candidate, stack.enter_context(open_candidate(held, candidate, wanted)))
            for candidate in sorted(found, key=lambda c: c.name)
        )


def only_file(folder: Path) -> Path:
    """Give the one file of a folder but for records of reefkit. Raises Unusable."""
    files = [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and path.name not in (RECORD, CUSTODY)
        and not path.name.endswith(_RECORD_SUFFIXES)
    ]
    if len(files) != 1:
        raise Unusable(
            f"{printable(os.fsencode(folder))} holds {len(files)} files, where one is meant.",
            remedy="Name the file, or compare two folders.",
        )
    return files[0]


def _only_match(operand: str, found: tuple[Candidate, ...]) -> Candidate:
    if not found:
        raise _no_match(operand)
    first, *others = found
    if others:
        names = ", ".join(printable(c.name) for c in found[:5])
        raise Unusable(
            f"{printable(operand)} fits {len(found)} files: {names}.",
            remedy="Make the glob fit one, by its whole path if need be.",
        )
    return first


def _no_match(operand: str) -> NothingFound:
    return NothingFound(
        f"{printable(operand)} fits no file that the process holds.",
        remedy=f"`reef-recover scan --pid {operand.partition(':')[0]}` lists them.",
    )


@contextlib.contextmanager
def open_candidate(
    held: HeldFiles, candidate: Candidate, wanted: Wanted
) -> Generator[Readable, None, None]:
    """Open what a process holds: the file, or what its memory has of it. Raises NotPermitted."""
    label = f"{candidate.pid}:{printable(decoded(candidate.name))}"
    file = held.sources.get((candidate.device, candidate.inode))
    if file is not None and wanted is not Wanted.MEMORY:
        yield SourceReadable(file, file.size, label)
        return
    mapped = [h for h in candidate.holdings if h.mappings and h.pid in held.processes]
    if wanted is Wanted.FILE or not mapped:
        raise NotPermitted(
            f"{label} cannot be opened by this route: "
            f"{candidate.blocked_by or 'no process maps it'}",
            remedy=f"`reef-recover doctor --pid {candidate.pid}` says how to open the routes.",
        )
    view = MemoryView(held.processes[mapped[0].pid], mapped[0])
    with view.open(None) as whole:
        known = file.size if file else candidate.path_size
        length = length_in_memory(whole, view.mapped_stop(), candidate.header, known)
    with view.open(length.size) as source:
        doubt = None if length.known else f"{label}: {length.reason}"
        yield SourceReadable(source, length.size, label, doubt)
