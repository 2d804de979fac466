"""The files of a new key: the private one, and all forms of the public one."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ...errors import Unusable
from ...records.names import printable
from ...records.new_file import refuse_existing
from ...records.tool import tool_identity
from . import minisign
from .identity import allowed_signers_line, check_identity
from .key import ED25519
from .new_files import NewFile
from .new_set import PUBLIC_ENDINGS, abandon, complete, minisign_name, put_set
from .private_key import LocalSigner, generate
from .public_key import fingerprint, to_openssh, to_pem

SCHEMA = "reefkit.key/1"
_PASSPHRASE = range(5, 73)  # what ssh-keygen asks for at least; what bcrypt takes at most


@dataclass(frozen=True)
class KeyPair:
    """A key that was written: where, whose, and its files by what they are for."""

    algorithm: str
    identity: str
    fingerprint: str
    encrypted: bool
    files: dict[str, Path]

    def to_json(self) -> dict[str, object]:
        """Give the document of `keygen --json`."""
        return {
            "schema": SCHEMA,
            "algorithm": self.algorithm,
            "identity": self.identity,
            "fingerprint": self.fingerprint,
            "encrypted": self.encrypted,
            "files": {use: os.fspath(path) for use, path in self.files.items()},
            "tool": tool_identity(),
        }


def make_key(
    out: Path, identity: str, algorithm: str, passphrase: bytes | None, *, force: bool = False
) -> KeyPair:
    """Make a key and write all of its files; nobody else may read the private one.

    A kill at any moment leaves the old files or the new ones, or what the next run completes. A
    folder that is not there is made, with mode 700. Raises DestinationExists, Unusable.
    """
    check_identity(identity)
    _refuse_public_name(out)
    complete(out)
    refuse_existing(out, force=force)
    if passphrase is not None and len(passphrase) not in _PASSPHRASE:
        raise Unusable(
            f"A passphrase has {_PASSPHRASE[0]} to {_PASSPHRASE[-1]} bytes, "
            f"and this one has {len(passphrase)}.",
            remedy="Give another one.",
        )
    try:
        out.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise Unusable(
            f"{printable(os.fsencode(out.parent))} cannot be made: "
            f"{os.strerror(error.errno or 0).lower()}.",
            remedy="Choose another --out.",
        ) from None
    signer = generate(algorithm)
    public = _public_files(out, identity, signer)
    private = NewFile(out, signer.to_file(passphrase), 0o600)
    abandon(out)
    former = () if "minisign" in public else (minisign_name(out),)
    put_set([private, *public.values()], obsolete=former, force=force)
    files = {"private": out, **{use: file.path for use, file in public.items()}}
    key = signer.public
    return KeyPair(key.algorithm, identity, fingerprint(key), passphrase is not None, files)


def _refuse_public_name(out: Path) -> None:
    if out.name.lower().endswith(PUBLIC_ENDINGS):
        raise Unusable(
            f"{printable(os.fsencode(out))} would be taken for a public key, and handed out.",
            remedy="Name the private key without an ending; the public files get theirs.",
        )


def _public_files(out: Path, identity: str, signer: LocalSigner) -> dict[str, NewFile]:
    key = signer.public
    contents = {
        "openssh": (".pub", to_openssh(key, identity).encode() + b"\n"),
        "pem": (".pem", to_pem(key).encode()),
        "allowed_signers": (".allowed_signers", allowed_signers_line(identity, key).encode()),
    }
    if key.algorithm == ED25519:
        contents["minisign"] = (".minisign.pub", minisign.public_key_file(key))
    return {
        use: NewFile(out.with_name(out.name + ending), data)
        for use, (ending, data) in contents.items()
    }
