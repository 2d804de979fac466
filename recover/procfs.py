"""Read files of `/proc` through a directory handle, and say what a refusal there means."""

from __future__ import annotations

import errno
import os
import stat

from ..errors import NotPermitted, ProcessGone
from ..records.names import printable
from . import linux


def open_regular(directory: int, name: str) -> int:
    """Open through a magic link, only when it leads to a regular file on a real filesystem.

    Opening a device, a pipe or a file of /proc has effects; an O_PATH handle has none.
    """
    handle = os.open(name, os.O_PATH | os.O_CLOEXEC, dir_fd=directory)
    try:
        info = os.fstat(handle)
        made_up = not os.major(info.st_dev) and linux.filesystem_type(handle) in linux.KERNEL_MAGICS
        if not stat.S_ISREG(info.st_mode) or made_up:
            raise FileNotFoundError(errno.ENOENT, "not a regular file", name)
        return os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(handle)


def link_text(name: str, directory: int) -> bytes:
    """Read a link as bytes; empty where the path is longer than a page, which has no text."""
    try:
        return os.readlink(name.encode(), dir_fd=directory)
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        return b""


def read_all(fd: int) -> bytes:
    """Read an open file to its end."""
    return b"".join(iter(lambda: os.read(fd, 1 << 16), b""))


def read_at(directory: int, name: str, pid: int) -> bytes:
    """Read a small file below a /proc directory whole. Raises OSError, ProcessGone."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)
        try:
            return read_all(fd)
        finally:
            os.close(fd)
    except ProcessLookupError:
        raise ended(pid) from None


def stat_fields(directory: int, pid: int, name: str = "stat") -> tuple[str, int]:
    """Give state and start time (clock ticks after boot): fields 3 and 22 of proc_pid_stat(5).

    Raises ProcessGone, PermissionError (hidepid).
    """
    try:
        fields = read_at(directory, name, pid).rpartition(b")")[2].split()
    except FileNotFoundError:
        raise ended(pid) from None
    return fields[0].decode(), int(fields[19])


def boot_id() -> str:
    """Name the boot that start times count from."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def leased_files() -> frozenset[tuple[int, int]]:
    """Give the files under a lease, as (device, inode) in maps: `/proc/locks`, proc_locks(5).

    Opening one sends its holder a signal (fcntl(2), F_SETLEASE), which ends an unprepared process.
    """
    found: set[tuple[int, int]] = set()
    try:
        with open("/proc/locks", encoding="ascii", errors="replace") as file:
            for line in file:
                fields = line.split()
                if "LEASE" in fields[:3]:
                    major, minor, inode = fields[-3].split(":")
                    found.add((os.makedev(int(major, 16), int(minor, 16)), int(inode)))
    except (OSError, ValueError):
        return frozenset(found)
    return frozenset(found)


def is_hidden(pid: int) -> bool:
    """Tell whether a process runs whose files in /proc are out of sight: mount option hidepid.

    fs/proc/base.c, `proc_pid_permission`: EPERM with `noaccess`, ENOENT with `invisible`, although
    the directory itself can be opened; with `ptraceable` it cannot.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    try:
        with open(f"/proc/{pid}/stat", "rb"):
            return False
    except (PermissionError, FileNotFoundError):
        return True


def absent(pid: int) -> ProcessGone | NotPermitted:
    """Say that there is no such process, or that it is hidden."""
    if is_hidden(pid):
        return NotPermitted(
            f"Process {pid} exists, but /proc hides it from this user (hidepid).",
            remedy="Run as root, or as a member of the group that the mount of /proc names.",
        )
    return ProcessGone(
        f"There is no process {pid}.",
        remedy="`reef-recover scan` lists the processes that hold checkpoints; inside a "
        "container, process ids differ from the host's.",
    )


def ended(pid: int) -> ProcessGone:
    """Say that a process has ended."""
    return ProcessGone(
        f"Process {pid} has ended.", remedy="`reef-recover pins` shows what was pinned before."
    )


def refused(pid: int, name: str) -> NotPermitted:
    """Say that the kernel refused a file of a process."""
    return NotPermitted(
        f"Not permitted to read /proc/{pid}/{printable(name)}.",
        remedy=f"`reef-recover doctor --pid {pid}` says what blocks it and how to open it.",
    )
