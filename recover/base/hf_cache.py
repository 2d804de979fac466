"""Repositories that huggingface_hub has in its cache, found without it and without a network.

The layout is `<cache>/models--<org>--<name>/{blobs,refs,snapshots/<commit>}`, where `refs/main`
holds a commit (huggingface_hub, guide "Understand caching").
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from ...errors import ReefError, Unusable
from ...records.names import printable
from ..checkpoint_files import stays_inside
from ..readable import FileReadable

HUB_ID = re.compile(
    r"([A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9_][\w.-]{0,95})(?:@([^@\s]{1,200}))?", re.A
)
_FOLDER = re.compile(r"models--([\w.-]+?)(?:--([\w.-]+))?", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_TRUE = frozenset({"1", "ON", "YES", "TRUE"})
_REF_LIMIT = 200


@dataclass(frozen=True)
class Snapshot:
    """The files of one commit of a repository."""

    identity: str
    commit: str
    folder: Path


def is_offline() -> bool:
    """Tell whether the environment forbids the network, as huggingface_hub reads it."""
    names = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    return any(os.environ.get(name, "").upper() in _TRUE for name in names)


def cache_folder() -> Path:
    """Give the folder that huggingface_hub caches in, from the same variables."""
    environment = os.environ
    cache = environment.get("HF_HUB_CACHE") or environment.get("HUGGINGFACE_HUB_CACHE")
    if not cache:
        general = environment.get("XDG_CACHE_HOME") or os.path.join("~", ".cache")
        home = environment.get("HF_HOME") or os.path.join(general, "huggingface")
        cache = os.path.join(home, "hub")
    return Path(os.path.expandvars(os.path.expanduser(cache)))


def cached(identity: str, revision: str | None) -> Snapshot | None:
    """Find a repository in the cache by its id and a branch, tag or commit; None if not there."""
    folder = cache_folder() / ("models--" + identity.replace("/", "--"))
    return _snapshot(folder, identity, revision)


def entry_at(folder: Path) -> Snapshot | None:
    """Tell what a folder of a cache holds: the repository's or that of one snapshot.

    None for a folder that is of no cache. Raises Unusable for a repository without a snapshot.
    """
    absolute = Path(os.path.abspath(folder))
    if absolute.parent.name == "snapshots" and _COMMIT.fullmatch(absolute.name):
        identity = _identity(absolute.parent.parent.name)
        return Snapshot(identity, absolute.name, folder) if identity else None
    identity = _identity(absolute.name)
    if identity is None or not (folder / "snapshots").is_dir():
        return None
    found = _snapshot(folder, identity, None) or _only_snapshot(folder, identity)
    if found is None:
        raise Unusable(
            f"{printable(os.fsencode(folder))} holds no snapshot that `main` points to.",
            remedy="Name the folder of one snapshot, below `snapshots`.",
        )
    return found


def _identity(name: str) -> str | None:
    found = _FOLDER.fullmatch(name)
    if found is None:
        return None
    return f"{found[1]}/{found[2]}" if found[2] else found[1]


def _snapshot(folder: Path, identity: str, revision: str | None) -> Snapshot | None:
    revision = revision or "main"
    commit = revision if _COMMIT.fullmatch(revision) else _ref(folder, revision)
    if commit is None or not (folder / "snapshots" / commit).is_dir():
        return None
    return Snapshot(identity, commit, folder / "snapshots" / commit)


def _ref(folder: Path, name: str) -> str | None:
    if not stays_inside(name):
        return None
    try:
        with FileReadable(folder / "refs" / name) as file:
            text = file.read(0, _REF_LIMIT).decode("ascii", "replace").strip()
    except ReefError:
        return None
    return text if _COMMIT.fullmatch(text) else None


def _only_snapshot(folder: Path, identity: str) -> Snapshot | None:
    commits = [name for name in os.listdir(folder / "snapshots") if _COMMIT.fullmatch(name)]
    if len(commits) != 1:
        return None
    return Snapshot(identity, commits[0], folder / "snapshots" / commits[0])
