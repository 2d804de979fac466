"""Keys and signatures made by ssh-keygen, and what it says of them."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from reefkit.provenance.sign.key import PublicKey
from reefkit.provenance.sign.public_key import from_openssh

NAMESPACE = "reefkit-sums"
MESSAGE = b"what was signed\n"


@dataclass(frozen=True)
class KeyFile:
    """A private key and what is next to it."""

    path: Path

    @property
    def line(self) -> str:
        """TYPE BASE64, as allowed_signers has it."""
        return " ".join(self.path.with_name(f"{self.path.name}.pub").read_text().split()[:2])

    @property
    def public(self) -> PublicKey:
        return from_openssh(self.line)


def make_key(folder: Path, name: str, algorithm: str = "ed25519") -> KeyFile:
    path = folder / name
    command = ["ssh-keygen", "-q", "-t", algorithm, "-N", "", "-C", name, "-f", str(path)]
    if algorithm == "rsa":
        command += ["-b", "2048"]
    subprocess.run(command, check=True)
    return KeyFile(path)


def sign(key: KeyFile, namespace: str = NAMESPACE) -> Path:
    """Sign MESSAGE; the signature lies next to the key."""
    command = ["ssh-keygen", "-q", "-Y", "sign", "-f", str(key.path), "-n", namespace]
    signature = key.path.with_name(f"{key.path.name}.{namespace}.sig")
    done = subprocess.run(command, input=MESSAGE, capture_output=True, check=True)
    signature.write_bytes(done.stdout)
    return signature


def accepts(
    signers: Path,
    signature: Path,
    principal: str,
    *options: str,
    namespace: str = NAMESPACE,
    timezone: str = "UTC",
) -> bool:
    """Tell whether ssh-keygen accepts the signature of MESSAGE."""
    command = ["ssh-keygen", "-Y", "verify", "-f", str(signers), "-I", principal]
    command += ["-n", namespace, "-s", str(signature), *options]
    environment = {**os.environ, "TZ": timezone}
    done = subprocess.run(command, input=MESSAGE, capture_output=True, env=environment, check=False)
    assert done.returncode in (0, 255), done
    return done.returncode == 0
