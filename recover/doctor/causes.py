"""Why a way to the bytes is closed: codes that programs can match, and a sentence for each."""

from __future__ import annotations

from enum import Enum

from ..routes import Route
from .probes import Probes
from .rights import CallerFacts, Capability, TargetFacts


class Cause(str, Enum):
    """Why a route is closed, or what is to be known about an open one."""

    ZOMBIE = "zombie"
    KERNEL_THREAD = "kernel-thread"
    HIDEPID = "hidepid"
    OTHER_USER_NAMESPACE = "other-user-namespace"
    OTHER_USER = "other-user"
    NOT_DUMPABLE = "not-dumpable"
    MORE_CAPABILITIES = "target-has-more-capabilities"
    PERFMON_ONLY = "perfmon-only"
    PROC_FILES_OWNER = "proc-files-of-another-user"
    SECURITY_MODULE = "security-module"
    NO_MAP_FILES = "no-map-files"
    NOTHING_MAPPED = "nothing-mapped"
    MISSING_CAPABILITY = "missing-checkpoint-restore"
    NOT_INITIAL_USER_NAMESPACE = "not-initial-user-namespace"
    FILE_MODE = "file-mode"
    NO_DESCRIPTOR = "no-descriptor"
    YAMA_DESCENDANTS = "yama-scope-1"
    YAMA_CAPABILITY = "yama-scope-2"
    YAMA_NOBODY = "yama-scope-3"
    NO_PAGE_MAP = "no-page-map"
    ONLY_MEM = "process-vm-readv-refused"
    ONLY_VM_READV = "mem-refused"
    UNEXPECTED = "unexpected-error"


_OPEN = {
    Route.MAP_FILES: "The file itself, from any mapping of it, at no cost to the process.",
    Route.FD: "The file itself, for files that the process holds open.",
    Route.MEMORY: "What the process sees of a file; its page map proves what is unmodified.",
}
_WORDS = {
    Cause.ZOMBIE: "The process has exited and waits to be reaped: it holds nothing any more.",
    Cause.KERNEL_THREAD: "This is a kernel thread: it has no memory and maps no files.",
    Cause.HIDEPID: (
        "The process runs, but /proc does not show it to this user (mount option hidepid, or a "
        "/proc of another pid namespace)."
    ),
    Cause.OTHER_USER_NAMESPACE: (
        "The process lives in another user namespace, in which this caller has no CAP_SYS_PTRACE."
    ),
    Cause.OTHER_USER: (
        "The process belongs to {owner}, this caller is {me} without CAP_SYS_PTRACE."
    ),
    Cause.NOT_DUMPABLE: (
        "The process is not dumpable (prctl PR_SET_DUMPABLE, or it changed its user): only "
        "CAP_SYS_PTRACE may look into it."
    ),
    Cause.MORE_CAPABILITIES: (
        "The process has capabilities that this caller lacks ({lacking}), and this caller has no "
        "CAP_SYS_PTRACE."
    ),
    Cause.PERFMON_ONLY: (
        "CAP_PERFMON or CAP_SYS_ADMIN opens the list of mappings, but their links and bytes need "
        "CAP_SYS_PTRACE."
    ),
    Cause.PROC_FILES_OWNER: (
        "CAP_SYS_PTRACE is there, but the files in /proc/{pid} belong to uid {files_owner}: "
        "CAP_DAC_READ_SEARCH is needed, too."
    ),
    Cause.SECURITY_MODULE: (
        "Users and capabilities would allow it: a security module (AppArmor, SELinux, Landlock) "
        "or a sandbox refuses{label}."
    ),
    Cause.NO_MAP_FILES: (
        "This kernel or sandbox has no /proc/PID/map_files, which says what is mapped."
    ),
    Cause.NOTHING_MAPPED: "The process maps no regular file.",
    Cause.MISSING_CAPABILITY: (
        "Opening a mapped file needs CAP_CHECKPOINT_RESTORE (Linux 5.9) or CAP_SYS_ADMIN."
    ),
    Cause.NOT_INITIAL_USER_NAMESPACE: (
        "Opening a mapped file needs a capability in the initial user namespace; {own_capability} "
        "here, inside another one."
    ),
    Cause.FILE_MODE: "The way is open, but the file's own mode refuses this user.",
    Cause.NO_DESCRIPTOR: (
        "The process holds no regular file open; what it only maps has no descriptor."
    ),
    Cause.YAMA_DESCENDANTS: (
        "Yama (kernel.yama.ptrace_scope=1) lets this user read the memory of its own descendants "
        "only."
    ),
    Cause.YAMA_CAPABILITY: "Yama (kernel.yama.ptrace_scope=2) demands CAP_SYS_PTRACE.",
    Cause.YAMA_NOBODY: (
        "Yama (kernel.yama.ptrace_scope=3) refuses everyone until the next boot; map_files is "
        "not affected."
    ),
    Cause.NO_PAGE_MAP: (
        "Memory can be read, but without /proc/PID/pagemap nothing proves that it is unmodified."
    ),
    Cause.ONLY_MEM: (
        "By /proc/PID/mem alone: process_vm_readv is refused, as by a seccomp filter{seccomp}."
    ),
    Cause.ONLY_VM_READV: "By process_vm_readv alone: /proc/PID/mem is refused.",
    Cause.UNEXPECTED: "The kernel answered {errors}.",
}


def explain(
    route: Route, cause: Cause | None, caller: CallerFacts, target: TargetFacts, probes: Probes
) -> str:
    """Say in one sentence what the cause is; without one, what the open route gives."""
    if cause is None:
        return _OPEN[route]
    lacking = target.permitted & ~caller.effective
    raised = caller.has(Capability.CAP_CHECKPOINT_RESTORE, Capability.CAP_SYS_ADMIN)
    failures = {k: v for k, v in probes.to_json().items() if v not in (None, "ok")}
    return _WORDS[cause].format(
        pid=target.pid,
        me=f"uid {caller.uid}, gid {caller.gid}",
        owner=f"uid {_ids(target.uids)}, gid {_ids(target.gids)}",
        lacking=_capability_names(lacking),
        files_owner=target.files_owner,
        label=f" (this one runs as {caller.security_label})" if caller.confined else "",
        own_capability="it counts for nothing" if raised else "none would count",
        seccomp=" (one is active here)" if caller.seccomp else "",
        errors=", ".join(f"{error} to {step}" for step, error in failures.items()),
    )


def _ids(ids: tuple[int, ...]) -> str:
    return "/".join(map(str, dict.fromkeys(ids[:3])))


def _capability_names(mask: int) -> str:
    """Name those that matter here, and give the number of the others."""
    names = [c.name for c in Capability if mask >> c & 1]
    others = mask.bit_count() - len(names)
    return ", ".join([*names, *([f"{others} others"] if others else [])])
