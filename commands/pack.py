"""`reef-archive pack`."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import ExitCode, Unusable
from ..records.names import printable
from .frame import OutPath, Terminal, counted, declare, human_size, with_options
from .key_options import key_options, open_signer, refuse_key_inside, timestamping

if TYPE_CHECKING:
    from ..provenance.evidence.pack import Package
    from ..provenance.sign.key import Signer

_LARGE = 1 << 28
_EPOCH = "SOURCE_DATE_EPOCH"


@declare(
    "pack",
    help_text="""Make one zip of a run's evidence that proves itself.

    The zip holds the folder's files as they are, manifest.json (digests of every tensor),
    custody.jsonl (what was done to the files), SHA256SUMS, one signature for each stock tool, and
    VERIFY.md, which says how to check all that. Nothing in the folder is changed. The same content,
    key and version of this program give the same zip, byte for byte, on any machine; with
    SOURCE_DATE_EPOCH in the environment its custody carries that date.

    This release cannot redact: what is packed is published as it is, paths, hosts and names
    included, and the package says so. That is why --no-redact must be given.
    """,
    examples="""
reef-archive pack run-16/ --out evidence.zip --key ~/.config/reefkit/lab --no-redact
reef-archive pack run-16/ --out evidence.zip --agent --identity evidence@lab --no-redact --json
reef-archive verify evidence.zip --signers lab.allowed_signers
""",
)
@with_options(
    click.argument("folder", type=click.Path(path_type=Path)),
    click.option("--out", "-o", required=True, metavar="FILE", type=OutPath(),
                 help="The zip to write."),
    *key_options,
    click.option("--unsigned", is_flag=True, help="Sign nothing: the zip then proves no origin."),
    click.option("--no-redact", is_flag=True, help="Publish the files as they are, and say so."),
    click.option("--timestamp", "authority", metavar="URL",
                 help="Also have an RFC 3161 authority say when; needs the network."),
    click.option("--force", is_flag=True, help="Overwrite what is at the destination."),
)  # fmt: skip
def command(
    terminal: Terminal,
    folder: Path,
    out: Path,
    key: Path | None,
    agent: bool,
    identity: str | None,
    passphrase_file: Path | None,
    sshsig_only: bool,
    unsigned: bool,
    no_redact: bool,
    authority: str | None,
    force: bool,
) -> int:
    """Pack, and say what the zip is."""
    from ..provenance.evidence.pack import Order, pack

    if not no_redact:
        raise Unusable(
            "This release cannot redact, and evidence holds paths, hosts and names.",
            remedy="Look through the folder; then publish it as it is with --no-redact.",
        )
    if unsigned and (key is not None or agent or authority is not None):
        raise Unusable("--unsigned excludes --key, --agent and --timestamp.", remedy="Give either.")
    refuse_key_inside(key, folder)
    opened = (
        None if unsigned else _opened(terminal, key, agent, identity, passphrase_file, sshsig_only)
    )
    signer, name = opened or (None, None)
    with contextlib.ExitStack() as stack:
        package = pack(
            Order(
                folder,
                out,
                signer,
                name,
                epoch=_epoch(),
                force=force,
                timestamp=timestamping(authority, terminal),
                progress=_bar(terminal, folder, stack),
            )
        )
    terminal.document(package.to_json())
    terminal.product(_summary(package))
    for path in package.left_out:
        terminal.warn(f"Left out: {printable(path)}, an empty folder, which no checksum covers.")
    terminal.say("Nothing was redacted: what the files say of machines and people is in there.")
    return ExitCode.HOLDS


def _opened(
    terminal: Terminal,
    key: Path | None,
    agent: bool,
    identity: str | None,
    passphrase_file: Path | None,
    sshsig_only: bool,
) -> tuple[Signer, str]:
    if key is None and not agent:
        raise Unusable(
            "No key was named to sign with.",
            remedy="Give --key FILE (`reef-archive keygen` makes one) or --agent; or --unsigned.",
        )
    return open_signer(terminal, key, agent, identity, passphrase_file, sshsig_only=sshsig_only)


def _epoch() -> int | None:
    """Read SOURCE_DATE_EPOCH as reproducible-builds.org defines it."""
    text = os.environ.get(_EPOCH)
    if not text:
        return None
    digits = text.lstrip("0")[:13]  # so many are too late already, and more int() may refuse
    if not text.isascii() or not text.isdigit() or int(digits or "0") > 253_402_300_799:
        raise Unusable(
            f"{_EPOCH} is {printable(text[:40])}, not a number of seconds since 1970.",
            remedy="Set it to a whole number, or unset it.",
        )
    return int(digits or "0")


def _bar(
    terminal: Terminal, folder: Path, stack: contextlib.ExitStack
) -> Callable[[int], object] | None:
    if not terminal.shows_progress:
        return None
    size = sum(entry.stat().st_size for entry in folder.rglob("*") if entry.is_file())
    if size < _LARGE:
        return None
    bar = click.progressbar(length=2 * size, label="Packing", file=sys.stderr)
    return stack.enter_context(bar).update


def _summary(package: Package) -> str:
    who = f"signed by {printable(package.identity)}" if package.identity else "unsigned"
    return (
        f"{printable(os.fsencode(package.path))}: {counted(len(package.files), 'file')}, "
        f"{human_size(package.size)}, {who}\nsha256 {package.sha256}"
    )
