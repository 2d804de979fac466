"""`reef-archive doctor`."""

from __future__ import annotations

from pathlib import Path

import click

from ..errors import ExitCode
from ..records.names import printable
from .frame import Terminal, counted, declare, with_options


@declare(
    "doctor",
    help_text="""Find what would change evidence bytes in a git repository.

    Looks for folders with SHA256SUMS or custody.jsonl among the files that git tracks or would,
    and asks what may alter them: line endings converted by git, filters, keyword expansion,
    pre-commit hooks that edit files, and .editorconfig. With --fix the lines that prevent what git
    would do are appended to .gitattributes; what concerns hooks and editors is printed, ready to
    be pasted.

    \b
    Exit code 0: nothing changes evidence. 1: something would.""",
    examples="""
reef-archive doctor
reef-archive doctor ~/project --fix
reef-archive doctor --json
""",
)
@with_options(
    click.argument("folder", type=click.Path(path_type=Path), default="."),
    click.option("--fix", is_flag=True, help="Append to .gitattributes what prevents it."),
)
def command(terminal: Terminal, folder: Path, fix: bool) -> int:
    """Examine, mend where asked, and examine again."""
    from dataclasses import replace

    from ..provenance.repository.doctor import examine, mend

    found = examine(folder)
    if fix and (written := mend(found)):
        found = replace(examine(folder), written=written)
        terminal.say(f"Added {counted(len(written), 'line')} to .gitattributes; commit it.")
    terminal.document(found.to_json())
    if not found.places:
        terminal.product("No evidence here: no tracked folder has SHA256SUMS or custody.jsonl.")
    for hazard in found.hazards:
        terminal.product(
            f"{printable(hazard.folder)} ({counted(hazard.files, 'file')}): "
            f"{printable(hazard.effect)}."
        )
        if hazard.line is not None:
            terminal.product(f"  {hazard.file}: {printable(hazard.line)}")
    if found.places and not found.hazards:
        files = counted(sum(len(place.files) for place in found.places), "file")
        terminal.product(f"Nothing here changes evidence: {files} in {len(found.places)} places.")
    elif not fix and any(hazard.writable for hazard in found.hazards):
        terminal.say("`reef-archive doctor --fix` writes the lines for .gitattributes.")
    return ExitCode.DOES_NOT_HOLD if found.hazards else ExitCode.HOLDS
