"""Kernel interfaces that Python does not offer: numbers and layouts, with where they come from.

Every function here is one system call. Nothing is cached and nothing is decided.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ctypes

PAGE = mmap.PAGESIZE


@cache
def _libc() -> ctypes.CDLL:
    """Load libc on first use: ctypes takes milliseconds that `scan` seldom needs."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    libc.process_vm_readv.restype = ctypes.c_ssize_t
    libc.process_vm_readv.argtypes = [
        ctypes.c_int,
        ctypes.c_char_p,
        ctypes.c_ulong,
        ctypes.c_char_p,
        ctypes.c_ulong,
        ctypes.c_ulong,
    ]
    libc.memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    libc.fstatfs.argtypes = [ctypes.c_int, ctypes.c_void_p]
    libc.statx.argtypes = [
        ctypes.c_int,
        ctypes.c_char_p,
        ctypes.c_int,
        ctypes.c_uint,
        ctypes.c_void_p,
    ]
    libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
    return libc


def _last_error() -> OSError:
    import ctypes

    code = ctypes.get_errno()
    return OSError(code, os.strerror(code))


# --- mappings: include/uapi/linux/fs.h, Linux 6.11 -----------------------------------------------

_PROCMAP_QUERY = 0xC0686611
_PROCMAP = struct.Struct("=9Q4I2Q")
_PROCMAP_ADDRESS, _PROCMAP_ADDRESS_AT = struct.Struct("=Q"), 16
_COVERING_OR_NEXT = 0x10
_FILE_BACKED = 0x20
READABLE, WRITABLE, EXECUTABLE, SHARED = 1, 2, 4, 8


@dataclass(frozen=True, slots=True)
class Vma:
    """One mapping of a file: addresses, flags, offset in the file, device and inode."""

    start: int
    stop: int
    flags: int
    offset: int
    device: int
    inode: int


def query_mappings(maps_fd: int, flags: int = 0) -> Iterator[Vma]:
    """Ask for each file-backed mapping that has all of `flags`, in turn (PROCMAP_QUERY).

    `maps_fd` is an open `/proc/PID/maps`. Raises OSError ENOTTY on kernels before 6.11 and
    ESRCH when the process has ended.
    """
    wanted = _COVERING_OR_NEXT | _FILE_BACKED | flags
    query = bytearray(_PROCMAP.pack(_PROCMAP.size, wanted, *(0,) * 13))
    while True:
        try:
            fcntl.ioctl(maps_fd, _PROCMAP_QUERY, query)
        except FileNotFoundError:
            return
        (_, _, _, start, stop, has, _, offset, inode, major, minor, *_) = _PROCMAP.unpack(query)
        yield Vma(start, stop, has, offset, os.makedev(major, minor), inode)
        _PROCMAP_ADDRESS.pack_into(query, _PROCMAP_ADDRESS_AT, stop)


# --- copied pages: include/uapi/linux/fs.h, Linux 6.7; Documentation/admin-guide/mm/pagemap.rst --

_PAGEMAP_SCAN = 0xC0606610
_SCAN_ARG = struct.Struct("=12Q")
_REGION = struct.Struct("=3Q")
_IS_FILE, _IS_PRESENT, _IS_SWAPPED = 1 << 2, 1 << 3, 1 << 4
_REGIONS_AT_ONCE = 512


def scan_copied_pages(pagemap_fd: int, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Give the address ranges whose pages are present or swapped and not the file's own.

    In a mapping of a file such a page is a private copy. `pagemap_fd` is an open
    `/proc/PID/pagemap`. Raises OSError ENOTTY on kernels before 6.7.
    """
    regions = memoryview(bytearray(_REGION.size * _REGIONS_AT_ONCE))
    while start < stop:
        argument = bytearray(
            _SCAN_ARG.pack(
                _SCAN_ARG.size,
                0,
                start,
                stop,
                0,
                address_of(regions),
                _REGIONS_AT_ONCE,
                0,
                _IS_FILE,
                _IS_FILE,
                _IS_PRESENT | _IS_SWAPPED,
                _IS_PRESENT | _IS_SWAPPED,
            )
        )
        found = fcntl.ioctl(pagemap_fd, _PAGEMAP_SCAN, argument)
        for i in range(found):
            first, last, _ = _REGION.unpack_from(regions, i * _REGION.size)
            yield first, last
        walked = _SCAN_ARG.unpack(argument)[4]
        if walked <= start:
            return
        start = walked


# --- memory of another process: process_vm_readv(2) ----------------------------------------------


_IOVEC = struct.Struct("@PN")


def read_process_memory(pid: int, address: int, buffer: memoryview) -> int:
    """Read another process's memory into `buffer`; may be short at the end of what is mapped.

    Raises OSError: EPERM (ptrace access refused), EFAULT (nothing mapped at `address`), ESRCH.
    """
    local = _IOVEC.pack(address_of(buffer), len(buffer))
    remote = _IOVEC.pack(address, len(buffer))
    count = _libc().process_vm_readv(pid, local, 1, remote, 1, 0)
    if count < 0:
        raise _last_error()
    return int(count)


# --- buffers -------------------------------------------------------------------------------------


def address_of(buffer: memoryview) -> int:
    """Give the address of a writable buffer's first byte."""
    import ctypes

    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))


def equal_bytes(a: memoryview, b: memoryview) -> bool:
    """Compare two writable buffers of equal length, without holding the interpreter lock."""
    return bool(_libc().memcmp(address_of(a), address_of(b), len(a)) == 0)


# --- files: ioctl_ficlone(2), statx(2), statfs(2) ------------------------------------------------

_FICLONE = 0x40049409
_STAT_ROOM = 256
_AT_EMPTY_PATH = 0x1000
_STATX_DIOALIGN = 0x2000
_BYPASSING = frozenset({0xEF53, 0x58465342, 0x9123683E, 0xF2F52010, 0x6969})
NFS_MAGIC, BTRFS_MAGIC, OVERLAY_MAGIC = 0x6969, 0x9123683E, 0x794C7630
KERNEL_MAGICS = frozenset(  # files that the kernel makes up: reading may have effects, or block
    {0x9FA0, 0x62656572, 0x74726163, 0x64626720, 0x63677270, 0x27E0EB, 0x73636673, 0xCAFE4A11}
)


def clone_file(source_fd: int, target_fd: int) -> None:
    """Make `target_fd` share the whole content of `source_fd` (btrfs, xfs, …).

    Raises OSError EOPNOTSUPP, EXDEV or EINVAL where the filesystem cannot.
    """
    fcntl.ioctl(target_fd, _FICLONE, source_fd)


def allocate(fd: int, size: int) -> None:
    """Reserve blocks for `size` bytes (fallocate(2)). Raises OSError ENOSPC, EOPNOTSUPP."""
    if _libc().fallocate(fd, 0, 0, size) != 0:
        raise _last_error()


def filesystem_type(fd: int) -> int:
    """Give the filesystem's magic number (linux/magic.h)."""
    buffer = bytearray(_STAT_ROOM)
    if _libc().fstatfs(fd, address_of(memoryview(buffer))) != 0:
        raise _last_error()
    return int(struct.unpack_from("@l", buffer)[0]) & 0xFFFFFFFF


_FIEMAP = 0xC020660B
_FIEMAP_HEAD = struct.Struct("=2Q4I")
_FIEMAP_EXTENT = struct.Struct("=5Q4I")
_EXTENTS_AT_ONCE = 64
_EXTENT_LAST, _EXTENT_ENCODED, _EXTENT_INLINE = 0x1, 0x8, 0x200


def has_encoded_extents(fd: int) -> bool:
    """Tell whether parts of a file are compressed or lie in metadata (FIEMAP).

    Such parts go through the page cache even with O_DIRECT (btrfs, ext4 with inline data). Where
    the filesystem gives no map, there are none.
    """
    start = 0
    while True:
        room = bytearray(_FIEMAP_HEAD.size + _EXTENTS_AT_ONCE * _FIEMAP_EXTENT.size)
        _FIEMAP_HEAD.pack_into(room, 0, start, (1 << 64) - 1 - start, 0, 0, _EXTENTS_AT_ONCE, 0)
        try:
            fcntl.ioctl(fd, _FIEMAP, room)
        except OSError:
            return False
        found = _FIEMAP_HEAD.unpack_from(room)[3]
        flags = 0
        for i in range(found):
            at = _FIEMAP_HEAD.size + i * _FIEMAP_EXTENT.size
            logical, _, length, _, _, flags, *_ = _FIEMAP_EXTENT.unpack_from(room, at)
            if flags & (_EXTENT_ENCODED | _EXTENT_INLINE):
                return True
            start = logical + length
        if not found or flags & _EXTENT_LAST:
            return False


def bypasses_page_cache(fd: int) -> bool:
    """Tell whether O_DIRECT reads of this file go to the storage and not to the page cache.

    Linux 6.1 and newer say so themselves (statx STATX_DIOALIGN); tmpfs accepts O_DIRECT since 6.6
    and reads the page cache all the same. On older kernels: ext4, xfs, btrfs, f2fs and NFS do.
    """
    buffer = bytearray(_STAT_ROOM)
    place = address_of(memoryview(buffer))
    if _libc().statx(fd, b"", _AT_EMPTY_PATH, _STATX_DIOALIGN, place) == 0:
        (mask,) = struct.unpack_from("=I", buffer, 0)
        if mask & _STATX_DIOALIGN:
            (offset_align,) = struct.unpack_from("=I", buffer, 156)
            return 0 < int(offset_align) <= PAGE
    return filesystem_type(fd) in _BYPASSING


# --- this process: prctl(2) ----------------------------------------------------------------------

_PR_SET_DUMPABLE, _PR_SET_NAME = 4, 15
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 24, 38
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
_CAPSET_VERSION_3 = 0x20080522


_CAP_SYS_PTRACE = 19


def may_trace_any_process() -> bool:
    """Tell whether this process has CAP_SYS_PTRACE (`CapEff` of proc_pid_status(5))."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        effective = next(line for line in status if line.startswith("CapEff:"))
    return bool(int(effective.split()[1], 16) >> _CAP_SYS_PTRACE & 1)


def set_process_name(name: bytes) -> None:
    """Set the name that ps and top show (15 bytes at most)."""
    _libc().prctl(_PR_SET_NAME, name, 0, 0, 0)


def set_not_dumpable() -> None:
    """Refuse core dumps and, to all without CAP_SYS_PTRACE, this process's /proc files."""
    if _libc().prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise _last_error()


def drop_capabilities() -> None:
    """Give up every capability for good (capset, ambient set, no_new_privs)."""
    _libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _libc().prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    header = struct.pack("=Ii", _CAPSET_VERSION_3, 0)
    if _libc().capset(header, struct.pack("=6I", *(0,) * 6)) != 0:
        raise _last_error()
