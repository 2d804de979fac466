"""`reef-archive manifest`."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import ExitCode, Unusable
from ..records.names import printable
from .frame import STDOUT, OutPath, Terminal, counted, declare, human_size, with_options

if TYPE_CHECKING:
    from ..provenance.content.members import Content

_LARGE = 1 << 30
_TAIL = 1 << 16  # the keys of a manifest are sorted: its schema stands after its files


@declare(
    "manifest",
    help_text="""Record what must be known of files to find and recognise their bytes again.

    PATH is a folder or a file. Every file is read once; the manifest gives its size and sha256,
    and of each safetensors file the raw header, and of each tensor its sha256, crc32 and up to
    three samples of 64 bytes, by which it can be found in memory. Make it when a checkpoint is
    saved: `repair` takes lost headers from it, and `identify` names a file, or what a process
    holds, by it.

    A manifest inside the folder is not listed in itself. Links and special files are refused.
    A safetensors file that is damaged is listed with its fault, and the exit code is 1.""",
    examples="""
reef-archive manifest step_8 --out step_8/manifest.json
reef-archive manifest adapter_model.safetensors --out manifest.json
reef-archive manifest run/ --json > manifest.json
""",
)
@with_options(
    click.argument("path", type=click.Path(path_type=Path)),
    click.option(
        "--out",
        "-o",
        type=OutPath(stdout=True),
        metavar="FILE",
        help="Where to write it; - is stdout.  [needed without --json]",
    ),
    click.option("--force", is_flag=True, help="Overwrite what is at the destination."),
)
def command(terminal: Terminal, path: Path, out: Path | None, force: bool) -> int:
    """Read, write, and name what is damaged."""
    from ..provenance.manifest import build_manifest
    from ..records.new_file import new_file, refuse_existing, refuse_inputs, temporary_of

    printed = terminal.as_json or out == STDOUT
    out = None if out == STDOUT else out
    if out is None and not printed:
        raise Unusable("Nowhere to write to.", remedy="Name a file with --out, or print --json.")
    if out is not None:
        refuse_existing(out, force=force)
        if not path.is_dir():
            refuse_inputs(out, [path])
        elif os.path.lexists(out) and _inside(path, out):
            _refuse_no_manifest(out)
    content = _content(path)
    own = () if out is None else _inside(path, out, temporary_of(out))
    for name in own:
        if any(member.name == name for member in content.members):
            terminal.say(f"{printable(name)} is the manifest itself, and is not listed in it.")
    with _progress(terminal, content) as progress:
        manifest = build_manifest(content, leave_out=own, progress=progress)
    if out is not None:
        with new_file(out, force=force) as file:
            file.writelines(manifest.pieces())
    if printed:
        click.echo(manifest.to_bytes(), nl=False)
    size = human_size(sum(file.size for file in manifest.files))
    tensors = sum(len(file.tensors) for file in manifest.files)
    tell = terminal.say if printed and not terminal.as_json else terminal.product
    tell(f"{counted(len(manifest.files), 'file')}, {size}, {counted(tensors, 'tensor')}")
    for entry in manifest.faults:
        terminal.warn(f"DAMAGED  {printable(entry.path)}: {entry.fault}")
    if out is not None:
        terminal.say(f"Wrote {printable(os.fsencode(out))}")
    return ExitCode.DOES_NOT_HOLD if manifest.faults else ExitCode.HOLDS


def _content(path: Path) -> Content:
    if path.is_dir():
        from ..provenance.content.folder import FolderContent

        return FolderContent(path)
    from ..provenance.content.single_file import SingleFile

    return SingleFile(path)


def _inside(folder: Path, *paths: Path) -> tuple[str, ...]:
    """Give the names that paths have inside a folder; those outside of it are left out."""
    root = os.path.realpath(folder)
    real = (os.path.join(os.path.realpath(path.parent), path.name) for path in paths)
    return tuple(
        os.path.relpath(each, root).replace(os.sep, "/")
        for each in real
        if os.path.dirname(each) == root or each.startswith(root.rstrip(os.sep) + os.sep)
    )


def _refuse_no_manifest(out: Path) -> None:
    """Refuse to replace a file of the folder that is no manifest: it is one of those to be read."""
    with open(out, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
        tail = file.read(_TAIL)
    if b'"schema": "reefkit.manifest/' not in tail:
        raise Unusable(
            f"{printable(os.fsencode(out))} is no manifest, but one of the files to be read.",
            remedy="Choose another --out.",
        )


@contextlib.contextmanager
def _progress(
    terminal: Terminal, content: Content
) -> Generator[Callable[[int], object] | None, None, None]:
    size = sum(member.size for member in content.members)
    if not terminal.shows_progress or size < _LARGE:
        yield None
        return
    with click.progressbar(length=size, label="Reading", file=sys.stderr) as bar:
        yield bar.update
