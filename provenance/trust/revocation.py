"""Keys that were revoked: OpenSSH's KRL, which ssh-keygen reads, or a plain list of keys.

ssh-keygen -Q takes only KRLs, ssh-keygen -Y verify -r takes both; so plain lists are read here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...errors import Unusable
from ...records.names import printable
from ..sign.key import PublicKey
from ..sign.public_key import decode_base64, to_openssh
from ..sign.wire import WireReader
from .own_files import read_own_file, shown

_LIMIT = 64 << 20
_MAGIC = b"SSHKRL\n\0"
_AT_ONCE = 200  # keys in one call: command lines are short on Windows
_TIMEOUT = 60
_ANSWER = re.compile(r"([0-9]+)\.pub \(.*\): (ok|REVOKED)")


@dataclass
class Revocations:
    """The lists that the verifier named; each answer is asked for once."""

    _krls: dict[Path, bytes]
    _lists: dict[Path, frozenset[bytes]]
    _known: dict[PublicKey, Path | None] = field(default_factory=dict[PublicKey, "Path | None"])

    @classmethod
    def load(cls, files: Sequence[Path]) -> Revocations:
        """Read the lists. Raises Unusable for one that cannot be read or is broken."""
        krls: dict[Path, bytes] = {}
        lists: dict[Path, frozenset[bytes]] = {}
        for path in files:
            data = read_own_file(path, _LIMIT)
            if data.startswith(_MAGIC):
                krls[path] = data
            else:
                lists[path] = _read_list(data, shown(path))
        found = cls(krls, lists)
        for path in krls:
            found._ask(path, ())
        return found

    def ask(self, keys: Sequence[PublicKey]) -> None:
        """Look many keys up at once. Raises Unusable."""
        unknown = [key for key in dict.fromkeys(keys) if key not in self._known]
        answers: dict[PublicKey, Path | None] = dict.fromkeys(unknown)
        for path, blobs in self._lists.items():
            answers.update({key: path for key in unknown if key.blob in blobs})
        for path in self._krls:
            for start in range(0, len(unknown), _AT_ONCE):
                some = unknown[start : start + _AT_ONCE]
                answers.update(dict.fromkeys(self._ask(path, some), path))
        self._known.update(answers)

    def revoked_in(self, key: PublicKey) -> Path | None:
        """Give the list that revokes a key, or None. Raises Unusable."""
        self.ask([key])
        return self._known[key]

    def _ask(self, path: Path, keys: Sequence[PublicKey]) -> list[PublicKey]:
        program = shutil.which("ssh-keygen")
        if program is None:
            raise Unusable(
                f"{shown(path)} is read by ssh-keygen, which is not installed.",
                remedy="Install OpenSSH, or name a plain list of revoked public keys.",
            )
        with tempfile.TemporaryDirectory(prefix="reefkit-") as folder:
            # The bytes that were read once: the file may change while keys are looked up.
            Path(folder, "krl").write_bytes(self._krls[path])
            names = [f"{number}.pub" for number in range(len(keys))]
            for name, key in zip(names, keys, strict=True):
                Path(folder, name).write_text(to_openssh(key, "key") + "\n", encoding="ascii")
            code, output, complaint = _run([program, "-Q", "-f", "krl", *names], folder, path)
        found = [_ANSWER.fullmatch(line) for line in output.splitlines()]
        answers = [(answer[1], answer[2]) for answer in found if answer is not None]
        revoked = [keys[int(number)] for number, word in answers if word == "REVOKED"]
        complete = [f"{number}.pub" for number, _ in answers] == names
        if not complete or len(answers) != len(found) or code != (1 if revoked else 0):
            raise Unusable(
                f"ssh-keygen cannot read the revocation list {shown(path)}"
                f"{f' ({complaint})' if complaint else ''}.",
                remedy="Get the list from its source again.",
            )
        return revoked


def _run(command: list[str], folder: str, path: Path) -> tuple[int, str, str]:
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        raise Unusable(
            f"ssh-keygen gave no answer about the revocation list {shown(path)}.",
            remedy="Try `ssh-keygen -Q -f LIST KEY.pub`.",
        ) from None
    lines = done.stderr.strip().splitlines()
    complaint = printable(lines[-1][:200]) if lines else ""
    return done.returncode, done.stdout.decode("utf-8", "replace"), complaint


def _read_list(data: bytes, label: str) -> frozenset[bytes]:
    """Read public keys, one a line, of any type: also those that are not accepted any more."""
    if not data:
        raise Unusable(
            f"The revocation list {label} is empty, as a file is that was cut.",
            remedy="Write a line into it that begins with #, if nothing is revoked.",
        )
    blobs: set[bytes] = set()
    for number, line in enumerate(data.split(b"\n"), 1):
        words = line.split(None, 2)
        if words and not words[0].startswith(b"#"):
            blobs.add(_blob(words, f"{label}, line {number},"))
    return frozenset(blobs)


def _blob(words: Sequence[bytes], label: str) -> bytes:
    blob = decode_base64(words[1], label) if len(words) > 1 else b""
    algorithm = WireReader(blob, label).string()
    if algorithm != words[0] or b"-cert-" in algorithm:
        raise Unusable(
            f"{label} is not `KEYTYPE BASE64-KEY`, or is a certificate.",
            remedy="List plain public keys, one a line, or make a KRL with ssh-keygen -k.",
        )
    return blob
