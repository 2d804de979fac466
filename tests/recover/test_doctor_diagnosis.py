"""What `doctor` concludes from facts that few machines can make: Yama, containers, modules."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from reefkit.recover.doctor.causes import Cause, explain
from reefkit.recover.doctor.place import Place, place_of
from reefkit.recover.doctor.probes import Probes, Step, resident_address
from reefkit.recover.doctor.report import Row, diagnose
from reefkit.recover.doctor.rights import CallerFacts, Capability, TargetFacts, hidepid_of
from reefkit.recover.process import Life
from reefkit.recover.routes import Route

USER = CallerFacts(
    uid=1000,
    gid=1000,
    effective=0,
    bounding=(1 << 41) - 1,
    initial_user_namespace=True,
    initial_pid_namespace=True,
    uid_map="0 0 4294967295",
    yama_scope=None,
    seccomp=0,
    no_new_privs=False,
    security_label=None,
    place=Place.HOST,
    host_name="node7",
    hidepid=None,
    kernel="6.18.0",
    procmap_query=True,
    pagemap_scan=True,
)
SERVER = TargetFacts(
    pid=4242,
    command="server",
    uids=(1000,) * 4,
    gids=(1000,) * 4,
    same_user_namespace=True,
    namespace_pids=(4242,),
    files_owner=1000,
    dumpable=True,
)
TRACER = 1 << Capability.CAP_SYS_PTRACE
NO_LINK: dict[str, int | None] = {"map_files_stat": errno.EPERM, "map_files_open": None}
NO_MEMORY: dict[str, int | None] = {"mem": errno.EACCES, "process_vm_readv": errno.EPERM}
NO_LOOK: dict[str, int | None] = {
    "maps": errno.EACCES,
    "map_files_list": errno.EACCES,
    "map_files_links": errno.EACCES,
    "map_files_stat": None,
    "map_files_open": None,
    "fd_list": errno.EACCES,
    "fd_open": None,
    "pagemap": errno.EACCES,
    **NO_MEMORY,
}
DOCKER: dict[str, Any] = {
    "uid": 0,
    "place": Place.DOCKER,
    "host_name": "0123456789ab",
    "initial_pid_namespace": False,
}
KUBERNETES: dict[str, Any] = {**DOCKER, "place": Place.KUBERNETES, "host_name": "rollout-0"}
INNER: dict[str, Any] = {"initial_user_namespace": False, "uid_map": "0 100000 65536"}


Answers = Mapping[str, int | None]


def rows(
    answers: Answers, caller: CallerFacts = USER, target: TargetFacts = SERVER
) -> dict[str, Row]:
    """Diagnose, where every step works that is not named; None means not tried."""
    steps = {step: answers.get(step.value, 0) for step in Step}
    probes = Probes({step: answer for step, answer in steps.items() if answer is not None})
    return {row.route.value: row for row in diagnose(caller, target, probes)}


@pytest.mark.parametrize(
    ("scope", "capabilities", "cause"),
    [
        (None, 0, Cause.SECURITY_MODULE),
        (0, 0, Cause.SECURITY_MODULE),
        (1, 0, Cause.YAMA_DESCENDANTS),
        (1, TRACER, Cause.SECURITY_MODULE),
        (2, 0, Cause.YAMA_CAPABILITY),
        (2, TRACER, Cause.SECURITY_MODULE),
        (3, 0, Cause.YAMA_NOBODY),
        (3, TRACER, Cause.YAMA_NOBODY),
    ],
)
def test_refused_memory_is_laid_at_the_scope_that_refuses_it(
    scope: int | None, capabilities: int, cause: Cause
) -> None:
    found = rows(NO_MEMORY, replace(USER, yama_scope=scope, effective=capabilities))
    assert (found["memory"].open, found["memory"].cause) == (False, cause)
    assert found["map_files"].open


def test_yama_that_spares_ones_own_child_is_mentioned() -> None:
    caller = replace(USER, yama_scope=1)
    child = rows({}, caller, replace(SERVER, own_child=True))["memory"]
    assert (child.open, child.cause) == (True, Cause.YAMA_DESCENDANTS)
    assert rows({}, caller)["memory"].cause is None


def test_yama_can_be_lifted_by_its_setting_or_by_root() -> None:
    remedy = rows(NO_MEMORY, replace(USER, yama_scope=2))["memory"].remedy
    assert remedy == (
        "`sudo reef-recover dump --pid 4242`, or for every user: "
        "`sudo sysctl kernel.yama.ptrace_scope=0`."
    )
    assert rows(NO_MEMORY, replace(USER, yama_scope=3))["memory"].remedy is None


@pytest.mark.parametrize(
    ("caller", "remedy"),
    [
        ({}, "`sudo reef-recover dump --pid 4242`."),
        ({"program": "/opt/venv/bin/reef-recover"}, "`sudo /opt/venv/bin/reef-recover dump --pid"),
        ({"no_new_privs": True}, "In a shell that has not set no_new_privs: `sudo reef-recover"),
        ({"uid": 0}, "`systemd-run --pipe --wait --same-dir reef-recover dump --pid 4242`."),
        (
            DOCKER,
            "On the host: `docker exec --privileged --user 0 0123456789ab reef-recover dump "
            "--pid 4242`.",
        ),
        ({**DOCKER, "host_name": "trainer"}, "`docker exec --privileged --user 0 CONTAINER reef"),
        ({**DOCKER, "place": Place.PODMAN}, "On the host: `podman exec --privileged --user 0 0123"),
        (
            KUBERNETES,
            "`kubectl debug -it rollout-0 --target=CONTAINER --image=IMAGE --profile=sysadmin -- "
            "reef-recover dump --pid 4242`",
        ),
        (
            {**DOCKER, "place": Place.OTHER_CONTAINER},
            "On the host: `sudo reef-recover dump --pid HOST_PID` (the process whose NSpid line",
        ),
    ],
)
def test_the_remedy_for_a_missing_capability_fits_the_place(
    caller: dict[str, Any], remedy: str
) -> None:
    row = rows(NO_LINK, replace(USER, **caller))["map_files"]
    assert row.cause is Cause.MISSING_CAPABILITY
    assert row.remedy is not None and remedy in row.remedy


@pytest.mark.parametrize("capabilities", [0, 1 << Capability.CAP_SYS_ADMIN])
@pytest.mark.parametrize(
    ("caller", "remedy"),
    [
        ({}, "Outside of this namespace: `sudo reef-recover dump --pid 4242`."),
        (
            DOCKER,
            "On the host: `sudo reef-recover dump "
            "--pid \"$(docker inspect --format '{{.State.Pid}}' 0123456789ab)\"`.",
        ),
        (
            KUBERNETES,
            "`kubectl debug node/NODE -it --image=IMAGE --profile=sysadmin -- reef-recover dump "
            "--pid HOST_PID` (the process whose NSpid line in /proc/HOST_PID/status ends in 4242).",
        ),
    ],
)
def test_inside_a_user_namespace_only_the_host_helps(
    caller: dict[str, Any], remedy: str, capabilities: int
) -> None:
    inner = replace(USER, **{**caller, **INNER, "effective": capabilities})
    row = rows(NO_LINK, inner)["map_files"]
    assert (row.cause, row.remedy) == (Cause.NOT_INITIAL_USER_NAMESPACE, remedy)


def test_more_rights_inside_a_user_namespace_are_not_asked_for() -> None:
    inner = replace(USER, **DOCKER, **INNER)
    row = rows(NO_LOOK, inner, replace(SERVER, permitted=1))["memory"]
    assert row.cause is Cause.OTHER_USER
    assert row.remedy is not None and row.remedy.startswith("On the host: `sudo reef-recover dump")


def test_a_confined_container_is_left_for_the_host_and_its_profile_named() -> None:
    caller = replace(USER, **DOCKER, effective=TRACER, security_label="docker-default (enforce)")
    row = rows(NO_MEMORY, caller)["memory"]
    assert row.cause is Cause.SECURITY_MODULE
    assert "runs as docker-default (enforce)" in row.explanation
    assert row.remedy is not None and "docker inspect" in row.remedy


@pytest.mark.parametrize(
    ("caller", "target", "cause"),
    [
        ({}, {}, Cause.SECURITY_MODULE),
        ({}, {"uids": (0, 0, 0, 0), "dumpable": None}, Cause.OTHER_USER),
        ({}, {"uids": (1000, 1000, 0, 1000)}, Cause.OTHER_USER),
        ({}, {"gids": (1000, 4, 1000, 4)}, Cause.OTHER_USER),
        ({}, {"files_owner": 0, "dumpable": False}, Cause.NOT_DUMPABLE),
        ({}, {"permitted": 1 << 12}, Cause.MORE_CAPABILITIES),
        ({}, {"dumpable": None}, Cause.NOT_DUMPABLE),
        ({"security_label": "snap.x (enforce)"}, {"dumpable": None}, Cause.SECURITY_MODULE),
        ({"security_label": "unconfined"}, {"dumpable": None}, Cause.NOT_DUMPABLE),
        ({}, {"same_user_namespace": False}, Cause.OTHER_USER_NAMESPACE),
        ({"effective": TRACER}, {"files_owner": 0}, Cause.PROC_FILES_OWNER),
        ({"effective": TRACER}, {"same_user_namespace": False}, Cause.SECURITY_MODULE),
        (
            {"effective": TRACER, **INNER},
            {"same_user_namespace": False},
            Cause.OTHER_USER_NAMESPACE,
        ),
        ({"effective": 1 << Capability.CAP_PERFMON}, {"uids": (0,) * 4}, Cause.OTHER_USER),
        ({}, {"hidden": True}, Cause.HIDEPID),
        ({}, {"kernel_thread": True}, Cause.KERNEL_THREAD),
        ({}, {"life": Life.ZOMBIE}, Cause.ZOMBIE),
    ],
)
def test_one_cause_closes_every_route(
    caller: dict[str, Any], target: dict[str, Any], cause: Cause
) -> None:
    found = rows(NO_LOOK, replace(USER, **caller), replace(SERVER, **target))
    assert {(row.open, row.cause) for row in found.values()} == {(False, cause)}


def test_what_the_target_has_more_is_named() -> None:
    more = replace(SERVER, permitted=1 << Capability.CAP_SYS_ADMIN | 0b11 << 12)
    assert "(CAP_SYS_ADMIN, 2 others)" in rows(NO_LOOK, target=more)["memory"].explanation


def test_one_refused_way_into_memory_is_enough_of_a_hint() -> None:
    filtered = rows({"process_vm_readv": errno.EPERM}, replace(USER, seccomp=2))["memory"]
    assert (filtered.open, filtered.cause) == (True, Cause.ONLY_MEM)
    assert "one is active here" in filtered.explanation
    closed = rows({"mem": errno.EACCES})["memory"]
    assert (closed.open, closed.cause) == (True, Cause.ONLY_VM_READV)


@pytest.mark.parametrize(("answer", "can_be_mended"), [(errno.EACCES, True), (errno.ENOENT, False)])
def test_memory_without_a_page_map_is_open_but_proves_nothing(
    answer: int, can_be_mended: bool
) -> None:
    row = rows({"pagemap": answer})["memory"]
    assert (row.open, row.cause) == (True, Cause.NO_PAGE_MAP)
    assert (row.remedy is not None) == can_be_mended


def test_a_sandbox_without_map_files_still_has_descriptors() -> None:
    found = rows({"map_files_list": errno.ENOENT, "map_files_stat": None, "map_files_open": None})
    assert found["fd"].open
    assert found["map_files"].cause is found["memory"].cause is Cause.NO_MAP_FILES


def test_an_answer_that_no_rule_explains_is_quoted() -> None:
    row = rows({"map_files_stat": errno.ESTALE, "map_files_open": None})["map_files"]
    assert row.cause is Cause.UNEXPECTED
    assert row.explanation == "The kernel answered ESTALE to map_files_stat."


@pytest.mark.parametrize("cause", Cause)
def test_every_cause_is_one_sentence(cause: Cause) -> None:
    text = explain(Route.MEMORY, cause, USER, SERVER, Probes({Step.MEM: errno.EACCES}))
    assert text.endswith(".") and "{" not in text


@pytest.mark.parametrize(
    ("environment", "marks", "cgroup", "manager", "place"),
    [
        ({}, [], "0::/user.slice", "", Place.HOST),
        ({}, ["/.dockerenv"], "0::/", "", Place.DOCKER),
        ({}, [], "4:memory:/docker/0123", "", Place.DOCKER),
        ({}, ["/run/.containerenv"], "0::/", "", Place.PODMAN),
        ({}, [], "0::/machine.slice/libpod-01.scope", "", Place.PODMAN),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, ["/.dockerenv"], "", "", Place.KUBERNETES),
        ({}, ["/var/run/secrets/kubernetes.io"], "", "", Place.KUBERNETES),
        ({}, [], "0::/kubepods.slice/pod1", "", Place.KUBERNETES),
        ({}, [], "", "lxc", Place.OTHER_CONTAINER),
        ({"APPTAINER_CONTAINER": "/x.sif"}, [], "", "", Place.OTHER_CONTAINER),
    ],
)
def test_the_kind_of_container_is_told_by_its_marks(
    environment: dict[str, str], marks: list[str], cgroup: str, manager: str, place: Place
) -> None:
    assert place_of(environment, marks, cgroup, manager) is place


@pytest.mark.parametrize(
    ("options", "hidepid"),
    [("rw", None), ("rw,gid=4,hidepid=invisible", "invisible"), ("rw,hidepid=0", None)],
)
def test_the_last_mount_on_proc_says_whether_it_hides(options: str, hidepid: str | None) -> None:
    mountinfo = (
        "21 1 0:19 / /proc rw,relatime shared:5 - proc proc rw,hidepid=2\n"
        f"90 21 0:50 / /proc rw - proc proc {options}\n"
        "91 90 0:51 / /proc/sys/x rw - autofs systemd-1 rw\n"
    )
    assert hidepid_of(mountinfo) == hidepid


STACK = b"7ffc1000-7ffc3000 rw-p 00000000 00:00 0                          [stack]\n"
CODE = (
    b"55d0000-55d1000 r--p 00000000 08:01 7                          /bin/a [stack]\n"
    b"55d1000-55d2000 r-xp 00001000 08:01 7                          /bin/a\n"
)


@pytest.mark.parametrize(
    ("maps", "address"), [(CODE + STACK, 0x7FFC2FFF), (CODE, 0x55D1000), (b"", None)]
)
def test_the_byte_that_is_read_lies_on_a_page_that_is_there(
    maps: bytes, address: int | None
) -> None:
    assert resident_address(maps) == address
