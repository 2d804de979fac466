"""Signed evidence held in memory, and the stock tools that judge it once it lies in a folder."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from reefkit.errors import Unusable
from reefkit.provenance.sign import minisign
from reefkit.provenance.sign.carriers import SUMS, carrier_of, read_signature
from reefkit.provenance.sign.identity import allowed_signers_line
from reefkit.provenance.sign.key import PublicKey, Signer
from reefkit.provenance.sign.private_key import LocalSigner, generate
from reefkit.provenance.sign.public_key import to_pem
from reefkit.provenance.sign.signatures import sign_sums
from reefkit.provenance.sign.sshsig import SUMS_NAMESPACE

IDENTITY = "evidence@lab"
CONTENT = {
    "a.bin": b"hello\n",
    "logs/rank0.log": b"step 8 reward 175.69\n",
    "logs/rank1.log": b"step 8 reward 171.02\n",
    "run.json": b'{"schema": "reefkit.run/1"}\n',
}
INTEROP = Path(__file__).resolve().parents[1] / "interop"


def signer_of(algorithm: str, name: str = "the signer") -> LocalSigner:
    """Give a key that stays the same throughout a run of the tests."""
    return _signer(algorithm, name)


@cache
def _signer(algorithm: str, _name: str) -> LocalSigner:
    return generate(algorithm)


def digests_of(content: Mapping[str, bytes]) -> dict[str, str]:
    return {name: sha256(data).hexdigest() for name, data in content.items()}


def sums_of(content: Mapping[str, bytes]) -> bytes:
    lines = sorted((name.encode(), digest) for name, digest in digests_of(content).items())
    return b"".join(digest.encode() + b"  " + name + b"\n" for name, digest in lines)


def signed(signer: Signer, content: Mapping[str, bytes] = CONTENT) -> dict[str, bytes]:
    """Give all files of a signed folder."""
    sums = sums_of(content)
    return {**content, SUMS: sums, **sign_sums(sums, digests_of(content), signer)}


def put(folder: Path, files: Mapping[str, bytes]) -> Path:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def accepted(files: Mapping[str, bytes], name: str, key: PublicKey) -> bool:
    """Tell whether we accept one signature of a package, as a verification would."""
    carrier = carrier_of(name)
    assert carrier is not None
    try:
        found = read_signature(carrier, name, files[name])
    except Unusable:
        return False
    if found.fault is not None or found.namespace not in (None, SUMS_NAMESPACE):
        return False
    if not found.verify(key, files[SUMS]):
        return False
    lines = (line.decode().split("  ", 1) for line in files[SUMS].splitlines())
    return found.files is None or found.files == {path: digest for digest, path in lines}


def ran(*arguments: str | Path, stdin: bytes = b"", cwd: Path | None = None) -> bool:
    done = subprocess.run(
        [str(each) for each in arguments],
        input=stdin,
        capture_output=True,
        cwd=cwd,
        timeout=60,
        check=False,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
    )
    return done.returncode == 0


def model_signing(module: str) -> Any:
    """Give a module of model_signing, which has half of its types."""
    return import_module(f"model_signing.{module}")


def demand_tool(name: str) -> None:
    if shutil.which(name) is None:
        pytest.skip(f"needs {name}")


@dataclass(frozen=True)
class Stock:
    """The stock tools, with the verifier's own copies of a key."""

    home: Path
    key: PublicKey

    def __post_init__(self) -> None:
        self.home.mkdir(exist_ok=True)
        (self.home / "signers").write_text(allowed_signers_line(IDENTITY, self.key))
        (self.home / "key.pem").write_text(to_pem(self.key))
        if self.key.algorithm == "ssh-ed25519":
            (self.home / "minisign.pub").write_bytes(minisign.public_key_file(self.key))

    def ssh_keygen(self, folder: Path) -> bool:
        demand_tool("ssh-keygen")
        return ran(
            "ssh-keygen", "-Y", "verify", "-f", self.home / "signers", "-I", IDENTITY,
            "-n", SUMS_NAMESPACE, "-s", folder / "SHA256SUMS.sig",
            stdin=(folder / SUMS).read_bytes(),
        )  # fmt: skip

    def openssl(self, folder: Path) -> bool:
        demand_tool("openssl")
        if self.key.algorithm == "ssh-ed25519":
            return ran(
                "openssl", "pkeyutl", "-verify", "-pubin", "-inkey", self.home / "key.pem",
                "-rawin", "-in", folder / SUMS, "-sigfile", folder / "SHA256SUMS.ed25519.raw",
            )  # fmt: skip
        return ran(
            "openssl", "dgst", "-sha256", "-verify", self.home / "key.pem",
            "-signature", folder / "SHA256SUMS.p256.der", folder / SUMS,
        )  # fmt: skip

    def minisign(self, folder: Path) -> bool:
        demand_tool("minisign")
        return ran(
            "minisign", "-V", "-p", self.home / "minisign.pub",
            "-m", folder / SUMS, "-x", folder / "SHA256SUMS.minisig",
        )  # fmt: skip

    def model_signing(self, folder: Path) -> bool:
        """Ask model_signing, in this process: a start of its own takes a second."""
        hashing, verifying = model_signing("hashing"), model_signing("verifying")
        config = verifying.Config().use_elliptic_key_verifier(public_key=self.home / "key.pem")
        config.set_hashing_config(
            hashing.Config().set_ignored_paths(paths=[], ignore_git_paths=False)
        )
        try:
            config.verify(folder, folder / "model.sig")
        except Exception:  # what it raises for a damaged file is of any kind
            return False
        return True

    def sigstore(self, packages: Sequence[Mapping[str, bytes]], name: str) -> list[bool]:
        """Ask @sigstore/verify about the bundle of each package, in one process."""
        cases = [
            {
                "key": to_pem(self.key),
                "bundle": files[name].decode("utf-8", "replace"),
                "artifact": base64.b64encode(files[SUMS]).decode(),
            }
            for files in packages
        ]
        return [answer is None for answer in ask_node(cases)]


def node_modules() -> Path:
    """Find the npm packages, or skip."""
    demand_tool("node")
    named = os.environ.get("REEFKIT_NODE_MODULES")
    place = Path(named) if named else INTEROP / "node_modules"
    if not (place / "@sigstore" / "verify").is_dir():
        pytest.skip("needs `npm ci` in tests/interop, or REEFKIT_NODE_MODULES")
    return place


def ask_node(cases: Sequence[Mapping[str, object]]) -> list[str | None]:
    done = subprocess.run(
        ["node", str(INTEROP / "verify.mjs"), str(node_modules())],
        input=json.dumps(cases).encode(),
        capture_output=True,
        timeout=60,
        check=True,
    )
    answers: list[str | None] = json.loads(done.stdout)
    return answers
