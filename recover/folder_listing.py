"""What lies in a folder and below it, by the kinds of files that checkpoints consist of."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import Unusable
from ..records.names import printable
from .formats.safetensors import looks_like
from .readable import FileReadable, unreadable

_SUFFIX = ".safetensors"
_PARTIAL = ".partial"
_INDEX_SUFFIX = ".safetensors.index.json"
_RECORD = "recovery.json"
_CUSTODY = "custody.jsonl"
_NO_WEIGHTS = (".rescue.map", ".json", ".jinja", ".md", ".txt", ".yaml", ".yml", ".py", ".log")
_PREFIX = 64
_TEMPORARY = re.compile(r"\.tmp[A-Za-z0-9]{6}|.*\.tmp", re.DOTALL)
_PICKLE = re.compile(r"(?:adapter_model|pytorch_model.*)\.bin", re.DOTALL)
_DEEPEST = 8
_MOST_ENTRIES = 200_000


@dataclass
class Listing:
    """The files of one folder: names without `.partial` to paths.

    `others` are files that no name tells the kind of, as `dump` saves them; `unread` says of names
    of weights and indices why what is there is not read: links that lead out, and no files.
    """

    folder: Path
    roots: tuple[str, ...]
    weights: dict[str, Path] = field(default_factory=dict[str, Path])
    indexes: dict[str, Path] = field(default_factory=dict[str, Path])
    temporaries: dict[str, Path] = field(default_factory=dict[str, Path])
    others: dict[str, Path] = field(default_factory=dict[str, Path])
    pickles: list[Path] = field(default_factory=list[Path])
    superseded: list[Path] = field(default_factory=list[Path])
    unread: dict[str, str] = field(default_factory=dict[str, str])
    is_dump: bool = False

    @property
    def problems(self) -> list[str]:
        """Say what is not read, in sentences."""
        return list(self.unread.values())

    def has(self, name: str) -> bool:
        """Tell whether a file of that name is in the folder."""
        return (self.folder / name).is_file()

    def beside(self) -> Iterator[Path]:
        """Give every file that holds weights or did."""
        yield from self.weights.values()
        yield from self.indexes.values()
        yield from self.temporaries.values()
        yield from self.pickles
        yield from self.superseded

    def leads_out(self, path: Path) -> str | None:
        """Say where a link leads that leaves the folder; None for what stays inside.

        The snapshots of a Hub cache consist of links into the blobs of the same repository.
        """
        target = os.path.realpath(path)
        if any(target.startswith(root + os.sep) for root in self.roots):
            return None
        return (
            f"{printable(os.fsencode(path.name))} leads out of its folder, to "
            f"{printable(os.fsencode(target))}, and is not read: copy it here, or name the folder "
            "that it lies in."
        )

    def safetensors(self) -> dict[str, Path]:
        """Give those of `others` that begin as safetensors do. Raises Unusable, NotPermitted."""
        found: dict[str, Path] = {}
        for name, path in self.others.items():
            with FileReadable(path) as file:
                if looks_like(file.read(0, _PREFIX), file.size):
                    found[name] = path
        return found

    def add(self, name: str, path: Path) -> None:
        """Sort a regular file into its kind."""
        whole = name.removesuffix(_PARTIAL)
        if whole.endswith(_SUFFIX):
            self._add_weights(whole, path)
        elif name.endswith(_INDEX_SUFFIX):
            self.indexes[name] = path
        elif _TEMPORARY.fullmatch(whole):
            self.temporaries.setdefault(whole, path)
        elif _PICKLE.fullmatch(name):
            self.pickles.append(path)
        elif name == _RECORD:
            self.is_dump = True
        elif name != _CUSTODY and not name.endswith(_NO_WEIGHTS):
            self.others.setdefault(whole, path)

    def _add_weights(self, name: str, path: Path) -> None:
        known = self.weights.get(name)
        if known is None or known.name != name:
            self.weights[name] = path
        if known is not None:
            self.superseded.append(path if path.name != name else known)


def list_tree(folder: Path, deepest: int = _DEEPEST) -> list[Listing]:
    """List a folder and those below it, itself first, hidden ones left out; follows no link.

    Raises Unusable, NotPermitted.
    """
    root = os.path.realpath(folder)
    roots = (root, *cache_blobs(Path(root)))
    found: list[Listing] = []
    waiting = [(folder, 0)]
    entries_left = _MOST_ENTRIES
    while waiting:
        current, depth = waiting.pop(0)
        listing = Listing(current, roots)
        found.append(listing)
        try:
            with os.scandir(current) as entries:
                for entry in entries:
                    entries_left -= 1
                    if entries_left < 0:
                        raise _too_large(folder)
                    if entry.is_dir(follow_symlinks=False):
                        if entry.name.endswith((_SUFFIX, _INDEX_SUFFIX)):
                            fault = f"{printable(os.fsencode(entry.name))} is a folder."
                            listing.unread[entry.name] = fault
                        if depth < deepest and not entry.name.startswith("."):
                            waiting.append((current / entry.name, depth + 1))
                    else:
                        _add(listing, entry)
        except OSError as error:
            raise unreadable(printable(os.fsencode(current)), error) from error
    found[1:] = sorted(found[1:], key=lambda listing: os.fsencode(listing.folder))
    return found


def _add(listing: Listing, entry: os.DirEntry[str]) -> None:
    """Take a regular file, or a link to one that stays inside; say what weights do not."""
    path = listing.folder / entry.name
    if entry.is_symlink():
        fault = listing.leads_out(path)
        if fault is None and not path.exists():
            fault = f"{printable(os.fsencode(entry.name))} is a link to what is not there."
        if fault is not None:
            if entry.name.endswith((_SUFFIX, _INDEX_SUFFIX)):
                listing.unread[entry.name.removesuffix(_PARTIAL)] = fault
            return
    if entry.is_file():
        listing.add(entry.name, path)
    elif entry.name.endswith((_SUFFIX, _INDEX_SUFFIX)):
        fault = f"{printable(os.fsencode(entry.name))} is no regular file."
        listing.unread[entry.name] = fault


def cache_blobs(folder: Path) -> list[str]:
    """Give where the files of a Hub cache's snapshot lie; empty for any other folder."""
    for parent in (folder, *folder.parents):
        if parent.parent.name == "snapshots" and (parent.parent.parent / "blobs").is_dir():
            return [os.path.realpath(parent.parent.parent / "blobs")]
    return []


def _too_large(folder: Path) -> Unusable:
    return Unusable(
        f"{printable(os.fsencode(folder))} holds more than {_MOST_ENTRIES:,} entries.",
        remedy="Name the folder that the weights lie in.",
    )
