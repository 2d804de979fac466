"""Signed packages in folders, and what a verification says of them."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Set
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from signed_evidence import CONTENT, IDENTITY, digests_of, put, signed, signer_of, sums_of

from reefkit.provenance.sign.carriers import SUMS
from reefkit.provenance.sign.identity import allowed_signers_line
from reefkit.provenance.sign.key import P256, Signer
from reefkit.provenance.sign.signatures import sign_sums
from reefkit.provenance.verification.result import Verification
from reefkit.provenance.verify import Request, verify

FILES = {name: data for name, data in CONTENT.items() if name != "run.json"}


@dataclass(frozen=True)
class Told:
    """A verification's outcome, in the words that tests compare."""

    verdict: str
    kinds: Set[str]
    result: Verification

    def said_of(self, path: str | None) -> str:
        return " ".join(each.diagnosis for each in self.result.findings if each.path == path)


def key() -> Signer:
    return signer_of(P256)


def trust(folder: Path, *signers: Signer, identity: str = IDENTITY) -> Path:
    """Write the verifier's own file, outside of every package."""
    path = folder / "trusted_signers"
    path.write_text("".join(allowed_signers_line(identity, each.public) for each in signers))
    return path


def package(folder: Path, files: Mapping[str, bytes] = FILES, *, by: Signer | None = None) -> Path:
    return put(folder, signed(by or key(), files))


def add_signature(folder: Path, by: Signer, slot: int) -> None:
    data = (folder / SUMS).read_bytes()
    files = {line.split("  ", 1)[1]: line[:64] for line in data.decode().splitlines()}
    put(folder, sign_sums(data, files, by, slot))


def listed(folder: Path, files: Mapping[str, bytes] = FILES) -> Path:
    """Write files with an unsigned list."""
    return put(folder, {**files, SUMS: sums_of(files)})


def tell(target: Path | str, signers: Path | None = None, **more: Any) -> Told:
    result = verify(Request(str(target), signers=signers, **more))
    return Told(
        result.verdict.value,
        frozenset(each.kind.value for each in result.findings),
        result,
    )


def zipped(path: Path, files: Mapping[str, bytes]) -> Path:
    """Make a zip as other tools do, but without anything that is remarkable."""
    with zipfile.ZipFile(path, "w") as archive:
        for name in sorted(files, key=str.encode):
            info = zipfile.ZipInfo(name)
            info.external_attr = 0o100644 << 16
            archive.writestr(info, files[name])
    return path


def digest(data: bytes) -> str:
    return sha256(data).hexdigest()


__all__ = ["digests_of", "put", "signed", "signer_of", "sums_of"]
