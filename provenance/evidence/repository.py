"""Which code a work tree holds: commit, tree, and whether tracked files differ from them.

git is asked with its environment scrubbed; hooks, file-system monitors, external diffs and text
converters do not run. Filters that the user set up (Git LFS) do: without them no file that they
convert could be told from a changed one.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from ...errors import Unusable
from ..repository.git import git

_OBJECT_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_DIFF = (
    "-c", "diff.noprefix=false", "-c", "diff.mnemonicPrefix=false",
    "-c", "core.quotePath=true", "-c", "diff.suppressBlankEmpty=false",
    "diff", "-O/dev/null", "--no-ext-diff", "--no-textconv", "--no-color", "--no-renames",
    "--full-index",
    "--unified=3", "--diff-algorithm=myers", "--no-indent-heuristic", "--inter-hunk-context=0",
    "--ignore-submodules=none", "--submodule=short", "HEAD", "--",
)  # fmt: skip


@dataclass(frozen=True)
class RepositoryState:
    """The code of a work tree.

    `dirty` is about tracked files, None where that is not known; `diff_sha256` is that of the
    tracked changes as a diff with full object ids, when there are any. `untracked` counts files
    and folders that are neither tracked nor ignored. `missing` says why something is None.
    """

    commit: str | None = None
    tree: str | None = None
    dirty: bool | None = None
    diff_sha256: str | None = None
    untracked: int | None = None
    missing: str | None = None


def repository_state(folder: Path) -> RepositoryState:
    """Look at the repository that a folder lies in. Raises nothing: what is missing is said."""
    if shutil.which("git") is None:
        return RepositoryState(missing="git is not installed")
    try:
        return _state(folder)
    except Unusable as error:
        return RepositoryState(missing=f"git could not tell: {error.message.rstrip('.')}")
    except OSError:
        return RepositoryState(missing="the folder cannot be entered")


def _state(folder: Path) -> RepositoryState:
    if git(folder, "rev-parse", "--is-inside-work-tree", may_fail=True) != b"true\n":
        return RepositoryState(missing="there is no git work tree, or git does not trust it")
    commit, tree = _object(folder, "HEAD^{commit}"), _object(folder, "HEAD^{tree}")
    if commit is None or tree is None:
        return RepositoryState(missing="the repository has no commit yet")
    changed, untracked = _status(folder)
    hidden = _hidden(folder)
    if hidden and not changed:
        reason = f"{hidden:,} tracked files are marked so that git does not look at them"
        return RepositoryState(commit, tree, None, None, untracked, reason)
    diff = hashlib.sha256(git(folder, *_DIFF) or b"").hexdigest() if changed else None
    return RepositoryState(commit, tree, changed, diff, untracked)


def _object(folder: Path, name: str) -> str | None:
    answer = git(folder, "rev-parse", "--verify", "--quiet", name, may_fail=True)
    text = (answer or b"").decode("ascii", "replace").strip()
    return text if _OBJECT_ID.fullmatch(text) else None


def _status(folder: Path) -> tuple[bool, int]:
    """Tell whether tracked files differ from HEAD, and count what is untracked."""
    answer = git(
        folder, "-c", "status.relativePaths=false", "-c", "status.renames=false",
        "status", "--porcelain=v1", "-z", "--untracked-files=normal", "--ignore-submodules=none",
    )  # fmt: skip
    entries = [entry for entry in (answer or b"").split(b"\0") if entry]
    untracked = sum(entry.startswith(b"?? ") for entry in entries)
    return len(entries) > untracked, untracked


def _hidden(folder: Path) -> int:
    """Count tracked files that git was told to take for unchanged, and that are there."""
    answer = git(folder, "ls-files", "-v", "-z", "--full-name", ":/") or b""
    names = [e[2:] for e in answer.split(b"\0") if e[:1].islower() or e[:1] == b"S"]
    if not names:
        return 0
    import os

    top = (git(folder, "rev-parse", "--show-toplevel") or b"").rstrip(b"\n")
    return sum(os.path.lexists(os.path.join(os.fsdecode(top), os.fsdecode(name))) for name in names)
