"""What decides whether one process may look into another: the caller's rights, the target's guard.

Facts only, read from /proc; recover/doctor/report.py draws the conclusions. The rules behind them:
kernel/ptrace.c (`__ptrace_may_access`), security/commoncap.c (`cap_ptrace_access_check`),
fs/proc/base.c (`proc_map_files_get_link`, `task_dump_owner`, `has_pid_permissions`).
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from dataclasses import dataclass
from enum import IntEnum

from ...errors import NotPermitted, ProcessGone
from ...records.names import decoded
from .. import linux
from ..process import Life, Process
from .place import MARKS, Place, place_of

_INITIAL_USER_NAMESPACE = 0xEFFFFFFD  # include/linux/proc_ns.h: PROC_USER_INIT_INO
_INITIAL_PID_NAMESPACE = 0xEFFFFFFC  # PROC_PID_INIT_INO
_KERNEL_THREAD = 0x00200000  # include/linux/sched.h: PF_KTHREAD
_OVERFLOW_ID = 65534  # how an id is shown that the reader's user namespace does not map


class Capability(IntEnum):
    """The capabilities that open something here: include/uapi/linux/capability.h."""

    CAP_DAC_OVERRIDE = 1
    CAP_DAC_READ_SEARCH = 2
    CAP_SYS_PTRACE = 19
    CAP_SYS_ADMIN = 21
    CAP_PERFMON = 38
    CAP_CHECKPOINT_RESTORE = 40


@dataclass(frozen=True)
class CallerFacts:
    """Who asks, and from where. Capabilities are bit masks, as in proc_pid_status(5)."""

    uid: int
    gid: int
    effective: int
    bounding: int
    initial_user_namespace: bool
    initial_pid_namespace: bool
    uid_map: str
    yama_scope: int | None
    seccomp: int
    no_new_privs: bool
    security_label: str | None
    place: Place
    host_name: str
    hidepid: str | None
    kernel: str
    procmap_query: bool
    pagemap_scan: bool
    program: str = "reef-recover"

    def has(self, *capabilities: Capability) -> bool:
        """Tell whether any of the capabilities is effective."""
        return any(self.effective >> capability & 1 for capability in capabilities)

    @property
    def confined(self) -> bool:
        """Tell whether a security module runs the caller under a profile of its own."""
        return self.security_label is not None and not self.security_label.startswith("unconfined")

    def to_json(self) -> dict[str, object]:
        """Give the `caller` of `doctor --json`; capability masks in hexadecimal."""
        return {
            **vars(self),
            "effective": f"{self.effective:016x}",
            "bounding": f"{self.bounding:016x}",
            "capabilities": [c.name for c in Capability if self.has(c)],
            "place": self.place.value,
        }


@dataclass(frozen=True)
class TargetFacts:
    """Who is looked at. `hidden` means that /proc does not show it: the rest is then unknown.

    `uids` and `gids` are the real, effective, saved and filesystem ids, as the caller's user
    namespace shows them. `same_user_namespace` and `dumpable` are None where nothing tells.
    """

    pid: int
    command: str = ""
    life: Life = Life.RUNNING
    hidden: bool = False
    kernel_thread: bool = False
    uids: tuple[int, ...] = ()
    gids: tuple[int, ...] = ()
    permitted: int = 0
    same_user_namespace: bool | None = None
    namespace_pids: tuple[int, ...] = ()
    files_owner: int | None = None
    dumpable: bool | None = None
    own_child: bool = False

    def to_json(self) -> dict[str, object]:
        """Give the `target` of `doctor --json`."""
        return {
            **{key: value for key, value in vars(self).items() if key != "own_child"},
            "life": self.life.value,
            "uids": list(self.uids),
            "gids": list(self.gids),
            "permitted": f"{self.permitted:016x}",
            "namespace_pids": list(self.namespace_pids),
        }


# --- the caller ---


def caller_facts() -> CallerFacts:
    """Look at the process that runs this. Raises OSError where /proc is not mounted."""
    with open("/proc/self/status", encoding="utf-8", errors="replace") as file:
        status = _fields(file.read())
    uid_map = " ".join((_text("/proc/self/uid_map") or "").split())
    scope = _text("/proc/sys/kernel/yama/ptrace_scope")
    return CallerFacts(
        uid=os.geteuid(),
        gid=os.getegid(),
        effective=int(status["CapEff"], 16),
        bounding=int(status["CapBnd"], 16),
        initial_user_namespace=_is_initial("user", _INITIAL_USER_NAMESPACE),
        initial_pid_namespace=_is_initial("pid", _INITIAL_PID_NAMESPACE),
        uid_map=uid_map,
        yama_scope=int(scope) if scope else None,
        seccomp=int(status.get("Seccomp", "0")),
        no_new_privs=status.get("NoNewPrivs") == "1",
        security_label=_security_label(),
        place=place_of(
            os.environ,
            [path for path in MARKS if os.path.exists(path)],
            _text("/proc/self/cgroup") or "",
            _text("/run/systemd/container") or "",
        ),
        host_name=os.uname().nodename,
        hidepid=hidepid_of(_text("/proc/self/mountinfo") or ""),
        kernel=os.uname().release,
        procmap_query=_kernel_answers("maps"),
        pagemap_scan=_kernel_answers("pagemap"),
        program=_program(),
    )


def hidepid_of(mountinfo: str) -> str | None:
    """Give the hidepid option of what is mounted on /proc, None where it is off."""
    found: str | None = None
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields, (kind, _, options) = left.split(), right.split(" ", 2)
        if fields[4] == "/proc" and kind == "proc":
            settings = (option.partition("=") for option in options.split(","))
            found = next((value for name, _, value in settings if name == "hidepid"), None)
    return None if found in ("0", "off") else found


def _is_initial(kind: str, inode: int) -> bool:
    try:
        return os.stat(f"/proc/self/ns/{kind}").st_ino == inode
    except FileNotFoundError:  # a kernel built without such namespaces has only the initial one
        return True


def _security_label() -> str | None:
    for name in ("attr/apparmor/current", "attr/current"):
        label = _text(f"/proc/self/{name}")
        if label:
            return label.rstrip("\0")
    return None


def _kernel_answers(name: str) -> bool:
    with contextlib.suppress(OSError):
        fd = os.open(f"/proc/self/{name}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            if name == "maps":
                next(linux.query_mappings(fd), None)
            else:
                next(linux.scan_copied_pages(fd, 0, linux.PAGE), None)
            return True
        finally:
            os.close(fd)
    return False


def _program() -> str:
    started = sys.argv[0]
    is_script = os.path.basename(started) == "reef-recover"
    return shlex.quote(os.path.abspath(started)) if is_script else "reef-recover"


# --- the target ---


def target_facts(process: Process, caller: CallerFacts, *, own_child: bool = False) -> TargetFacts:
    """Look at what /proc tells everyone about a process. Raises OSError, ProcessGone."""
    status = process.status()
    uids = tuple(map(int, status["Uid"].split()))
    owner = _owner_of_files(process)
    return TargetFacts(
        pid=process.pid,
        command=decoded(process.comm()),
        life=process.life(),
        kernel_thread=is_kernel_thread(process.read("stat")),
        uids=uids,
        gids=tuple(map(int, status["Gid"].split())),
        permitted=int(status["CapPrm"], 16),
        same_user_namespace=_shares_user_namespace(process, caller),
        namespace_pids=tuple(map(int, status.get("NSpid", str(process.pid)).split())),
        files_owner=owner,
        dumpable=_is_dumpable(uids[1], owner, caller),
        own_child=own_child,
    )


def is_kernel_thread(stat: bytes) -> bool:
    """Tell by the flags in the text of `/proc/PID/stat` (field 9)."""
    return bool(int(stat.rpartition(b")")[2].split()[6]) & _KERNEL_THREAD)


def _owner_of_files(process: Process) -> int | None:
    # Not of /proc/PID itself: the kernel shows that one as the process's own in any case.
    with contextlib.suppress(OSError, ProcessGone):
        fd = process.open("status", os.O_PATH)
        try:
            return os.fstat(fd).st_uid
        finally:
            os.close(fd)
    return None


def _is_dumpable(uid: int, owner: int | None, caller: CallerFacts) -> bool | None:
    """Judge by the owner of its /proc files: root, where the process may not be dumped."""
    unmapped = uid == _OVERFLOW_ID and not caller.initial_user_namespace
    if owner is None or uid == 0 or unmapped:
        return None
    return owner == uid


def _shares_user_namespace(process: Process, caller: CallerFacts) -> bool | None:
    with contextlib.suppress(OSError):
        return process.link("ns/user") == os.readlink(b"/proc/self/ns/user")
    # The link needs the very access that is in doubt. The map is open to all, and reads like the
    # reader's own map in no other namespace, but for a full map seen from the initial one.
    with contextlib.suppress(OSError, ProcessGone, NotPermitted):
        uid_map = " ".join(process.read("uid_map").decode("ascii", "replace").split())
        if uid_map != caller.uid_map:
            return False
    return None


def _text(path: str) -> str | None:
    with contextlib.suppress(OSError):
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    return None


def _fields(status: str) -> dict[str, str]:
    return {
        key: value.strip()
        for key, _, value in (line.partition(":") for line in status.splitlines())
    }
