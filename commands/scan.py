"""`reef-recover scan`."""

from __future__ import annotations

import contextlib
import os
from fnmatch import fnmatchcase

import click

from ..errors import ExitCode, NotPermitted, ProcessGone, Unusable
from ..recover.process import Process
from ..recover.scan import Candidate, Scan, Scanner, command_line
from ..recover.tree import all_pids, descendants
from .frame import (
    Terminal,
    counted,
    declare,
    human_size,
    pid_option,
    shortened,
    table,
    tree_options,
    with_options,
)

_HEADINGS = ("PID", "COMMAND", "STATE", "SIZE", "TENSORS", "DTYPE", "RANK", "ROUTE", "NAME")


@declare(
    "scan",
    help_text="""List the checkpoints that processes still map or hold open.

    A file counts as safetensors by its content, whatever it is called: cache blobs, temporary
    files, memfds and shared memory are found, too. STATE tells what became of its path: deleted,
    replaced (the path now leads to another file) or live. ROUTE is how dump would read it.

    Without --pid or --name: every process that this user may look into. The exit code is 1 when
    nothing was found.""",
    examples="""
reef-recover scan
reef-recover scan --pid 4242
reef-recover scan --name '*vllm*' --json | jq '.candidates[].name'
reef-recover scan --any-format    # every deleted file: logs, configs, GGUF, torch zips
""",
)
@with_options(
    pid_option,
    click.option("--name", metavar="GLOB", help="Processes whose name or command line fits."),
    click.option("--all", "everything", is_flag=True, help="Every process (the default)."),
    *tree_options,
    click.option("--any-format", is_flag=True, help="List every deleted file, with its kind."),
)
def command(
    terminal: Terminal,
    pid: int | None,
    name: str | None,
    everything: bool,
    children: bool,
    cgroup: bool,
    any_format: bool,
) -> int:
    """Look, and print a row for each file."""
    if sum((pid is not None, name is not None, everything)) > 1:
        raise Unusable("--pid, --name and --all exclude each other.")
    if cgroup and pid is None:
        raise Unusable("--cgroup needs --pid: whose control group?")
    if pid is not None:
        from ..recover.held import HeldFiles

        with HeldFiles(pid, children=children, cgroup=cgroup, any_format=any_format) as held:
            result = held.scan
        refuse_when_blind(pid, result)
    else:
        scanner = Scanner(any_format=any_format)
        scanner.look_at_all(_others() if name is None else _named(name, children=children))
        result = scanner.result()
    terminal.document(result.to_json())
    if not result.candidates:
        terminal.warn(nothing_found(result))
        return ExitCode.DOES_NOT_HOLD
    terminal.product(table(_HEADINGS, map(_row, result.candidates)))
    _advise(terminal, result)
    return ExitCode.HOLDS


def refuse_when_blind(pid: int, result: Scan) -> None:
    """Raise NotPermitted when nothing of the process could be looked into."""
    if result.refused and not result.candidates and len(result.refused) == result.processes:
        raise NotPermitted(
            result.refused[0].reason,
            remedy=f"`reef-recover doctor --pid {pid}` says what blocks it and how to open it.",
        )


def nothing_found(result: Scan) -> str:
    """Say that nothing was found, and what was looked at."""
    refused = len(result.refused)
    processes = counted(result.processes - refused, "process", "processes")
    hidden = f"; {refused} more may not be looked into: see `reef-recover doctor`"
    looked = f"Nothing found: looked at {counted(result.files, 'file')} of {processes}"
    return looked + (hidden if refused else "") + "."


def _others() -> list[int]:
    return [pid for pid in all_pids() if pid != os.getpid()]


def _named(pattern: str, *, children: bool) -> list[int]:
    found: list[int] = []
    for pid in _others():
        with contextlib.suppress(ProcessGone, NotPermitted, OSError):
            with Process(pid) as process:
                names = (os.fsdecode(process.comm()), command_line(process))
            if any(fnmatchcase(text, pattern) for text in names):
                found.append(pid)
    return list(dict.fromkeys(found + (descendants(*found) if children else [])))


def _row(candidate: Candidate) -> tuple[str, ...]:
    header = candidate.header
    ranks = candidate.ranks
    others = len({holding.pid for holding in candidate.holdings}) - 1
    several = f" +{others}" if others else ""
    return (
        f"{candidate.pid}{several}",
        shortened(" ".join(candidate.command.split()), 28),
        candidate.state.value,
        human_size(candidate.size),
        str(len(header.tensors)) if header else candidate.kind.value,
        ",".join(candidate.dtypes) or "-",
        ",".join(map(str, ranks[:4])) + ("…" if len(ranks) > 4 else "") or "-",
        candidate.route.value if candidate.route else "blocked",
        os.fsdecode(candidate.name),
    )


def _advise(terminal: Terminal, result: Scan) -> None:
    for candidate in result.candidates:
        if candidate.problem:
            terminal.say(f"Damaged header in {candidate.pid}: {candidate.problem.message}")
        if candidate.route is None:
            terminal.say(f"Blocked in {candidate.pid}: {candidate.blocked_by}")
    if any(c.blocked_by for c in result.candidates):
        terminal.say("Not every route is open here: `reef-recover doctor --pid PID` says why.")
    if result.refused:
        refused = counted(len(result.refused), "process", "processes")
        terminal.say(f"Not looked into, for want of rights: {refused}.")
