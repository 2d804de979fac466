"""A folder as a commit has it: bytes of the blobs, not of a checkout that may have changed them.

Nothing of the repository runs: no hook, filter, fsmonitor or remote helper, and objects that a
partial clone lacks are not fetched. Replacement refs are not followed, and the bytes of each blob
are held against its object id, which git itself does only in `git fsck`.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import tempfile
import threading
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, BinaryIO, cast

from ...errors import Unusable
from ...records.names import printable
from ..repository.git import safe_environment
from ..sums.names import size_fault
from .members import Member, MemberKind
from .name_bytes import name_bytes
from .shown import shown
from .twins import twins_among

_SAFE = (
    "--no-replace-objects",
    "--no-optional-locks",
    "--literal-pathspecs",
    *("-c", "core.fsmonitor=false"),
    *("-c", f"core.hooksPath={os.devnull}"),
    *("-c", "protocol.allow=never"),
)
_TIMEOUT_S = 120
_PIECE = 1 << 20
_IN_MEMORY = 16 << 20
_OBJECT_ID = re.compile(rb"[0-9a-f]{40}(?:[0-9a-f]{24})?")
LONGEST_LISTING = 128 << 20  # trees that name one tree many times grow beyond all bounds
_LONGEST_ANSWER = 1 << 20
_FILES, _LINK = (b"100644", b"100755", b"100664"), b"120000"


class GitContent:
    """The members of `path` in a revision. Close it, or use it in a `with`."""

    one_at_a_time = True  # one git process gives all blobs

    def __init__(self, repo: Path, revision: str, path: str = "") -> None:
        """List the tree. Raises Unusable without git, repository, revision or folder in it."""
        self.label = printable(f"{revision}:{path}")
        self._repo = repo
        self._lock = threading.Lock()
        self._batch: subprocess.Popen[bytes] | None = None
        self.commit = self._resolve(f"{_fit(revision)}^{{commit}}", "commit")
        folder = path.strip("/")
        if folder in (".", "..") or folder.startswith(("./", "../")) or "\0" in folder:
            raise self._missing("folder")
        self.tree = self._resolve(f"{self.commit}:{folder}", "folder")
        if self._git("cat-file", "-t", self.tree).strip() != b"tree":
            raise self._missing("folder")
        self._blobs: dict[str, bytes] = {}
        self.members = tuple(self._listed())
        self.findings = twins_among(member.name for member in self.members)

    @contextmanager
    def _opened(self, member: Member) -> Generator[BinaryIO]:
        blob = self._blobs.get(member.name)
        if blob is None:
            raise Unusable(
                f"{shown(member.name)} is a {member.kind.value} or not in {self.label}.",
                remedy="Name a file of the commit.",
            )
        with tempfile.SpooledTemporaryFile(_IN_MEMORY) as file:
            with self._lock:
                self._copy(blob, member, cast("BinaryIO", file))
            file.seek(0)
            yield cast("BinaryIO", file)

    def open(self, member: Member) -> AbstractContextManager[BinaryIO]:
        """Open a blob. Raises Unusable when it is none, is missing or does not have its id."""
        return self._opened(member)

    def close(self) -> None:
        """End the git process."""
        batch, self._batch = self._batch, None
        if batch is not None:
            for pipe in (batch.stdin, batch.stdout):
                if pipe is not None:
                    pipe.close()
            batch.kill()
            batch.wait()

    def __enter__(self) -> GitContent:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def _resolve(self, expression: str, what: str) -> str:
        try:
            found = self._git("rev-parse", "--verify", "--quiet", "--end-of-options", expression)
        except _GitRefused as refused:
            if refused.said:
                raise
            raise self._missing(what) from None
        # Old releases of git repeat the option that ends options.
        identity = found.strip().rpartition(b"\n")[2]
        if not _OBJECT_ID.fullmatch(identity):
            raise self._missing(what)
        return identity.decode()

    def _listed(self) -> list[Member]:
        listing = self._git(
            "ls-tree", "-r", "-z", "-l", "--full-tree", self.tree, most=LONGEST_LISTING
        )
        members: list[Member] = []
        for line in listing.split(b"\0"):
            if not line:
                continue
            head, _, raw_name = line.partition(b"\t")
            mode, kind, blob, size = head.split()
            name = raw_name.decode("utf-8", "surrogateescape")
            if fault := size_fault(name):
                raise Unusable(
                    f"{self.label} holds {shown(name)}, which is {fault}.",
                    remedy="Name another folder in it.",
                )
            if kind != b"blob":
                members.append(Member(name, MemberKind.SPECIAL))  # a submodule
            elif mode == _LINK:
                members.append(Member(name, MemberKind.LINK))
            elif mode in _FILES:
                self._blobs[name] = blob
                members.append(Member(name, MemberKind.FILE, int(size) if size.isdigit() else 0))
            else:
                members.append(Member(name, MemberKind.SPECIAL))
        return sorted(members, key=lambda member: name_bytes(member.name))

    def _copy(self, blob: bytes, member: Member, out: BinaryIO) -> None:
        batch = self._running()
        stdin, stdout = cast("IO[bytes]", batch.stdin), cast("IO[bytes]", batch.stdout)
        try:
            stdin.write(blob + b"\n")
            stdin.flush()
            answer = stdout.readline(200).split()
            if len(answer) != 3 or answer[1] != b"blob" or not answer[2].isdigit():
                raise self._broken(member, "git has not the object")
            left = int(answer[2])
            made = hashlib.new("sha1" if len(blob) == 40 else "sha256", usedforsecurity=False)
            made.update(b"blob %d\0" % left)
            while left:
                piece = stdout.read(min(_PIECE, left))
                if not piece:
                    raise self._broken(member, "git stopped within it")
                made.update(piece)
                out.write(piece)
                left -= len(piece)
            stdout.read(1)
        except OSError:
            raise self._broken(member, "git stopped") from None
        except Unusable:
            self.close()
            raise
        if made.hexdigest() != blob.decode():
            raise self._broken(member, "its bytes are not those of its object id")

    def _broken(self, member: Member, fault: str) -> Unusable:
        return Unusable(
            f"{shown(member.name)} cannot be read from {self.label}: {fault}.",
            remedy="Run `git fsck`, or fetch the commit anew.",
        )

    def _running(self) -> subprocess.Popen[bytes]:
        if self._batch is None:
            self._batch = self._start("cat-file", "--batch", stdin=subprocess.PIPE)
        return self._batch

    def _git(self, *arguments: str, most: int = _LONGEST_ANSWER) -> bytes:
        with tempfile.TemporaryFile() as errors:
            process = self._start(*arguments, stderr=errors.fileno())
            stdout = cast("IO[bytes]", process.stdout)
            clock = threading.Timer(_TIMEOUT_S, process.kill)
            clock.start()
            try:
                answer = stdout.read(most + 1)
                if len(answer) > most:
                    process.kill()
                code = process.wait()
            finally:
                clock.cancel()
                stdout.close()
            if len(answer) > most:
                raise Unusable(f"{self.label} holds too many files.", remedy="Name a folder in it.")
            if code:
                errors.seek(0)
                said = errors.read(4000).decode("utf-8", "surrogateescape").strip().splitlines()
                raise _GitRefused(said[0] if said else "")
        return answer

    def _start(
        self, *arguments: str, stdin: int = subprocess.DEVNULL, stderr: int = subprocess.DEVNULL
    ) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                ["git", *_SAFE, *arguments],
                cwd=self._repo,
                env=safe_environment(),
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=stderr,
            )
        except FileNotFoundError:
            if not os.path.isdir(self._repo):
                raise self._no_repository() from None
            raise Unusable("git is not installed.", remedy="Install it first.") from None
        except (NotADirectoryError, PermissionError, ValueError):
            raise self._no_repository() from None

    def _no_repository(self) -> Unusable:
        return Unusable(
            f"{printable(os.fspath(self._repo))} is no folder that can be entered.",
            remedy="Name a git repository.",
        )

    def _missing(self, what: str) -> Unusable:
        return Unusable(
            f"There is no {what} {self.label} in {printable(os.fspath(self._repo))}.",
            remedy="Fetch the revision, or name another one.",
        )


class _GitRefused(Unusable):
    def __init__(self, said: str) -> None:
        super().__init__(
            f"git refused: {printable(said) or 'it gives no reason'}.",
            remedy="Name a repository that git trusts (`git status` works in it).",
        )
        self.said = said


def _fit(revision: str) -> str:
    unfit = not revision or revision.startswith("-") or ":" in revision
    if unfit or not revision.isprintable() or len(revision) > 1000:
        raise Unusable(
            f"`{printable(revision[:100])}` is no name of a revision.",
            remedy="Give a commit id, a branch or a tag.",
        )
    return revision
