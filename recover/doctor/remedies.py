"""What to type so that a way to the bytes opens: it depends on where the caller is.

In a container more rights come only from outside: a new process in the container with all
capabilities, or the host. Names in capitals are for the reader to fill in. Sources of the
spellings: docker-container-exec(1), podman-exec(1), kubectl-debug(1), systemd-run(1).
"""

from __future__ import annotations

import errno
import re

from .causes import Cause
from .place import Place
from .probes import Probes, Step
from .rights import CallerFacts, TargetFacts

_SHORT_ID = re.compile(r"[0-9a-f]{12}")
_NODE = "kubectl debug node/NODE -it --image=IMAGE --profile=sysadmin -- reef-recover"


def remedy_for(
    cause: Cause | None, caller: CallerFacts, target: TargetFacts, probes: Probes
) -> str | None:
    """Give the remedy for a cause; None where nothing helps or nothing is wrong."""
    if cause in (
        Cause.HIDEPID,
        Cause.OTHER_USER_NAMESPACE,
        Cause.OTHER_USER,
        Cause.NOT_DUMPABLE,
        Cause.MORE_CAPABILITIES,
        Cause.PERFMON_ONLY,
        Cause.PROC_FILES_OWNER,
        Cause.MISSING_CAPABILITY,
        Cause.FILE_MODE,
    ):
        return with_all_capabilities(caller, target)
    if cause is Cause.NOT_INITIAL_USER_NAMESPACE:
        return on_the_host(caller, target)
    if cause in (Cause.YAMA_DESCENDANTS, Cause.YAMA_CAPABILITY):
        return without_yama(caller, target)
    if cause is Cause.YAMA_NOBODY and not probes.works(Step.MAP_FILES_OPEN):
        return with_all_capabilities(caller, target)
    if cause is Cause.SECURITY_MODULE:
        return past_security_module(caller, target)
    if cause is Cause.NO_PAGE_MAP and probes.answers.get(Step.PAGEMAP) != errno.ENOENT:
        return with_all_capabilities(caller, target)
    if cause is Cause.ZOMBIE:
        return "`reef-recover pins` lists what was pinned while it lived."
    if cause is Cause.KERNEL_THREAD:
        return "`reef-recover scan` lists the processes that hold checkpoints."
    return None


def with_all_capabilities(caller: CallerFacts, target: TargetFacts) -> str:
    """Say how to run with every capability in the initial user namespace."""
    if not caller.initial_user_namespace:
        return on_the_host(caller, target)
    task = _task(target, target.pid)
    if caller.place in (Place.DOCKER, Place.PODMAN):
        return (
            f"On the host: `{caller.place.value} exec --privileged --user 0 {_container(caller)} "
            f"{caller.program} {task}`."
        )
    if caller.place is Place.KUBERNETES:
        return (
            f"`kubectl debug -it {caller.host_name} --target=CONTAINER --image=IMAGE "
            f"--profile=sysadmin -- reef-recover {task}`, with an image that has reef-recover."
        )
    if caller.place is Place.OTHER_CONTAINER:
        return on_the_host(caller, target)
    if caller.uid == 0:
        return (
            "This root lacks capabilities; outside of its confinement: "
            f"`systemd-run --pipe --wait --same-dir {caller.program} {task}`."
        )
    where = "In a shell that has not set no_new_privs: " if caller.no_new_privs else ""
    return f"{where}`sudo {caller.program} {task}`."


def on_the_host(caller: CallerFacts, target: TargetFacts) -> str:
    """Say how to run as root outside of every container and user namespace."""
    if caller.place in (Place.DOCKER, Place.PODMAN):
        engine = caller.place.value
        first = f"\"$({engine} inspect --format '{{{{.State.Pid}}}}' {_container(caller)})\""
        return f"On the host: `sudo reef-recover {_task(target, first)}`."
    same_id = caller.initial_pid_namespace
    task = _task(target, target.pid if same_id else "HOST_PID")
    hint = (
        ""
        if same_id or target.own_child
        else (f" (the process whose NSpid line in /proc/HOST_PID/status ends in {target.pid})")
    )
    if caller.place is Place.KUBERNETES:
        return f"`{_NODE} {task}`{hint}."
    place = "On the host" if caller.place is Place.OTHER_CONTAINER else "Outside of this namespace"
    program = "reef-recover" if caller.place is Place.OTHER_CONTAINER else caller.program
    return f"{place}: `sudo {program} {task}`{hint}."


def without_yama(caller: CallerFacts, target: TargetFacts) -> str:
    """Say how to get around Yama scopes 1 and 2, which spare CAP_SYS_PTRACE."""
    elevated = with_all_capabilities(caller, target)
    if caller.place is Place.HOST and caller.uid != 0 and caller.initial_user_namespace:
        return f"{elevated[:-1]}, or for every user: `sudo sysctl kernel.yama.ptrace_scope=0`."
    return elevated


def past_security_module(caller: CallerFacts, target: TargetFacts) -> str:
    """Say how to leave a confinement that capabilities do not lift.

    `docker exec --privileged` keeps the container's AppArmor profile (moby daemon/exec_linux.go).
    """
    if caller.place is not Place.HOST or not caller.initial_user_namespace:
        return on_the_host(caller, target)
    if caller.uid != 0 and not caller.no_new_privs:
        return with_all_capabilities(caller, target)
    return "`dmesg | grep -i denied` names the rule, where the module logs what it refuses."


def _task(target: TargetFacts, pid: int | str) -> str:
    return "scan" if target.own_child else f"dump --pid {pid}"


def _container(caller: CallerFacts) -> str:
    return caller.host_name if _SHORT_ID.fullmatch(caller.host_name) else "CONTAINER"
