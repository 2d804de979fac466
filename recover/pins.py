"""What is pinned: find the holders, read their records, take the files back out."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from ..errors import NotPermitted, ProcessGone
from ..records.documents import to_text
from ..records.names import decoded
from . import holder
from .process import Process, ProcessIdentity
from .scan import Candidate, Scanner
from .sources import FileSource
from .states import State, locate
from .tree import all_pids

SCHEMA = "reefkit.pin/1"
_RECORD_LIMIT = 16 << 20
_LAST_SECOND = 253402300799  # of the year 9999
_RECORD_LINK = f"/memfd:{holder.RECORD_NAME} (deleted)".encode()


@dataclass(frozen=True)
class PinnedFile:
    """One file that a holder keeps: its descriptor there, and what it was when it was pinned."""

    descriptor: int
    name: bytes
    state: State
    size: int
    device: int
    inode: int
    command: str

    def to_json(self) -> dict[str, object]:
        """Give one entry of a pin's `files`."""
        return {
            "descriptor": self.descriptor,
            "name": decoded(self.name),
            "name_bytes": self.name.hex(),
            "state": self.state.value,
            "size": self.size,
            "device": self.device,
            "inode": self.inode,
            "command": self.command,
        }

    @classmethod
    def from_json(cls, entry: Mapping[str, object]) -> PinnedFile:
        """Read one entry. Raises KeyError, TypeError, ValueError."""
        numbers = [entry[key] for key in ("descriptor", "size", "device", "inode")]
        if not all(isinstance(number, int) for number in numbers):
            raise TypeError("a number is missing")
        descriptor, size, device, inode = cast("list[int]", numbers)
        return cls(
            descriptor=descriptor,
            name=bytes.fromhex(str(entry["name_bytes"])),
            state=State(entry["state"]),
            size=size,
            device=device,
            inode=inode,
            command=str(entry["command"]),
        )


@dataclass(frozen=True)
class Pin:
    """A holder process, whose files it keeps, and since when."""

    holder: int
    target: Mapping[str, object]
    since: int
    timeout: float | None
    files: tuple[PinnedFile, ...]

    @property
    def target_pid(self) -> object:
        """The process id that the files were pinned from."""
        return self.target.get("pid")

    def to_json(self) -> dict[str, object]:
        """Give the pin, as its holder's record and `pins --json` have it."""
        return {
            "schema": SCHEMA,
            "holder": self.holder,
            "target": dict(self.target),
            "since": self.since,
            "timeout": self.timeout,
            "files": [file.to_json() for file in self.files],
        }


def pin(
    target: ProcessIdentity,
    candidates: tuple[Candidate, ...],
    sources: Mapping[tuple[int, int], FileSource],
    timeout: float | None,
) -> Pin:
    """Start a holder for the inodes of `candidates`; those without a source are left out.

    Raises DoesNotHold when the holder could not be set up.
    """
    files = tuple(
        PinnedFile(source.fd, c.name, c.state, source.size, c.device, c.inode, c.command)
        for c in candidates
        if (source := sources.get((c.device, c.inode))) is not None
    )
    made = Pin(0, target.to_json(), int(time.time()), timeout, files)
    record = to_text(made.to_json()).encode()
    pid = holder.hold([file.descriptor for file in files], record, timeout)
    return Pin(pid, made.target, made.since, timeout, files)


def find_pins() -> Iterator[Pin]:
    """Find the holders that belong to this user."""
    for pid in all_pids():
        with contextlib.suppress(ProcessGone, NotPermitted, OSError):
            with Process(pid, is_listed=True) as process:
                if process.comm() == holder.NAME and (found := _read_pin(process)) is not None:
                    yield found


def _read_pin(process: Process) -> Pin | None:
    if int(process.status()["Uid"].split()[1]) != os.geteuid() or not _is_neighbour(process):
        return None
    for file in process.open_files():
        if file.name == _RECORD_LINK:
            fd = process.open_descriptor(file.number)
            try:
                record = holder.read_record(fd, _RECORD_LIMIT)
            finally:
                os.close(fd)
            return _parse(process.pid, record) if record else None
    return None


def _is_neighbour(process: Process) -> bool:
    """Tell whether a process lives in this one's namespaces.

    The root user of a container is the same user to the kernel, and could offer anything as the
    host's pins.
    """
    return all(
        process.link(f"ns/{kind}") == os.readlink(f"/proc/self/ns/{kind}".encode())
        for kind in ("user", "mnt", "pid")
    )


def _parse(pid: int, record: bytes) -> Pin | None:
    with contextlib.suppress(ValueError, KeyError, TypeError, OverflowError, RecursionError):
        document = json.loads(record)
        if document["schema"] == SCHEMA:
            timeout = document["timeout"]
            return Pin(
                holder=pid,
                target=dict(document["target"]),
                since=min(max(int(document["since"]), 0), _LAST_SECOND),
                timeout=None if timeout is None else float(timeout),
                files=tuple(PinnedFile.from_json(entry) for entry in document["files"]),
            )
    return None


def take_out(pin: Pin, process: Process, scanner: Scanner) -> None:
    """Open the files of a pin into `scanner`. Raises NotPermitted, ProcessGone."""
    for file in pin.files:
        with contextlib.suppress(FileNotFoundError):
            fd = process.open_descriptor(file.descriptor)
            scanner.add_open_file(process, fd, file.name, _state_now(process, file), file.command)


def _state_now(process: Process, file: PinnedFile) -> State:
    """Tell what became of a file that was at its path when it was pinned.

    Seen from here a path of another mount namespace is missing: then the file counts as deleted,
    and is saved.
    """
    if file.state is not State.LIVE:
        return file.state
    return locate(process, file.name, (file.device, file.inode), trusted=True)[0]


def release(pin: Pin) -> None:
    """End the holder of a pin. Raises ProcessGone, NotPermitted."""
    with Process(pin.holder) as process:
        if process.comm() == holder.NAME:
            process.send_signal(signal.SIGTERM)
