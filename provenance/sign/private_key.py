"""Private keys in files: made, read and used. They never leave the object that holds them."""

from __future__ import annotations

import base64
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from ...errors import NotPermitted, Unusable
from ...records.names import printable
from .der import signature_blob, ssh_from_der
from .key import ED25519, P256, PublicKey
from .public_key import from_crypto, hash_of_curve
from .wire import WireReader

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    PrivateKey: TypeAlias = (
        ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey
    )

_LIMIT = 64 << 10
_OPENSSH = b"-----BEGIN OPENSSH PRIVATE KEY-----"
_OPENSSH_MAGIC = b"openssh-key-v1\0"
_CREATED = {"p256": P256, "ed25519": ED25519}


@dataclass(frozen=True)
class LocalSigner:
    """A private key held in this process; the same data gives the same signature each time.

    Other keys than P-256 and Ed25519 sign nothing but SSHSIG: no other form here has them all.
    """

    public: PublicKey
    _key: PrivateKey = field(repr=False)

    @property
    def only_sshsig(self) -> bool:
        """Tell whether it signs nothing but SSHSIG."""
        return self.public.algorithm not in (P256, ED25519)

    def sign(self, data: bytes) -> bytes:
        """Sign as the blob of an OpenSSH signature has it. Raises Unusable."""
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding
        from cryptography.hazmat.primitives.hashes import SHA512

        if isinstance(self._key, ed25519.Ed25519PrivateKey):
            return signature_blob(ED25519, self._key.sign(data))
        if isinstance(self._key, ec.EllipticCurvePrivateKey):
            digest = hash_of_curve(self._key.public_key())
            try:
                der = self._key.sign(data, ec.ECDSA(digest, deterministic_signing=True))
            except UnsupportedAlgorithm:
                raise Unusable(
                    "The installed `cryptography` cannot make reproducible ECDSA signatures.",
                    remedy="Install its wheel, or one built with OpenSSL 3.2 or newer.",
                ) from None
            return signature_blob(self.public.algorithm, ssh_from_der(der))
        return signature_blob("rsa-sha2-512", self._key.sign(data, padding.PKCS1v15(), SHA512()))

    def to_file(self, passphrase: bytes | None) -> bytes:
        """Give the content of a private key file, encrypted when there is a passphrase.

        P-256 as PKCS#8, which ssh-keygen, ssh-add, openssl and model_signing read; Ed25519 as
        OpenSSH has it, because ssh-keygen 9.2 reads no other form of it.
        """
        from cryptography.hazmat.primitives.serialization import (
            BestAvailableEncryption,
            Encoding,
            NoEncryption,
            PrivateFormat,
        )

        form = PrivateFormat.PKCS8 if self.public.algorithm == P256 else PrivateFormat.OpenSSH
        protection = BestAvailableEncryption(passphrase) if passphrase else NoEncryption()
        return self._key.private_bytes(Encoding.PEM, form, protection)


def generate(algorithm: str) -> LocalSigner:
    """Make a new key: `p256` or `ed25519`, or OpenSSH's name of the type. Raises Unusable."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519

    wanted = _CREATED.get(algorithm, algorithm)
    if wanted == P256:
        return _signer(ec.generate_private_key(ec.SECP256R1()), "The key")
    if wanted == ED25519:
        return _signer(ed25519.Ed25519PrivateKey.generate(), "The key")
    raise Unusable(
        f"Keys of the type {printable(algorithm)} are not made here.",
        remedy="Make p256, which every verifier accepts, or ed25519.",
    )


def load_private_key(path: Path, passphrase: Callable[[], bytes]) -> LocalSigner:
    """Read a private key: PKCS#8, SEC1 or PKCS#1 in PEM, or OpenSSH's form, encrypted or not.

    `passphrase` is called only for an encrypted key. The file must belong to the user and be
    closed to all others. Raises Unusable, NotPermitted, OSError.
    """
    label = printable(str(path))
    data = _read(path, label)
    return _signer(_parse(data, passphrase() if _is_encrypted(data) else None, label), label)


def _signer(key: object, label: str) -> LocalSigner:
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    if not isinstance(
        key, (ec.EllipticCurvePrivateKey, ed25519.Ed25519PrivateKey, rsa.RSAPrivateKey)
    ):
        raise Unusable(
            f"{label} is a private key of a type that is not accepted.",
            remedy="Make one with `reef-archive keygen`.",
        )
    return LocalSigner(from_crypto(key.public_key(), label), key)


def _read(path: Path, label: str) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except FileNotFoundError:
        raise Unusable(
            f"There is no private key {label}.",
            remedy="Check the name, or make one: reef-archive keygen --out FILE --identity NAME.",
        ) from None
    except PermissionError:  # on Windows also for a folder
        raise NotPermitted(f"{label} may not be read.", remedy="Run as its owner.") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no file can be called so"
        raise Unusable(
            f"The private key {label} cannot be read: {str(reason).lower()}.",
            remedy="Give the private key's file.",
        ) from None
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        os.close(fd)
        what = "a folder" if stat.S_ISDIR(status.st_mode) else "not a file"
        raise Unusable(f"{label} is {what}.", remedy="Give the private key's file.")
    with open(fd, "rb") as file:
        _refuse_open_to_others(status, label)
        data = file.read(_LIMIT + 1)
    if len(data) > _LIMIT:
        raise Unusable(f"{label} is too large for a private key.", remedy="Give the key's file.")
    return data


def _refuse_open_to_others(status: os.stat_result, label: str) -> None:
    if os.name != "posix":
        return
    if status.st_uid != os.geteuid():
        raise Unusable(
            f"The private key {label} belongs to another user.",
            remedy="Run as its owner, or make a copy that is yours, with mode 600.",
        )
    if status.st_mode & 0o077:
        raise Unusable(
            f"Others may read the private key {label}: its mode is {status.st_mode & 0o777:04o}.",
            remedy=f"chmod 600 {label}",
        )


def _is_encrypted(data: bytes) -> bool:
    """Tell whether a passphrase is needed; versions of `cryptography` differ in how they say it."""
    head, _, body = data.strip().partition(b"\n")
    if head.strip() != _OPENSSH:
        return b"ENCRYPTED" in data
    try:
        start = base64.b64decode(b"".join(body.split()[:3])[:64])
        return WireReader(start.removeprefix(_OPENSSH_MAGIC), "The key").text() != "none"
    except (ValueError, Unusable):
        return False


def _parse(data: bytes, passphrase: bytes | None, label: str) -> object:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import (
        load_pem_private_key,
        load_ssh_private_key,
    )

    openssh = data.lstrip().startswith(_OPENSSH)
    try:
        return (load_ssh_private_key if openssh else load_pem_private_key)(data, passphrase)
    except UnsupportedAlgorithm:
        raise Unusable(
            f"{label} is a private key of a type that cannot be used here.",
            remedy="A security key signs through an ssh-agent: ssh-add it, and use --agent.",
        ) from None
    except (TypeError, ValueError):  # TypeError: the passphrase is empty
        if passphrase is not None:
            raise _wrong_passphrase(label) from None
        raise Unusable(
            f"{label} is not a private key in PEM or in OpenSSH's form.",
            remedy="Give the file that `reef-archive keygen` or `ssh-keygen` wrote, not the .pub.",
        ) from None


def _wrong_passphrase(label: str) -> Unusable:
    return Unusable(f"The passphrase does not open {label}.", remedy="Try again.")
