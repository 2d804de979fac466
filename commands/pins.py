"""`reef-recover pins`."""

from __future__ import annotations

import datetime
import os

from ..recover.pins import Pin, find_pins
from .frame import Terminal, declare, human_size, table

SCHEMA = "reefkit.pins/1"


@declare(
    "pins",
    help_text="""List what is pinned, by which holder process, and since when.

    The exit code is 0 also when nothing is pinned.""",
    examples="""
reef-recover pins
reef-recover pins --json | jq '.pins[].files[].name'
""",
)
def command(terminal: Terminal) -> int:
    """List this user's pins."""
    pins = list(find_pins())
    terminal.document({"schema": SCHEMA, "pins": [pin.to_json() for pin in pins]})
    if not pins:
        terminal.say("Nothing is pinned.")
        return 0
    rows = [row for pin in pins for row in _rows(pin)]
    terminal.product(table(("HOLDER", "PID", "SINCE", "STATE", "SIZE", "NAME"), rows))
    return 0


def _rows(pin: Pin) -> list[tuple[str, ...]]:
    since = datetime.datetime.fromtimestamp(pin.since).isoformat(" ")
    return [
        (
            str(pin.holder),
            str(pin.target_pid),
            since,
            file.state.value,
            human_size(file.size),
            os.fsdecode(file.name),
        )
        for file in pin.files
    ]
