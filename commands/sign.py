"""`reef-archive sign`."""

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
from .frame import Terminal, counted, declare, with_options
from .key_options import key_options, open_signer, refuse_key_inside, timestamping

if TYPE_CHECKING:
    from ..provenance.sign.key import Signer
    from ..provenance.sign.stage import SignedPlace

_LARGE = 1 << 28


@declare(
    "sign",
    help_text="""Sign a folder so that it can be checked without this program.

    TARGET is a folder, or one checksum file. In a folder all files are hashed, SHA256SUMS is
    written, and beside it one signature for each stock tool: ssh-keygen, openssl, cosign,
    model_signing (with Ed25519: ssh-keygen, openssl, minisign). VERIFY.md in the folder says how
    they are checked. An SHA256SUMS that is there already must say exactly what is there; it is not
    changed. Of a checksum file alone only the signatures are written: its files are not read.

    Signing again with the same key changes nothing. A second signer gives --add.
    """,
    examples="""
reef-archive sign evidence/ --key ~/.config/reefkit/lab
reef-archive sign evidence/ --agent --identity reviewer@lab --add
reef-archive sign evidence/ --key lab --withdraw 'The clock of node 3 was wrong.'
reef-archive sign SHA256SUMS --key lab --timestamp https://tsa.example.org
""",
)
@with_options(
    click.argument("target", type=click.Path(path_type=Path)),
    *key_options,
    click.option("--add", is_flag=True, help="Sign what others have signed already."),
    click.option("--timestamp", "authority", metavar="URL",
                 help="Also have an RFC 3161 authority say when; needs the network."),
    click.option("--withdraw", "reason", metavar="REASON",
                 help="Sign nothing anew, but say in withdrawn.json that it is withdrawn."),
    click.option("--superseded-by", "successor", metavar="SHA256",
                 help="With --withdraw: what replaces it; then it is superseded, not withdrawn."),
    click.option("--force", is_flag=True, help="Replace the first signer's signatures."),
)  # fmt: skip
def command(
    terminal: Terminal,
    target: Path,
    key: Path | None,
    agent: bool,
    identity: str | None,
    passphrase_file: Path | None,
    sshsig_only: bool,
    add: bool,
    authority: str | None,
    reason: str | None,
    successor: str | None,
    force: bool,
) -> int:
    """Write the sums and the signatures, and say which."""
    if reason is None and successor is not None:
        raise Unusable("--superseded-by needs a reason.", remedy="Add --withdraw REASON.")
    from ..provenance.sign.stage import Order, sign_file, sign_folder

    if target.is_dir():
        refuse_key_inside(key, target)
    signer, name = open_signer(
        terminal, key, agent, identity, passphrase_file, sshsig_only=sshsig_only
    )
    if reason is not None:
        return _withdraw(terminal, target, signer, reason, successor, force=force)
    with contextlib.ExitStack() as stack:
        order = Order(
            signer,
            name,
            add=add,
            force=force,
            timestamp=timestamping(authority, terminal),
            progress=_bar(stack) if terminal.shows_progress else None,
        )
        done = sign_folder(target, order) if target.is_dir() else sign_file(target, order)
    terminal.document(done.to_json())
    for file in done.written:
        terminal.product(printable(file))
    terminal.say(_summary(done, signer))
    return ExitCode.HOLDS


def _withdraw(
    terminal: Terminal,
    target: Path,
    signer: Signer,
    reason: str,
    successor: str | None,
    *,
    force: bool,
) -> int:
    from ..provenance.sign.withdrawal import withdraw

    written = withdraw(target, signer, reason, by=successor, force=force)
    names = [os.fsdecode(path) for path in written]
    terminal.document({"schema": "reefkit.withdrawal/1", "written": names, "reason": reason})
    for name in names:
        terminal.product(printable(name))
    terminal.say("Publish both beside the evidence: `reef-archive verify` reports them.")
    return ExitCode.HOLDS


def _bar(stack: contextlib.ExitStack) -> Callable[[int], Callable[[int], object]]:
    def start(total: int) -> Callable[[int], object]:
        if total < _LARGE:
            return lambda _count: None
        bar = click.progressbar(length=total, label="Hashing", file=sys.stderr)
        return stack.enter_context(bar).update

    return start


def _summary(done: SignedPlace, signer: Signer) -> str:
    where = "" if done.slot == 1 else f" as signer {done.slot}"
    text = f"Signed by {printable(done.identity)}{where}, {done.fingerprint}: "
    text += ", ".join(dict.fromkeys(done.schemes)) + f"; {counted(len(done.written), 'new file')}."
    if signer.public.algorithm == "ssh-ed25519" and not signer.only_sshsig:
        text += "\ncosign and model_signing do not take Ed25519: no .sigstore.json, no model.sig."
    elif signer.only_sshsig:
        text += "\nThis is SSHSIG alone: only ssh-keygen and reef-archive verify it."
    return text
