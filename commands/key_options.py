"""How commands are told of a private key: a file or an agent, a passphrase, an identity."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import Unusable
from ..records.names import printable

if TYPE_CHECKING:
    from ..provenance.sign.key import Signer
    from .frame import Terminal

PASSPHRASE = "REEFKIT_PASSPHRASE"
_LIMIT = 4096

passphrase_option = click.option(
    "--passphrase-file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help=f"Take the key's passphrase from the first line of FILE; else from {PASSPHRASE}.",
)
key_options: tuple[Callable[[Callable[..., int]], Callable[..., int]], ...] = (
    click.option(
        "--key",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="The private key; with --agent the public one that says which.",
    ),
    click.option("--agent", is_flag=True, help="Sign with a key that an ssh-agent holds."),
    click.option(
        "--identity",
        metavar="NAME",
        help="By which name others trust the key.  [default: as given to keygen]",
    ),
    passphrase_option,
    click.option(
        "--sshsig-only",
        is_flag=True,
        help="Only sign for ssh-keygen: what an agent can do for more than about 2,600 files.",
    ),
)


def open_signer(
    terminal: Terminal,
    key: Path | None,
    agent: bool,
    identity: str | None,
    passphrase_file: Path | None,
    *,
    sshsig_only: bool,
) -> tuple[Signer, str]:
    """Open the key that the options name, and find the identity.

    A key whose making was cut off is completed first. Raises Unusable, NotPermitted.
    """
    from ..provenance.sign.identity import check_identity, identity_beside
    from ..provenance.sign.key import SshsigOnly
    from ..provenance.sign.new_set import complete

    if identity is not None:
        check_identity(identity)
    if key is not None:
        say_completed(terminal, complete(_private_name(key)))
    signer = _agent(key) if agent else _local(key, passphrase_file)
    if identity is None and key is not None:
        identity = identity_beside(_private_name(key), signer.public)
    if identity is None:
        raise Unusable(
            "Nothing says by which name others trust the key.",
            remedy="Give the name with --identity, as it stands in their allowed_signers.",
        )
    return (SshsigOnly(signer) if sshsig_only else signer), identity


def say_completed(terminal: Terminal, completed: Sequence[Path]) -> None:
    """Tell of a key whose making was cut off, and that is whole now."""
    if completed:
        names = ", ".join(printable(os.fsencode(path)) for path in completed)
        terminal.warn(f"A keygen was cut off once its private key was there: completed {names}.")


def refuse_key_inside(key: Path | None, folder: Path) -> None:
    """Refuse a folder that holds the private key: it would be handed out. Raises Unusable."""
    if key is not None and _private_name(key).resolve().is_relative_to(folder.resolve()):
        raise Unusable(
            f"The private key {printable(str(_private_name(key)))} lies in the folder that is "
            "handed out.",
            remedy="Move it to where nobody else looks, as in ~/.config/reefkit.",
        )


def _private_name(key: Path) -> Path:
    """Give the name of the private key's file, also for that of the public one."""
    return key.with_suffix("") if key.suffix == ".pub" else key


def _agent(key: Path | None) -> Signer:
    from ..provenance.sign.agent import agent_signer
    from ..provenance.sign.public_key import LINE_LIMIT, from_openssh

    if key is None:
        return agent_signer(None)
    data = _read(key, LINE_LIMIT + 1, "Name the public key of one that the agent holds: NAME.pub.")
    return agent_signer(from_openssh(data, printable(str(key))))


def _local(key: Path | None, passphrase_file: Path | None) -> Signer:
    from ..provenance.sign.private_key import load_private_key

    if key is None:
        raise Unusable(
            "No key was named to sign with.",
            remedy="Give --key FILE (`reef-archive keygen` makes one), or --agent.",
        )
    return load_private_key(key, lambda: ask_passphrase(key, passphrase_file))


def ask_passphrase(key: Path, file: Path | None) -> bytes:
    """Get the passphrase of an existing key. Raises Unusable when nobody can be asked."""
    given = given_passphrase(file)
    if given is not None:
        return given
    label = printable(str(key))
    if not sys.stdin.isatty():
        raise Unusable(
            f"{label} is encrypted, and there is no terminal to ask for its passphrase.",
            remedy=f"Give --passphrase-file FILE, or set {PASSPHRASE}.",
        )
    answer: str = click.prompt(f"Passphrase for {label}", hide_input=True, err=True)
    return answer.encode()


def given_passphrase(file: Path | None) -> bytes | None:
    """Take the passphrase from a file or the environment; None where neither has one."""
    if file is None:
        value = os.environ.get(PASSPHRASE)
        if value == "":
            raise Unusable(
                f"{PASSPHRASE} is set, but empty.", remedy="Put the passphrase there, or unset it."
            )
        return None if value is None else os.fsencode(value)
    data = _read(file, _LIMIT, "Name the file whose first line is the passphrase.")
    line = data.partition(b"\n")[0].rstrip(b"\r")
    if not line:
        raise Unusable(
            f"The first line of {printable(str(file))} is empty.",
            remedy="Put the passphrase there.",
        )
    return line


def _read(path: Path, limit: int, remedy: str) -> bytes:
    """Read the start of a file, or of a pipe, that an option names. Raises Unusable."""
    try:
        with open(path, "rb") as file:
            return file.read(limit)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no file can be called so"
        raise Unusable(
            f"{printable(os.fsencode(path))} cannot be read: {str(reason).lower()}.", remedy=remedy
        ) from None


def timestamping(url: str | None, terminal: Terminal) -> Callable[[bytes], bytes] | None:
    """Give what asks the authority at a URL for a timestamp; None where none is asked for."""
    if url is None:
        return None
    from ..provenance.sign.timestamp import fetch

    if url.lower().startswith("http:"):
        terminal.say("The way to the authority is not encrypted; what it answers is signed.")
    return lambda sums: fetch(url, sums)
