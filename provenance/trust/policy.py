"""A verifier's policy: how many of whom must have signed, and what must be there.

A file in TOML. Every key is known or the file is refused; paths are relative to its folder:

    schema = "reefkit.policy/1"
    signers = "allowed_signers"
    revoked = ["revoked.krl"]
    principals = ["alice@lab", "bob@lab", "carol@lab"]
    threshold = 2
    timestamp_authorities = ["tsa-ca.pem"]
    require = ["metrics.json"]
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ...errors import Unusable
from ...records.names import printable
from .own_files import read_own_file, shown
from .pattern_list import is_literal

SCHEMA = "reefkit.policy/1"
_LIMIT = 1 << 20
_KEYS = {
    "schema",
    "signers",
    "revoked",
    "principals",
    "threshold",
    "timestamp_authorities",
    "require",
}


@dataclass(frozen=True)
class Policy:
    """What the verifier asks for.

    `principals` are those who may sign; none: everybody in the signers file may. `threshold` of
    them must have, each with another key. `require` are names that must be among the verified.
    """

    path: Path
    signers: Path | None = None
    revoked: tuple[Path, ...] = ()
    principals: tuple[str, ...] = ()
    threshold: int = 1
    timestamp_authorities: tuple[Path, ...] = ()
    require: tuple[str, ...] = ()


def read_policy(path: Path) -> Policy:
    """Read a policy file. Raises Unusable for all that is not understood."""
    return parse_policy(read_own_file(path, _LIMIT), path)


def parse_policy(data: bytes, path: Path) -> Policy:
    """Read the bytes of the policy file that is at `path`. Raises Unusable."""
    document = _parse_toml(data, path)
    reader = _Reader(document, path)
    if document.get("schema") != SCHEMA:
        raise reader.refused(f'does not say schema = "{SCHEMA}"')
    unknown = sorted(set(document) - _KEYS)
    if unknown:
        raise reader.refused(f"holds a key that is not known: {printable(unknown[0][:64])}")
    principals = reader.strings("principals")
    for principal in principals:
        if not is_literal(principal) or "," in principal:
            raise reader.refused(
                f"names a principal that is a pattern: {printable(principal[:64])}"
            )
    policy = Policy(
        path=path,
        signers=reader.path("signers"),
        revoked=reader.paths("revoked"),
        principals=principals,
        threshold=reader.threshold(),
        timestamp_authorities=reader.paths("timestamp_authorities"),
        require=reader.strings("require"),
    )
    if principals and policy.threshold > len(principals):
        raise reader.refused(
            f"asks for {policy.threshold} signers and names only {len(principals)} principals"
        )
    return policy


def _parse_toml(data: bytes, path: Path) -> Mapping[str, object]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        fault = printable(str(error)[:200]) or "nested too deeply"
        raise Unusable(
            f"The policy {shown(path)} is not TOML: {fault}.", remedy="Correct the file."
        ) from None


@dataclass(frozen=True)
class _Reader:
    document: Mapping[str, object]
    file: Path

    def refused(self, fault: str) -> Unusable:
        return Unusable(
            f"The policy {shown(self.file)} {fault}.",
            remedy=f"The keys are {', '.join(sorted(_KEYS))}.",
        )

    def strings(self, key: str) -> tuple[str, ...]:
        value = self.document.get(key)
        if value is None:
            return ()
        if not isinstance(value, list) or not value:
            raise self.refused(f"gives {key} as something else than a list of strings")
        found: list[str] = []
        for item in value:  # pyright: ignore[reportUnknownVariableType]
            if not isinstance(item, str) or not item or "\0" in item or item in found:
                raise self.refused(f"gives {key} an item that is empty, double or no string")
            found.append(item)
        return tuple(found)

    def path(self, key: str) -> Path | None:
        value = self.document.get(key)
        if value is None:
            return None
        if not isinstance(value, str) or not value or "\0" in value:
            raise self.refused(f"gives {key} as something else than a path")
        return self.file.parent / value

    def paths(self, key: str) -> tuple[Path, ...]:
        return tuple(self.file.parent / name for name in self.strings(key))

    def threshold(self) -> int:
        value = self.document.get("threshold", 1)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self.refused("gives a threshold that is no number from 1 up")
        return value
