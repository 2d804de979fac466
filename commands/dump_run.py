"""What `reef-recover dump` does once it knows what was asked: save, record, say what it proves."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import cast

import click
from click._termui_impl import ProgressBar

from ..errors import DestinationExists, DoesNotHold, NothingFound, Unusable
from ..records.documents import to_text
from ..records.names import printable
from ..recover.custody.of_dump import record_dump
from ..recover.dump import Dump, Request, dump
from ..recover.held import HeldFiles
from ..recover.routes import Route, Wanted
from ..recover.save.destination import RECORD, OutputFolder, unwritable
from ..recover.save.recovery import RecoveredFile, Recovery
from ..recover.save.stream import Stream
from ..recover.save.verdict import Verdict, worst
from ..recover.scan import Candidate
from ..recover.select import matching
from ..recover.states import State
from .frame import Terminal, human_size, shortened
from .scan import nothing_found, refuse_when_blind

_FULL = (errno.ENOSPC, errno.EDQUOT)
_TENSORS_SHOWN = 8
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")


@dataclass(frozen=True)
class Options:
    """What was asked on the command line."""

    pid: int
    out: str | None
    match: str | None
    expect_sha256: str | None
    wanted: Wanted
    against_memory: bool
    any_format: bool
    children: bool
    cgroup: bool
    force: bool
    base: str | None = None
    recipes: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()

    @property
    def wants_proof(self) -> bool:
        """Tell whether what is saved shall be validated and its configuration rebuilt."""
        return bool(self.base or self.recipes or self.settings)


def run(terminal: Terminal, options: Options) -> int:
    """Choose the files, save them, and say what that proves."""
    expected = options.expect_sha256
    if expected is not None and not _SHA256.fullmatch(expected):
        raise Unusable("--expect-sha256 takes 64 hexadecimal digits.")
    streams = options.out == "-"
    if streams:
        _check_stdout(terminal)
        if options.wants_proof:
            raise Unusable(
                "--base, --recipe and --set look at files, and --out - writes none.",
                remedy="Save to a folder, or run `validate` and `rebuild-config` where it arrives.",
            )
    with HeldFiles(
        options.pid,
        children=options.children,
        cgroup=options.cgroup,
        any_format=options.any_format,
        pinned=True,
    ) as held:
        request = Request(
            candidates=_chosen(held, options),
            sources=held.sources,
            processes=held.processes,
            wanted=options.wanted,
            expected_sha256=expected.lower() if expected else None,
            against_memory=options.against_memory,
        )
        folder = None if streams else options.out or f"recovered-{options.pid}"
        with Progress(terminal, request.candidates) as progress:
            if folder is None:
                recovery = _to_stream(held, request, progress)
            else:
                recovery = _to_folder(terminal, held, request, progress, folder, options.force)
    for line in _summary(recovery):
        if streams:
            terminal.warn(line)
        else:
            terminal.product(line)
    _advise(terminal, recovery, folder)
    if options.wants_proof:
        return _with_proofs(terminal, recovery, options)
    terminal.document(recovery.to_json())
    return recovery.exit_code


def _with_proofs(terminal: Terminal, recovery: Recovery, options: Options) -> int:
    from ..recover.prove import Knowledge, checkpoints_of, prove
    from .dump_proof import proof_lines

    known = Knowledge(options.base, options.recipes, options.settings, options.force)
    proofs = prove(checkpoints_of(file.path for file in recovery.files), known)
    terminal.document({**recovery.to_json(), "proofs": [proof.to_json() for proof in proofs]})
    for proof in proofs:
        for warning in proof.unrecorded:
            terminal.warn(warning)
        for line in proof_lines(proof):
            terminal.product(line)
        for error in proof.errors:
            terminal.warn(f"Error: {error.message}")
            if error.remedy:
                terminal.warn(f"  {error.remedy}")
    return max([recovery.exit_code, *(proof.exit_code for proof in proofs)])


def _check_stdout(terminal: Terminal) -> None:
    if terminal.as_json:
        raise Unusable(
            "With --out - stdout carries the file, so --json has no place.",
            remedy="Drop --json: the verdict and the sha256 are said on stderr.",
        )
    if sys.stdout is None or sys.stdout.isatty():
        raise Unusable("--out - writes bytes to stdout, which is no pipe.", remedy="Pipe it.")


def _chosen(held: HeldFiles, options: Options) -> tuple[Candidate, ...]:
    """Choose what to save. Raises NothingFound, NotPermitted."""
    pid, pattern = options.pid, options.match
    refuse_when_blind(pid, held.scan)
    found = held.scan.candidates
    if pattern is not None:
        chosen = matching(found, pattern)
        if not chosen and found:
            raise NothingFound(
                f"None of the {len(found)} files held fits {pattern!r}.",
                remedy=f"`reef-recover scan --pid {pid}` lists them.",
            )
    else:
        chosen = tuple(c for c in found if c.state is not State.LIVE)
        if not chosen and found:
            raise NothingFound(
                f"Nothing is lost: all {len(found)} files held are still at their paths.",
                remedy="To save them anyway, name them: --match '*'.",
            )
    if not chosen:
        raise NothingFound(
            nothing_found(held.scan),
            remedy=None if options.any_format else "--any-format saves deleted files of any kind.",
        )
    return chosen


def _to_stream(held: HeldFiles, request: Request, progress: Progress) -> Recovery:
    stream = Stream(sys.stdout.fileno(), as_tar=len(request.candidates) > 1)
    recovery = _recovery(held, request, dump(request, stream, progress))
    stream.end(to_text(recovery.to_json()).encode())
    return recovery


def _to_folder(
    terminal: Terminal,
    held: HeldFiles,
    request: Request,
    progress: Progress,
    path: str,
    force: bool,
) -> Recovery:
    folder = OutputFolder(path, force=force)
    try:
        earlier = None if force else folder.read_record()
        if earlier is not None and not held.is_of(earlier.get("process")):
            raise DestinationExists(
                f"{printable(path)} holds the recovery of another process.",
                remedy="Choose another --out, or overwrite with --force.",
            )
        if earlier is not None:
            request = _without_finished(request, earlier, folder)
        try:
            recovery = _recovery(held, request, dump(request, folder, progress))
            # First the link: once there is a record the dump is complete, and is not run again.
            warning = record_dump(folder, recovery, anew=earlier is None)
            folder.write_record(_joined(earlier, recovery, folder))
        except OSError as error:
            if error.errno in _FULL:
                raise _full(path, request) from None
            raise unwritable(path, error) from None
        if warning is not None:
            terminal.warn(warning)
        absolute = os.path.abspath(path)
        return replace(
            recovery, files=tuple(f.at(os.path.join(absolute, f.path)) for f in recovery.files)
        )
    finally:
        folder.close()


def _without_finished(
    request: Request, earlier: Mapping[str, object], folder: OutputFolder
) -> Request:
    """Leave out what an earlier run saved exactly, unless that is everything."""
    finished = {
        _source_of(entry)
        for entry in _entries(earlier)
        if Verdict(str(entry["verdict"])).is_exact and folder.has(str(entry.get("path")))
    }
    left = tuple(c for c in request.candidates if _identity_of(c) not in finished)
    return replace(request, candidates=left or request.candidates)


def _identity_of(candidate: Candidate) -> tuple[object, ...]:
    return (candidate.name.hex(), candidate.device, candidate.inode)


def _source_of(entry: Mapping[str, object]) -> tuple[object, ...]:
    source = entry.get("source")
    if not isinstance(source, dict):
        return ()
    facts = cast("dict[str, object]", source)
    return tuple(facts.get(key) for key in ("path_bytes", "device", "inode"))


def _recovery(held: HeldFiles, request: Request, result: Dump) -> Recovery:
    return Recovery(
        process=held.target,
        files=result.files,
        blocked=result.blocked,
        processes_not_searched=result.processes_not_searched,
        expected_sha256=request.expected_sha256,
    )


def _joined(
    earlier: Mapping[str, object] | None, recovery: Recovery, folder: OutputFolder
) -> dict[str, object]:
    """Keep what an earlier run recorded of files that this one did not save anew."""
    document = recovery.to_json()
    saved = _entries(document)
    new = {_source_of(entry) for entry in saved} | {entry.get("path") for entry in saved}
    kept = [
        entry
        for entry in _entries(earlier or {})
        if not {_source_of(entry), entry.get("path")} & new and folder.has(str(entry.get("path")))
    ]
    verdicts = [Verdict(str(entry["verdict"])) for entry in kept]
    return {
        **document,
        "files": [*kept, *saved],
        "verdict": worst([recovery.verdict, *verdicts]).value,
    }


def _entries(document: Mapping[str, object]) -> list[dict[str, object]]:
    files = document.get("files")
    known = {verdict.value for verdict in Verdict}
    return [
        cast("dict[str, object]", entry)
        for entry in (cast("list[object]", files) if isinstance(files, list) else [])
        if isinstance(entry, dict) and cast("dict[str, object]", entry).get("verdict") in known
    ]


def _full(path: str, request: Request) -> DoesNotHold:
    needed = sum(c.size or 0 for c in request.candidates)
    return DoesNotHold(
        f"No space left at {printable(path)}: the files need {human_size(needed)}.",
        remedy="Nothing is lost. Make room and run the same command again, choose another --out, "
        "or stream: `--out - | ssh HOST 'cat > FILE'`. `reef-recover pin` keeps the files alive "
        "meanwhile and needs no space.",
    )


def _summary(recovery: Recovery) -> Iterator[str]:
    for file in recovery.files:
        yield f"{file.verdict.value}  {human_size(file.size)}  sha256 {file.sha256}"
        yield f"  {printable(file.path)}"
        for note in file.notes:
            yield f"  {note}"
        yield from _tensor_lines(file)
        if file.matches_expected is not None:
            yield f"  The sha256 {'is' if file.matches_expected else 'is NOT'} the expected one."
        for writer in file.writers:
            who = printable(shortened(writer.command, 40))
            yield f"  Process {writer.pid} ({who}) could write to it: {writer.by}."
    for blocked in recovery.blocked:
        yield f"NOT SAVED  {printable(blocked.name)}"
        yield f"  {blocked.reason}"


def _tensor_lines(file: RecoveredFile) -> Iterator[str]:
    if file.dirty_tensors:
        shown = ", ".join(printable(name) for name in file.dirty_tensors[:_TENSORS_SHOWN])
        more = len(file.dirty_tensors) - _TENSORS_SHOWN
        yield f"  Modified in memory: {shown}" + (f" and {more} more" if more > 0 else "")


def _advise(terminal: Terminal, recovery: Recovery, folder: str | None) -> None:
    if recovery.expected_sha256 and not any(f.matches_expected for f in recovery.files):
        terminal.warn(f"No file has the expected sha256 {recovery.expected_sha256}.")
    if any(file.verdict in (Verdict.PARTIAL, Verdict.CHANGED) for file in recovery.files):
        terminal.say("What was read is kept; the same command goes on from there.")
    if folder is not None:
        terminal.say(f"The proof is in {printable(os.path.join(folder, RECORD))}.")


class Progress:
    """Tells on a terminal how far a dump has come."""

    def __init__(self, terminal: Terminal, candidates: tuple[Candidate, ...]) -> None:
        self._terminal = terminal
        self._lock = threading.Lock()
        self._total = sum(c.size or 0 for c in candidates)
        self._stack = contextlib.ExitStack()
        self._bar: ProgressBar[int] | None = None

    def __enter__(self) -> Progress:
        if self._terminal.shows_progress:
            self._bar = self._stack.enter_context(
                click.progressbar(length=self._total, label="Saving", file=sys.stderr)
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(self, candidate: Candidate, route: Route, size: int) -> None:
        """Do nothing: the bar counts bytes, the summary names the files."""

    def advance(self, count: int) -> None:
        """Move the bar."""
        if self._bar is not None:
            with self._lock:
                self._bar.update(count)

    def note(self, message: str) -> None:
        """Say it at once."""
        with self._lock:
            self._terminal.warn(message)
