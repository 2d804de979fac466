"""`reef-recover identify`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import Unusable
from ..records.names import printable
from ..recover.routes import Wanted
from .frame import Terminal, declare, pid_option, tree_options, with_options

if TYPE_CHECKING:
    from ..recover.identify import Identity, Match

_SHOWN = 8


@declare(
    "identify",
    help_text="""Say which known checkpoint a file is, or what a process really serves.

    What is known stands in manifests, as `reef-archive manifest` makes them. FILE is a path or
    PID:GLOB; with --pid every safetensors file that the process holds is looked at, also deleted
    ones. All bytes are read.

    \b
    same-file      the sha256 is the same
    same-tensors   every tensor is the same, and the header or the order is not
    damaged        every tensor is the same, and the file is not a sound one
    truncated      a known file of which only the beginning is there
    some-tensors   so many of the known file's tensors are the same
    same-header    the layout is the same, and no tensor is

    The exit code is 0 when each manifest named is held: FILE is one of its files, or the process
    has all safetensors files of one of its folders, by the first two of these.""",
    examples="""
reef-recover identify adapter_model.safetensors --manifest run/manifest.json
reef-recover identify --pid 4242 --manifest step_7.json --manifest step_8.json
reef-recover identify '4242:*step_8*' --manifest manifest.json --json
""",
)
@with_options(
    click.argument("file", required=False),
    pid_option,
    click.option(
        "--manifest",
        "manifests",
        multiple=True,
        required=True,
        type=click.Path(path_type=Path),
        metavar="M",
        help="What is known (repeatable).",
    ),
    click.option(
        "--source",
        type=click.Choice([w.value for w in Wanted]),
        default=Wanted.AUTO.value,
        show_default=True,
        help="For a process: read the file, or what the process sees of it.",
    ),
    *tree_options,
)
def command(
    terminal: Terminal,
    file: str | None,
    pid: int | None,
    manifests: tuple[Path, ...],
    source: str,
    children: bool,
    cgroup: bool,
) -> int:
    """Read, hold against what is known, and say what it is."""
    from ..recover import identify
    from ..recover.operands import names_a_process

    if (file is None) == (pid is None):
        raise Unusable("Nothing to identify, or two things.", remedy="Give FILE or --pid PID.")
    known = [identify.read_known(path) for path in manifests]
    wanted = Wanted(source)
    if pid is not None:
        found = identify.identify_process(pid, known, wanted, children=children, cgroup=cgroup)
    elif file is not None and names_a_process(file):
        found = identify.identify_matching(file, known, wanted)
    else:
        found = identify.identify_file(Path(file or ""), known)
    terminal.document(found.to_json())
    for line in _lines(found):
        terminal.product(line)
    for unread in found.unread:
        terminal.warn(f"NOT READ  {printable(unread.where)}: {unread.reason}")
    return found.exit_code


def _lines(found: Identity) -> Iterator[str]:
    for looked in found.files:
        yield f"{printable(looked.where)}  sha256 {looked.found.sha256}"
        if looked.found.fault is not None:
            yield f"  {looked.found.fault}"
        if looked.doubt is not None:
            yield f"  Not proven: {looked.doubt}"
        matches = [match for match in found.matches if match.where == looked.where]
        yield from (f"  {_match(match)}" for match in matches[:_SHOWN])
        if len(matches) > _SHOWN:
            yield f"  … and {len(matches) - _SHOWN:,} poorer ones; --json lists them."
        if not matches:
            yield "  unknown"
    for name, held in found.held.items():
        yield f"{'HELD' if held else 'NOT HELD'}  {name}"


def _match(match: Match) -> str:
    text = f"{match.likeness.value}  {printable(match.entry)} in {match.manifest}"
    if match.known_tensors:
        text += f": {match.tensors:,} of {match.known_tensors:,} tensors are equal"
        if match.renamed:
            text += f", {match.renamed:,} of them under another name"
    return text
