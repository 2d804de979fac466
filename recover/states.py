"""What became of the path under which a process knows a file."""

from __future__ import annotations

import contextlib
import errno
import re
from enum import Enum

from . import linux
from .process import Process

_DELETED = b" (deleted)"
_SILLY_RENAME = re.compile(rb"\.nfs[0-9a-f]{8,}$")


class State(str, Enum):
    """What became of the path under which a process knows a file."""

    DELETED = "deleted"
    REPLACED = "replaced"
    LIVE = "live"


def locate(
    process: Process, link: bytes, identity: tuple[int, int], *, trusted: bool
) -> tuple[State, bytes]:
    """Tell what became of the path in the process's own root directory.

    `identity` is (device, inode). When it is not `trusted` (not from fstat), another device is let
    pass on btrfs and overlay, which show another one in maps; there the inode number at the same
    path says enough, since that of a file that is held is given to no other.
    """
    stripped = link.removesuffix(_DELETED)
    for path in dict.fromkeys((link, stripped)):
        with contextlib.suppress(OSError):
            info = process.stat_path(path)
            same = info.st_dev == identity[0] or (not trusted and process.masks_devices(path))
            if info.st_ino == identity[1] and same:
                return State.LIVE, path
    try:
        process.stat_path(stripped)
    except OSError as error:
        unknown = error.errno not in (errno.ENOENT, errno.ENOTDIR) and stripped == link
        return (State.LIVE if unknown else State.DELETED), stripped
    return State.REPLACED, stripped


def is_silly_renamed(path: bytes, fd: int) -> bool:
    """Tell whether an NFS client only keeps the file until it is closed."""
    return bool(_SILLY_RENAME.search(path)) and linux.filesystem_type(fd) == linux.NFS_MAGIC
