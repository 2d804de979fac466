"""Keys as the formats here need them: an OpenSSH name and blob, and raw signatures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

P256 = "ecdsa-sha2-nistp256"
ED25519 = "ssh-ed25519"


@dataclass(frozen=True)
class PublicKey:
    """A public key: OpenSSH's name of its type, and its blob (RFC 4253, 6.6; RFC 5656, 3.1)."""

    algorithm: str
    blob: bytes


class Signer(Protocol):
    """A private key that can sign, wherever it is kept."""

    @property
    def public(self) -> PublicKey:
        """The public half."""
        ...

    @property
    def only_sshsig(self) -> bool:
        """Tell whether it signs nothing but SSHSIG: FIDO keys add a counter to what is signed."""
        ...

    def sign(self, data: bytes) -> bytes:
        """Sign as the blob of an OpenSSH signature has it: `string algorithm, string signature…`.

        ECDSA is over SHA-256 of `data`, Ed25519 over `data` itself. Raises NotPermitted, Unusable.
        """
        ...


@dataclass(frozen=True)
class SshsigOnly:
    """A signer of which nothing but SSHSIG is wanted."""

    signer: Signer

    @property
    def public(self) -> PublicKey:
        """Give the public half."""
        return self.signer.public

    @property
    def only_sshsig(self) -> bool:
        """Tell that it signs nothing else."""
        return True

    def sign(self, data: bytes) -> bytes:
        """Sign. Raises what the signer raises."""
        return self.signer.sign(data)
