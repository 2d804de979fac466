"""A process that cannot be confused with another, and the files it maps or holds open.

A process id is reused; a directory handle on `/proc/PID` is not: once the process has ended,
everything opened through it fails with ESRCH. A pidfd tells the end, and the start time proves to
a later reader which process it was. The main thread may have exited while others run on: then
`/proc/PID/maps` is empty and the memory is seen through another thread's `/proc/TID`.

Nothing here stops, attaches to or writes to the process.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import cast

from ..errors import ProcessGone, Unusable
from ..records.names import decoded
from . import linux
from .mappings import FileMapping, OpenFile, parse_maps
from .procfs import (
    absent,
    boot_id,
    ended,
    link_text,
    open_regular,
    read_all,
    read_at,
    refused,
    stat_fields,
)

_ENDED = (errno.ESRCH, errno.ENOENT)
_LISTING_TRIES = 3


class Life(str, Enum):
    """What has become of a process since it was opened."""

    RUNNING = "running"
    LEADER_EXITED = "leader-exited"
    ZOMBIE = "zombie"
    GONE = "gone"
    REUSED = "reused"


@dataclass(frozen=True)
class ProcessIdentity:
    """Who a process is, for ever: its id, when it started, and on which boot."""

    pid: int
    start_ticks: int
    boot_id: str
    uid: int
    command: str
    namespace_pids: tuple[int, ...]

    def to_json(self) -> dict[str, object]:
        """Give the form that `recovery.json` and the pin records hold."""
        return {
            "pid": self.pid,
            "start_ticks": self.start_ticks,
            "boot_id": self.boot_id,
            "uid": self.uid,
            "command": self.command,
            "namespace_pids": list(self.namespace_pids),
        }


def same_process(identity: Mapping[str, object], other: object) -> bool:
    """Compare two identities in their JSON form; `other` may be any document."""
    if not isinstance(other, dict):
        return False
    document = cast("dict[str, object]", other)
    return all(document.get(k) == identity.get(k) for k in ("pid", "start_ticks", "boot_id"))


class Process:
    """A running process, held by a /proc directory handle and, where the kernel has it, a pidfd."""

    def __init__(self, pid: int, *, is_listed: bool = False) -> None:
        """Take hold of the process. Raises ProcessGone or NotPermitted (hidden by hidepid).

        Raises Unusable for the id of a thread, which /proc opens but never lists: not looked for
        when the id `is_listed` there.
        """
        self.pid = pid
        self._handles: list[int] = []
        try:
            self._directory = self._hold(os.open(f"/proc/{pid}", os.O_PATH | os.O_DIRECTORY))
        except (FileNotFoundError, ProcessLookupError):
            raise absent(pid) from None
        try:
            self.start_ticks = self._first_look()
            if not is_listed:
                self._refuse_thread()
        except BaseException:
            self.close()
            raise
        self._shares_mounts: bool | None = None
        self._memory_directory = self._directory
        self.memory_tid = pid

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the process."""
        while self._handles:
            os.close(self._handles.pop())

    def _hold(self, fd: int) -> int:
        self._handles.append(fd)
        return fd

    def _first_look(self) -> int:
        try:
            return stat_fields(self._directory, self.pid)[1]
        except (PermissionError, ProcessGone):  # hidepid: fs/proc/base.c, proc_pid_permission
            raise absent(self.pid) from None

    @cached_property
    def _pidfd(self) -> int | None:
        try:
            pidfd = self._hold(os.pidfd_open(self.pid))
        except ProcessLookupError:
            raise ended(self.pid) from None
        except OSError:  # before Linux 5.3, or refused by seccomp: the directory handle is enough
            return None
        # That this process still is proves that the id was not another's when it was opened.
        stat_fields(self._directory, self.pid)
        return pidfd

    def _refuse_thread(self) -> None:
        if f"\nTgid:\t{self.pid}\n".encode() not in self.read("status"):
            leader = self.status()["Tgid"]
            raise Unusable(
                f"{self.pid} is a thread of process {leader}.", remedy=f"Use --pid {leader}."
            )

    # --- who it is ---

    def life(self) -> Life:
        """Tell whether it still runs, and if not, whether its id now names another process."""
        try:
            state, _ = stat_fields(self._directory, self.pid)
        except ProcessGone:
            return Life.REUSED if os.path.exists(f"/proc/{self.pid}") else Life.GONE
        if state in "ZX":
            return Life.LEADER_EXITED if self._running_thread() is not None else Life.ZOMBIE
        return Life.RUNNING

    def has_ended(self) -> bool:
        """Tell whether the whole process, not only its main thread, has exited."""
        try:
            if self._pidfd is None:
                return self.life() not in (Life.RUNNING, Life.LEADER_EXITED)
        except ProcessGone:
            return True
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return bool(poll.poll(0))

    def send_signal(self, number: int) -> None:
        """Send a signal to this very process. Only ever used on holders that reefkit started."""
        try:
            if self._pidfd is not None:
                signal.pidfd_send_signal(self._pidfd, number)
            elif self.has_ended():
                raise ended(self.pid)
            else:
                os.kill(self.pid, number)
        except ProcessLookupError:
            raise ended(self.pid) from None

    def identity(self) -> ProcessIdentity:
        """Describe the process so that a later reader can tell it from its successors."""
        status = self.status()
        return ProcessIdentity(
            pid=self.pid,
            start_ticks=self.start_ticks,
            boot_id=boot_id(),
            uid=int(status["Uid"].split()[1]),
            command=decoded(self.comm()),
            namespace_pids=tuple(int(n) for n in status.get("NSpid", str(self.pid)).split()),
        )

    def comm(self) -> bytes:
        """Give the kernel's short name of the process."""
        return self.read("comm").removesuffix(b"\n")

    def arguments(self) -> tuple[bytes, ...]:
        """Give the command line; empty for kernel threads and where it may not be read."""
        with contextlib.suppress(OSError):
            text = self.read("cmdline")
            return tuple(text.removesuffix(b"\0").split(b"\0")) if text else ()
        return ()

    def status(self) -> dict[str, str]:
        """Read `/proc/PID/status` (world-readable)."""
        lines = self.read("status").decode("utf-8", "replace").splitlines()
        return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}

    # --- reading through the handle ---

    def open(self, name: str, flags: int = os.O_RDONLY) -> int:
        """Open a file below `/proc/PID`; the caller closes it. Raises OSError, ProcessGone."""
        try:
            return os.open(name, flags | os.O_CLOEXEC, dir_fd=self._directory)
        except ProcessLookupError:
            raise ended(self.pid) from None

    def read(self, name: str) -> bytes:
        """Read a small file below `/proc/PID` whole. Raises OSError, ProcessGone."""
        return read_at(self._directory, name, self.pid)

    def link(self, name: str) -> bytes:
        """Read a link below `/proc/PID` (`exe`, `ns/user`, `fd/3`). Raises OSError."""
        return os.readlink(name.encode(), dir_fd=self._directory)

    def mount_namespace(self) -> bytes:
        """Name the mount namespace; empty where that may not be read."""
        with contextlib.suppress(OSError):
            return self.link("ns/mnt")
        return b""

    def stat_path(self, path: bytes) -> os.stat_result:
        """Stat a path that a link of this process gave; the last link is not followed.

        The kernel writes such paths from this reader's root where the two share their mounts,
        whatever root directory the process has (chroot), else from that of the process's
        mounts. Raises OSError.
        """
        return os.lstat(self._from_here(path), dir_fd=self._directory)

    def masks_devices(self, path: bytes) -> bool:
        """Tell whether the filesystem of a path shows other devices in maps than in stat."""
        flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
        with contextlib.suppress(OSError):
            fd = os.open(self._from_here(path), flags, dir_fd=self._directory)
            try:
                return linux.filesystem_type(fd) in (linux.BTRFS_MAGIC, linux.OVERLAY_MAGIC)
            finally:
                os.close(fd)
        return False

    def _from_here(self, path: bytes) -> bytes:
        """Give a path that leads to the same from the handle on /proc/PID."""
        if self._shares_mounts is None:
            self._shares_mounts = self.mount_namespace() == os.readlink(b"/proc/self/ns/mnt")
        if self._shares_mounts and path.startswith(b"/"):
            return path
        root = self.link("root").rstrip(b"/") + b"/"
        if not path.startswith(root):
            raise FileNotFoundError(errno.ENOENT, "outside the process's root directory", path)
        return b"root/" + path.removeprefix(root)

    # --- memory ---

    def _running_thread(self) -> int | None:
        """Find a thread that still has the memory; None when there is none."""
        try:
            threads = os.listdir(f"/proc/self/fd/{self._directory}/task")
        except OSError:
            return None
        for name in threads:
            with contextlib.suppress(OSError, ProcessGone):
                fields = stat_fields(self._directory, self.pid, f"task/{name}/stat")
                if fields[0] not in "ZX":
                    return int(name)
        return None

    def memory_directory(self) -> int:
        """Give a handle on the /proc directory through which the memory is seen now.

        That is `/proc/PID`, or another thread's where the main thread has exited. Raises
        ProcessGone for a zombie, whose memory is gone.
        """
        if not self._has_memory(self._memory_directory):
            tid = self._running_thread()
            if tid is None:
                if self.life() is Life.ZOMBIE:
                    raise ProcessGone(
                        f"Process {self.pid} has exited and waits to be reaped (zombie): "
                        "its memory and mappings are gone."
                    )
                raise ended(self.pid)
            self._memory_directory = self._open_thread(tid)
            self.memory_tid = tid
        return self._memory_directory

    def _has_memory(self, directory: int) -> bool:
        try:
            return stat_fields(directory, self.pid)[0] not in "ZX"
        except ProcessGone:
            return False

    def _open_thread(self, tid: int) -> int:
        # /proc/TID is not listed but can be opened; /proc/PID/task/TID has no map_files.
        handle = self._hold(os.open(f"/proc/{tid}", os.O_PATH | os.O_DIRECTORY))
        status = read_at(handle, "status", self.pid).decode("utf-8", "replace")
        if f"\nTgid:\t{self.pid}\n" not in status:
            raise ended(self.pid)
        return handle

    def open_memory(self, name: str) -> int:
        """Open `mem`, `pagemap` or `maps`; the caller closes it. Raises NotPermitted, OSError."""
        try:
            return os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.memory_directory())
        except PermissionError:
            raise refused(self.pid, name) from None
        except ProcessLookupError:
            raise ended(self.pid) from None

    def mappings(self, flags: int = 0) -> tuple[FileMapping, ...]:
        """List the mappings of files that have all of `flags`, in address order.

        Asks PROCMAP_QUERY (Linux 6.11), else parses the numbers in `maps`; the name always comes
        from the link in map_files, since the text of `maps` cannot tell a newline from a
        backslash. Raises NotPermitted, ProcessGone.
        """
        for _ in range(_LISTING_TRIES):
            try:
                return tuple(self._list_mappings(flags))
            except FileNotFoundError:  # a mapping changed between listing and naming: list again
                continue
        return tuple(self._list_mappings(flags, skip_vanished=True))

    def _list_mappings(self, flags: int, *, skip_vanished: bool = False) -> Iterator[FileMapping]:
        directory = self.memory_directory()
        names: dict[tuple[int, int], bytes] = {}
        for vma in self._vmas(flags):
            name = names.get((vma.device, vma.inode))
            if name is None:
                try:
                    name = self._name_of(vma, directory)
                except FileNotFoundError:
                    if skip_vanished:
                        continue
                    raise
                # Without a device of its own (btrfs, overlay) an inode number tells no file apart.
                if os.major(vma.device):
                    names[vma.device, vma.inode] = name
            yield FileMapping(
                vma.start, vma.stop, vma.offset, vma.flags, vma.device, vma.inode, name
            )

    def _name_of(self, vma: linux.Vma, directory: int) -> bytes:
        try:
            return link_text(f"map_files/{vma.start:x}-{vma.stop:x}", directory)
        except PermissionError:
            raise refused(self.pid, "map_files") from None
        except ProcessLookupError:
            raise ended(self.pid) from None

    def _vmas(self, flags: int) -> list[linux.Vma]:
        try:
            fd = self.open_memory("maps")
        except ProcessGone:
            return self._no_memory()
        try:
            return list(linux.query_mappings(fd, flags))
        except OSError as error:
            if error.errno in _ENDED:
                return self._no_memory()
            if error.errno not in (errno.ENOTTY, errno.EINVAL, errno.EPERM):
                raise
            return [vma for vma in parse_maps(read_all(fd)) if vma.flags & flags == flags]
        finally:
            os.close(fd)

    def _no_memory(self) -> list[linux.Vma]:
        """Tell a kernel thread, which has no memory of its own, from a process that has ended."""
        if self.life() is Life.RUNNING:
            return []
        raise ended(self.pid)

    def open_mapped(self, mapping: FileMapping) -> int:
        """Open the file behind a mapping; the caller closes it.

        Raises NotPermitted (needs CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN in the initial user
        namespace: fs/proc/base.c, proc_map_files_get_link), FileNotFoundError when the mapping
        has gone, ProcessGone.
        """
        try:
            return self._open_held(f"map_files/{mapping.entry}")
        except PermissionError:
            raise refused(self.pid, "map_files") from None
        except ProcessLookupError:
            raise ended(self.pid) from None

    def _open_held(self, name: str) -> int:
        try:
            return open_regular(self._memory_directory, name)
        except (FileNotFoundError, ProcessLookupError):  # gone, or the thread it is seen through
            return open_regular(self.memory_directory(), name)

    # --- descriptors ---

    def open_files(self) -> tuple[OpenFile, ...]:
        """List the regular files held open. Raises NotPermitted, ProcessGone."""
        directory = self.memory_directory()
        found: list[OpenFile] = []
        try:
            numbers = os.listdir(f"/proc/self/fd/{directory}/fd")
        except PermissionError:
            raise refused(self.pid, "fd") from None
        except (ProcessLookupError, FileNotFoundError):
            raise ended(self.pid) from None
        for number in numbers:
            with contextlib.suppress(OSError):
                info = os.stat(f"fd/{number}", dir_fd=directory)
                if stat.S_ISREG(info.st_mode):
                    name = link_text(f"fd/{number}", directory)
                    found.append(
                        OpenFile(int(number), name, info.st_dev, info.st_ino, info.st_size)
                    )
        return tuple(found)

    def open_descriptor(self, number: int) -> int:
        """Open anew the file behind descriptor `number`; the caller closes it.

        Raises NotPermitted, FileNotFoundError when it was closed, ProcessGone.
        """
        try:
            return self._open_held(f"fd/{number}")
        except PermissionError:
            raise refused(self.pid, "fd") from None
        except ProcessLookupError:
            raise ended(self.pid) from None

    def may_write(self, number: int) -> bool:
        """Tell whether descriptor `number` is open for writing. Raises OSError."""
        for line in read_at(self.memory_directory(), f"fdinfo/{number}", self.pid).splitlines():
            if line.startswith(b"flags:"):
                return int(line.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY
        return False
