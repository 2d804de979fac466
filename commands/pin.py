"""`reef-recover pin`."""

from __future__ import annotations

import click

from ..errors import ExitCode, NothingFound, NotPermitted, Unusable
from ..recover.held import HeldFiles
from ..recover.pins import pin
from ..recover.select import matching
from .frame import Terminal, counted, declare, human_size, pid_option, tree_options, with_options
from .scan import nothing_found, refuse_when_blind


@declare(
    "pin",
    help_text="""Hold every checkpoint of a process open, so that its exit loses nothing.

    A small process in the background keeps a descriptor on each inode: the target may exit,
    crash, or unload the adapter, and dump --pid still finds the bytes. It holds descriptors and
    nothing else: no capability, no socket, no file on disk.

    Pinned files keep their disk space until unpin. A holder in a container dies with the
    container, and none survives a reboot: pin first, then dump.""",
    examples="""
reef-recover pin --pid 4242
reef-recover pin --pid 4242 --any-format --timeout 86400
reef-recover pins
""",
)
@with_options(
    pid_option,
    click.option("--match", metavar="GLOB", help="Only files whose path, its end, or name fits."),
    click.option("--any-format", is_flag=True, help="Every deleted file, not only safetensors."),
    click.option(
        "--timeout", type=click.IntRange(1, 10**9), metavar="SECONDS", help="Let go after this."
    ),
    *tree_options,
)
def command(
    terminal: Terminal,
    pid: int | None,
    match: str | None,
    any_format: bool,
    timeout: int | None,
    children: bool,
    cgroup: bool,
) -> int:
    """Open everything, then start the holder."""
    if pid is None:
        raise Unusable("pin needs --pid.", remedy="`reef-recover scan` lists what is held.")
    with HeldFiles(pid, children=children, cgroup=cgroup, any_format=any_format) as held:
        refuse_when_blind(pid, held.scan)
        candidates = matching(held.scan.candidates, match)
        if not candidates:
            raise NothingFound(nothing_found(held.scan))
        within_reach = [c for c in candidates if (c.device, c.inode) in held.sources]
        if not within_reach:
            raise NotPermitted(
                f"Of {counted(len(candidates), 'file')} found none can be opened here: "
                f"{candidates[0].blocked_by}",
                remedy=f"Save it from memory now: `reef-recover dump --pid {pid}`. "
                f"`reef-recover doctor --pid {pid}` says how to open the file route.",
            )
        made = pin(held.processes[pid].identity(), candidates, held.sources, timeout)
    size = sum(file.size for file in made.files)
    terminal.document(made.to_json())
    terminal.product(
        f"Pinned {counted(len(made.files), 'file')} ({human_size(size)}) in process {made.holder}."
    )
    terminal.say(
        f"Whatever becomes of {pid}: `reef-recover dump --pid {pid}` saves what is pinned."
    )
    terminal.say(f"Pinned files keep their disk space until `reef-recover unpin --pid {pid}`.")
    left_out = len(candidates) - len(made.files)
    if left_out:
        terminal.warn(
            f"Not pinned, since only memory can be read: {counted(left_out, 'file')}. Dump now."
        )
        return ExitCode.DOES_NOT_HOLD
    return ExitCode.HOLDS
