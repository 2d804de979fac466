"""Who could change a file while it is read: by a writable descriptor or a shared mapping."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ...errors import NotPermitted, ProcessGone
from ...records.names import decoded
from .. import linux
from ..process import Process
from ..tree import all_pids


@dataclass(frozen=True)
class Writer:
    """A process that could write to a file, and by what."""

    pid: int
    command: str
    by: str
    is_mapping: bool


@dataclass(frozen=True)
class WriterSearch:
    """Writers by (device, inode), and how many processes could not be looked into."""

    writers: dict[tuple[int, int], tuple[Writer, ...]]
    hidden_processes: int


def find_writers(names: Mapping[tuple[int, int], bytes]) -> WriterSearch:
    """Look through every process for writers of inodes, given by (device, inode) with their paths.

    btrfs and overlay show another device in a mapping than fstat does: there the inode number and
    the path together say that it is the same file.
    """
    found: dict[tuple[int, int], list[Writer]] = {key: [] for key in names}
    hidden = 0
    for pid in all_pids():
        with contextlib.suppress(ProcessGone, OSError):
            try:
                with Process(pid, is_listed=True) as process:
                    for key, by, is_mapping in _writes(process, names):
                        found[key].append(Writer(pid, decoded(process.comm()), by, is_mapping))
            except NotPermitted:
                hidden += 1
    return WriterSearch({key: tuple(writers) for key, writers in found.items()}, hidden)


def _writes(
    process: Process, names: Mapping[tuple[int, int], bytes]
) -> Iterator[tuple[tuple[int, int], str, bool]]:
    for file in process.open_files():
        key = (file.device, file.inode)
        if key in names and process.may_write(file.number):
            yield key, f"descriptor {file.number}", False
    for mapping in process.mappings(linux.SHARED | linux.WRITABLE):
        for key, name in names.items():
            same_path = mapping.name.removesuffix(b" (deleted)") == name
            if mapping.inode == key[1] and (mapping.device == key[0] or same_path):
                yield key, f"shared mapping {mapping.entry}", True
