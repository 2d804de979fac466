"""`reef-recover unpin`."""

from __future__ import annotations

import click

from ..errors import ExitCode, NothingFound, Unusable
from ..recover.pins import find_pins, release
from .frame import Terminal, counted, declare, pid_option, with_options

SCHEMA = "reefkit.pins/1"


@declare(
    "unpin",
    help_text="""Let go of what is pinned; files that nothing else holds are gone for good then.

    --pid takes the process that was pinned, or the holder.""",
    examples="""
reef-recover unpin --pid 4242
reef-recover unpin --all
""",
)
@with_options(
    pid_option, click.option("--all", "everything", is_flag=True, help="Every pin of this user.")
)
def command(terminal: Terminal, pid: int | None, everything: bool) -> int:
    """End the holders."""
    if (pid is not None) == everything:
        raise Unusable("unpin needs either --pid or --all.")
    chosen = [p for p in find_pins() if everything or pid in (p.target_pid, p.holder)]
    if not chosen:
        raise NothingFound(
            "Nothing is pinned." if everything else f"Nothing of process {pid} is pinned.",
            remedy="`reef-recover pins` lists what is.",
        )
    for found in chosen:
        release(found)
        terminal.product(
            f"Let go of {counted(len(found.files), 'file')} of process {found.target_pid}."
        )
    terminal.document({"schema": SCHEMA, "released": [pin.to_json() for pin in chosen]})
    return ExitCode.HOLDS
