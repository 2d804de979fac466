"""Make the record of a run: begun before the run, written once when it ends, never changed.

While the run lasts there is only `run.json.started`, which says that a run began and counts for
nothing. Not recorded: host and user, the folder the run was started in, and variables that are not
on the list. The command line is recorded without its secrets, its paths as they were given.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from ...errors import DestinationExists, Unusable
from ...records.documents import to_text
from ...records.names import decoded, printable
from ...records.new_file import new_file
from ...records.strict_json import Json
from ...records.tool import tool_identity
from ..gate.model import Topology
from ..gate.provenance import run_record_name
from .environment import recorded_environment
from .inputs import hash_inputs
from .redacted_argv import redacted_argv, redacted_text
from .repository import repository_state
from .run_document import (
    LIMIT,
    Predecessor,
    RunRecord,
    RunStatus,
    provenance_gaps,
    read_run,
)

__all__ = [
    "OpenRun",
    "Predecessor",
    "RunRecord",
    "RunStatus",
    "predecessor_of",
    "provenance_gaps",
    "read_run",
    "start_run",
]

START_SCHEMA = "reefkit.run-start/1"
_LONGEST = 1 << 15
_NO_END = "the run ended without saying how"


def start_run(
    folder: Path,
    argv: Sequence[str],
    *,
    repository: Path | None = None,
    topology: Topology | None = None,
    rank: int = 0,
    inputs: Iterable[Path] = (),
    predecessor: Predecessor | None = None,
    environment: Mapping[str, str] | None = None,
) -> OpenRun:
    """Begin a run: take a fresh id, look at code and environment, and hash the inputs.

    `repository` is a folder of the code that runs, else the working folder; `environment` is that
    of this process unless given. Raises DestinationExists where a record is already, Unusable for
    inputs that cannot be read, a folder that cannot be written, a rank outside of the topology.
    """
    import uuid

    path = folder / run_record_name(rank)
    _refuse_existing(path)
    if topology is not None and not 0 <= rank < topology.world_size:
        raise Unusable(
            f"There is no rank {rank} among {topology.world_size}.", remedy="Ranks count from 0."
        )
    where = Path.cwd() if repository is None else repository
    state = repository_state(where)
    record = RunRecord(
        execution_id=str(uuid.uuid4()),
        argv=tuple(map(_shortened, redacted_argv(argv))),
        status=RunStatus.INTERRUPTED,
        rank=rank,
        topology=topology,
        environment=recorded_environment(os.environ if environment is None else environment),
        inputs=hash_inputs(inputs),
        predecessor=predecessor,
        tool=dict[str, Json](tool_identity()),
        **vars(state),
    )
    marker = path.with_name(f"{path.name}.started")
    with new_file(marker, force=True, mode=0o644) as file:
        started = {"schema": START_SCHEMA, "execution_id": record.execution_id}
        file.write(to_text(started).encode())
    return OpenRun(path, marker, where, record)


class OpenRun:
    """A run that has begun; as a context manager it writes its record however the block ends."""

    def __init__(self, path: Path, marker: Path, repository: Path, record: RunRecord) -> None:
        """Take what `start_run` found."""
        self.path = path
        self.record = record
        self.sha256: str | None = None
        self._marker = marker
        self._repository = repository

    @property
    def execution_id(self) -> str:
        """The id that no other run has."""
        return self.record.execution_id

    def finish(self, status: RunStatus | str, reason: str | None = None) -> RunRecord:
        """Write the record, read-only; a second time, or over another, it raises DestinationExists.

        The repository is looked at again: whether it changed meanwhile is recorded. Raises Unusable
        where nothing can be written, or for a status that is none.
        """
        try:
            ended = RunStatus(status)
        except ValueError:
            raise Unusable(
                f"A run does not end as `{printable(str(status)[:40])}`.",
                remedy=f"Give one of {', '.join(each.value for each in RunStatus)}.",
            ) from None
        _refuse_existing(self.path)
        state = repository_state(self._repository)
        before = self.record
        now = (state.commit, state.tree, state.dirty, state.diff_sha256)
        changed = now != (before.commit, before.tree, before.dirty, before.diff_sha256)
        why = None
        if ended is not RunStatus.PASSED and reason:
            why = _shortened(redacted_text(decoded(reason)))
        self.record = replace(before, status=ended, reason=why, repository_changed=changed)
        data = to_text(self.record.to_json()).encode()
        self._write(data)
        self.sha256 = hashlib.sha256(data).hexdigest()
        return self.record

    def _write(self, data: bytes) -> None:
        try:
            with new_file(self.path, mode=0o644) as file:
                file.write(data)
                if hasattr(os, "fchmod"):
                    os.fchmod(file.fileno(), 0o444)
        except DestinationExists:
            raise _exists(self.path) from None
        if not hasattr(os, "fchmod"):
            os.chmod(self.path, 0o444)
        with contextlib.suppress(OSError):
            self._marker.unlink()

    def __enter__(self) -> OpenRun:
        """Begin the block whose end is the run's."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Write the record unless that was done: only `finish` can say that it passed."""
        if self.sha256 is not None:
            return
        stopped = kind is None or not issubclass(kind, Exception)
        reason = _NO_END if kind is None else f"{kind.__name__} ended the run"
        self.finish(RunStatus.INTERRUPTED if stopped else RunStatus.FAILED, reason)


def predecessor_of(path: Path) -> Predecessor:
    """Name the run whose record is a file. Raises Unusable where it is none."""
    label = printable(os.fsencode(path))
    try:
        with open(path, "rb") as file:
            data = file.read(LIMIT + 1)
    except (OSError, ValueError):
        raise Unusable(
            f"The run record {label} cannot be read.", remedy="Name the run.json of the run before."
        ) from None
    if len(data) > LIMIT:
        raise Unusable(f"{label} is too large for a run record.", remedy="Name a run.json.")
    return Predecessor(read_run(data, label).execution_id, hashlib.sha256(data).hexdigest())


def _shortened(text: str) -> str:
    """Keep a text within what a reader of records takes."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text):,} letters)"


def _refuse_existing(path: Path) -> None:
    if os.path.lexists(path):
        raise _exists(path)


def _exists(path: Path) -> DestinationExists:
    return DestinationExists(
        f"{printable(os.fsencode(path))} is there already; a run record is never overwritten.",
        remedy="Give every run a folder of its own.",
    )
