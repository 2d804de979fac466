"""`reef-archive keygen`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ..errors import ExitCode
from ..records.names import printable
from .frame import OutPath, Terminal, declare, with_options
from .key_options import given_passphrase, passphrase_option, say_completed


@declare(
    "keygen",
    help_text="""Make a key pair to sign evidence with, and the line by which others trust it.

    \b
    OUT                     the private key, mode 600; nobody else ever needs it
    OUT.pub                 the public key, for OpenSSH
    OUT.pem                 the public key, for openssl, cosign and model_signing
    OUT.allowed_signers     what verifiers put into their own allowed_signers file
    OUT.minisign.pub        the public key, for minisign (ed25519 only)

    ECDSA P-256 is what every verifier accepts; with Ed25519 there is neither a sigstore bundle nor
    a model.sig, and there are signatures for minisign instead.

    The passphrase comes from --passphrase-file, REEFKIT_PASSPHRASE or, with --ask, the terminal;
    without one the file's mode is all that guards the key.
    """,
    examples="""
reef-archive keygen --out ~/.config/reefkit/lab --identity evidence@lab --ask
reef-archive keygen --out lab --identity evidence@lab --type ed25519
""",
)
@with_options(
    click.option("--out", "-o", metavar="DIR/NAME", required=True,
                 type=OutPath(), help="Where the private key is written."),
    click.option("--identity", metavar="NAME", required=True,
                 help="By which name others will trust the key, as in evidence@lab."),
    click.option("--type", "algorithm", type=click.Choice(["p256", "ed25519"]), default="p256",
                 show_default=True, help="The type of the key."),
    click.option("--ask", is_flag=True, help="Ask for a passphrase on the terminal."),
    passphrase_option,
    click.option("--force", is_flag=True, help="Replace a key that is there."),
)  # fmt: skip
def command(
    terminal: Terminal,
    out: Path,
    identity: str,
    algorithm: str,
    ask: bool,
    passphrase_file: Path | None,
    force: bool,
) -> int:
    """Write the key's files and say what to hand out."""
    from ..provenance.sign.key_files import make_key
    from ..provenance.sign.new_set import complete

    say_completed(terminal, complete(out))
    passphrase = _asked() if ask else given_passphrase(passphrase_file)
    pair = make_key(out, identity, algorithm, passphrase, force=force)
    terminal.document(pair.to_json())
    terminal.product(pair.fingerprint)
    names = "\n".join(f"  {printable(str(path))}" for path in pair.files.values())
    terminal.say(f"Wrote:\n{names}")
    trust = printable(str(pair.files["allowed_signers"]))
    terminal.say(f"Verifiers trust it by the line in {trust}; hand them that.")
    if not pair.encrypted:
        terminal.say("The private key has no passphrase: whoever can read the file can sign.")
    return ExitCode.HOLDS


def _asked() -> bytes | None:
    if not sys.stdin.isatty():
        raise click.UsageError("--ask needs a terminal to ask on.")
    answer: str = click.prompt("Passphrase", hide_input=True, confirmation_prompt=True, err=True)
    return answer.encode()
