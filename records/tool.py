"""Which reefkit wrote a document: its name, version and commit.

A checkout's commit is read from its git folder and a wheel's from `_commit.py`, which the build
wrote. Neither git nor importlib.metadata is asked: that would cost each start tens of
milliseconds.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

from .. import __version__

_OBJECT_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_SYMBOLIC_DEPTH = 5  # as git allows


def tool_identity() -> dict[str, str | None]:
    """Name the tool, its version and its commit, or None where no commit is known.

    In a checkout the commit is what HEAD names, whatever the files beside it hold by now; in a
    wheel it ends in `-dirty` when it was built from a tree with changes.
    """
    # An editable install is made of links: the checkout is where they lead.
    root = Path(__file__).resolve().parents[1]
    return {
        "name": "reefkit",
        "version": __version__,
        "commit": head_commit(root) or _built_commit(),
    }


def head_commit(checkout: Path) -> str | None:
    """Read which commit HEAD names, or None without a repository, a commit or readable refs.

    Layout and lookup order are those of gitrepository-layout(5): a worktree's `.git` is a file,
    its own refs come before the common ones, and loose refs before packed ones.
    """
    try:
        folder = _git_folder(checkout)
        return _resolve("HEAD", folder, _common_folder(folder))
    except (OSError, ValueError):  # ValueError: no UTF-8, or a path with a NUL
        return None


def _git_folder(checkout: Path) -> Path:
    git = checkout / ".git"
    if git.is_dir():
        return git
    return checkout / git.read_text("utf-8").removeprefix("gitdir:").strip()


def _common_folder(folder: Path) -> Path:
    pointer = folder / "commondir"
    return folder / pointer.read_text("utf-8").strip() if pointer.exists() else folder


def _resolve(name: str, folder: Path, common: Path) -> str | None:
    for _ in range(_SYMBOLIC_DEPTH):
        value = _ref_value(name, folder, common)
        if _OBJECT_ID.fullmatch(value):
            return value
        name = value.removeprefix("ref:").strip()
        if not name.startswith("refs/") or ".." in name:
            return None
    return None


def _ref_value(name: str, folder: Path, common: Path) -> str:
    for loose in (folder / name, common / name):
        if loose.is_file():
            return loose.read_text("utf-8").strip()
    for line in (common / "packed-refs").read_text("utf-8").splitlines():
        value, _, packed = line.partition(" ")
        if packed == name:
            return value
    return ""


def _built_commit() -> str | None:
    try:
        module = import_module(".._commit", __package__)
    except ModuleNotFoundError:
        return None
    commit: str = module.COMMIT
    return commit
