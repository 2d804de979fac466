"""What `doctor` says of real processes, from callers with real rights: the permission matrix."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from victims import Answer, running

from reefkit.recover.doctor.rights import Capability, caller_facts

FULL = caller_facts()
IS_ROOT = FULL.uid == 0 and FULL.initial_user_namespace and FULL.has(Capability.CAP_SYS_ADMIN)
pytestmark = pytest.mark.skipif(
    not IS_ROOT, reason="gives rights up one by one: needs root with all capabilities"
)

DAC_READ_SEARCH, SYS_PTRACE, PERFMON, CHECKPOINT_RESTORE = 2, 19, 38, 40
# chown … setfcap: what a container gets where nothing else is asked for (moby oci/caps/defaults.go)
DOCKER = [0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31]

# Rights are given up inside a running interpreter: another user might not reach its files.
RESTRICT = """
import codecs, ctypes, json, locale, mmap, os, platform, struct, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
codecs.lookup("ascii")

def asked(result):
    assert result >= 0, os.strerror(ctypes.get_errno())
    return result

def refuse_process_vm_readv():
    number = {"x86_64": 310, "aarch64": 270}[platform.machine()]
    code = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (6, 0, 0, 0x50001), (6, 0, 0, 0x7FFF0000)]
    text = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in code))
    program = struct.pack("HxxxxxxQ", len(code), ctypes.addressof(text))
    asked(libc.prctl(38, 1, 0, 0, 0))
    asked(libc.prctl(22, 2, program, 0, 0))

def enter_landlock():
    ruleset = asked(libc.syscall(444, struct.pack("Q", 1), 8, 0))
    asked(libc.prctl(38, 1, 0, 0, 0))
    asked(libc.syscall(446, ruleset, 0))

def restrict(uid=0, gid=None, capabilities=None, dumpable=True, seccomp=False, landlock=False):
    if seccomp:
        refuse_process_vm_readv()
    if landlock:
        enter_landlock()
    if uid:
        asked(libc.prctl(8, 1, 0, 0, 0))
        os.setgroups([])
        os.setresgid(*[uid if gid is None else gid] * 3)
        os.setresuid(uid, uid, uid)
    if uid or capabilities is not None:
        low, high = divmod(sum(1 << c for c in capabilities or ()), 1 << 32)[::-1]
        header = struct.pack("Ii", 0x20080522, 0)
        asked(libc.capset(header, struct.pack("6I", low, low, 0, high, high, 0)))
    asked(libc.prctl(4, int(dumpable), 0, 0, 0))
"""

# Maps a file, loses its name, gives up rights, reports, waits; nothing regular stays open unasked.
VICTIM = (
    RESTRICT
    + """
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
path, rights = sys.argv[1], json.loads(sys.argv[2])
keeps, last = rights.pop("descriptor", False), rights.pop("leader_exits", False)
os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
fd = os.open(path, os.O_RDONLY)
address = libc.mmap(None, os.fstat(fd).st_size, mmap.PROT_READ, mmap.MAP_PRIVATE, fd, 0)
assert address != 2**64 - 1
if not keeps:
    os.close(fd)
os.unlink(path)
restrict(**rights)

def report_and_wait():
    print(json.dumps({"pid": os.getpid()}), flush=True)
    sys.stdin.read()
    os._exit(0)

if last:
    threading.Thread(target=report_and_wait).start()
    libc.pthread_exit(None)
report_and_wait()
"""
)

CALLER = (
    RESTRICT
    + """
import reefkit.cli, reefkit.commands.doctor
restrict(**json.loads(sys.argv[1]))
sys.exit(reefkit.cli.run(reefkit.cli.recover, sys.argv[2:]))
"""
)

Rights = Mapping[str, Any]


def doctor(
    *arguments: str | int, rights: Rights | None = None, prefix: Sequence[str] = ()
) -> Answer:
    done = subprocess.run(
        [
            *(*prefix, sys.executable, "-c", CALLER, json.dumps(rights or {})),
            *("doctor", "--json", *map(str, arguments)),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout, done.stderr
    return Answer(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def mapped_file() -> Iterator[Path]:
    """Make a file that every user can read, in a folder that every user can enter."""
    fd, name = tempfile.mkstemp(prefix="reefkit-doctor-", suffix=".safetensors")
    os.write(fd, b"x" * (1 << 20))
    os.fchmod(fd, 0o644)
    os.close(fd)
    yield Path(name)
    Path(name).unlink(missing_ok=True)


def causes(document: Mapping[str, Any]) -> dict[str, str | None]:
    """Give for each route `open`, or the code of what closes it."""
    return {
        row["route"]: "open" if row["open"] and row["cause"] is None else row["cause"]
        for row in document["routes"]
    }


ALL_OPEN = {"map_files": "open", "fd": "no-descriptor", "memory": "open"}


def only_memory(cause: str, *, yama_exempt: bool = False) -> dict[str, str]:
    """Say what is expected where map_files is closed; Yama may close memory, too."""
    memory = f"yama-scope-{FULL.yama_scope}" if FULL.yama_scope and not yama_exempt else "open"
    return {"map_files": cause, "fd": "no-descriptor", "memory": memory}


def nothing(cause: str) -> dict[str, str]:
    return dict.fromkeys(("map_files", "fd", "memory"), cause)


USER = {"uid": 1234}
MATRIX: dict[str, tuple[Rights, Rights, Mapping[str, str]]] = {
    "root with all capabilities": ({}, {}, ALL_OPEN),
    "root to a user": ({}, USER, ALL_OPEN),
    "the same user": (USER, USER, only_memory("missing-checkpoint-restore")),
    "the same user with CAP_CHECKPOINT_RESTORE": (
        {**USER, "capabilities": [CHECKPOINT_RESTORE]},
        USER,
        {**only_memory("open"), "map_files": "open"},
    ),
    "root with only CAP_SYS_PTRACE": (
        {"capabilities": [SYS_PTRACE]},
        {},
        only_memory("missing-checkpoint-restore", yama_exempt=True),
    ),
    "a container's root to its like": (
        {"capabilities": DOCKER},
        {"capabilities": DOCKER},
        only_memory("missing-checkpoint-restore"),
    ),
    "a container's root to a full root": (
        {"capabilities": DOCKER},
        {},
        nothing("target-has-more-capabilities"),
    ),
    "root with CAP_PERFMON to a user": (
        {"capabilities": [*DOCKER, PERFMON]},
        USER,
        nothing("perfmon-only"),
    ),
    "another user": (USER, {"uid": 4321}, nothing("other-user")),
    "the same user, another group": ({**USER, "gid": 99}, USER, nothing("other-user")),
    "a container's root to a user": ({"capabilities": DOCKER}, USER, nothing("other-user")),
    "another user with CAP_SYS_PTRACE": (
        {**USER, "capabilities": [SYS_PTRACE, CHECKPOINT_RESTORE]},
        {"uid": 4321},
        nothing("proc-files-of-another-user"),
    ),
    "another user with all that it takes": (
        {**USER, "capabilities": [SYS_PTRACE, CHECKPOINT_RESTORE, DAC_READ_SEARCH]},
        {"uid": 4321},
        ALL_OPEN,
    ),
    "not dumpable": (USER, {**USER, "dumpable": False}, nothing("not-dumpable")),
    "not dumpable, to root": ({}, {**USER, "dumpable": False}, ALL_OPEN),
    "not dumpable, of a container's root": (
        {"capabilities": DOCKER},
        {"capabilities": DOCKER, "dumpable": False},
        nothing("not-dumpable"),
    ),
    "a file held open": (
        USER,
        {**USER, "descriptor": True},
        {**only_memory("missing-checkpoint-restore"), "fd": "open"},
    ),
    "the main thread has exited": ({}, {"leader_exits": True}, ALL_OPEN),
    "process_vm_readv filtered out": (
        {"seccomp": True},
        {},
        {**ALL_OPEN, "memory": "process-vm-readv-refused"},
    ),
}


@pytest.mark.parametrize(("caller", "victim", "expected"), MATRIX.values(), ids=MATRIX.keys())
def test_each_row_of_the_permission_matrix(
    mapped_file: Path, caller: Rights, victim: Rights, expected: Mapping[str, str]
) -> None:
    with running(VICTIM, str(mapped_file), json.dumps(victim)) as target:
        answer = doctor("--pid", target["pid"], rights=caller)
    document = answer.json
    assert causes(document) == expected
    opened = [row["route"] for row in document["routes"] if row["open"]]
    assert document["best_route"] == (opened[0] if opened else None)
    assert answer.code == (0 if opened else 2)
    helpless = {row["cause"] for row in document["routes"] if not (row["open"] or row["remedy"])}
    assert helpless <= {"no-descriptor"}


def test_every_step_is_answered_as_the_kernel_answers_it(mapped_file: Path) -> None:
    refused = dict.fromkeys(("map_files_links", "mem"), "EACCES") | {"process_vm_readv": "EPERM"}
    with running(VICTIM, str(mapped_file), json.dumps(USER)) as target:
        monitor = doctor("--pid", target["pid"], rights={"capabilities": [*DOCKER, PERFMON]})
        stranger = doctor("--pid", target["pid"], rights={"uid": 4321})
        same = doctor("--pid", target["pid"], rights=USER)
    assert {"maps": "ok", **refused}.items() <= monitor.json["probes"].items()
    assert {"maps": "EACCES", **refused}.items() <= stranger.json["probes"].items()
    expected = {"map_files_links": "ok", "map_files_stat": "EPERM", "map_files_open": None}
    assert expected.items() <= same.json["probes"].items()


def test_a_file_of_another_mode_is_told_from_a_closed_route(mapped_file: Path) -> None:
    mapped_file.chmod(0o600)
    rights = {**USER, "capabilities": [CHECKPOINT_RESTORE]}
    with running(VICTIM, str(mapped_file), json.dumps({**USER, "descriptor": True})) as target:
        document = doctor("--pid", target["pid"], rights=rights).json
    assert causes(document) == {
        **only_memory("file-mode"),
        "fd": "file-mode",
    }


def test_dropped_bounding_set_is_seen_through_exec(mapped_file: Path) -> None:
    need("setpriv")
    prefix = ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all"]
    with running(VICTIM, str(mapped_file), json.dumps({"capabilities": []})) as target:
        document = doctor("--pid", target["pid"], prefix=prefix).json
    assert causes(document) == only_memory("missing-checkpoint-restore")
    assert document["caller"]["bounding"] == "0" * 16


def test_a_user_namespace_cannot_look_out(mapped_file: Path) -> None:
    need("unshare")
    with running(VICTIM, str(mapped_file), "{}") as target:
        answer = doctor("--pid", target["pid"], prefix=["unshare", "-Ur"])
    assert causes(answer.json) == nothing("other-user-namespace")
    assert not answer.json["caller"]["initial_user_namespace"]
    assert answer.code == 2


def test_capabilities_of_a_user_namespace_do_not_open_map_files(mapped_file: Path) -> None:
    need("unshare", "nsenter")
    with running(VICTIM, str(mapped_file), "{}", prefix=["unshare", "-Ur"]) as target:
        inside = ["nsenter", "--user", "--preserve-credentials", "--target", str(target["pid"])]
        answer = doctor("--pid", target["pid"], prefix=inside)
        outside = doctor("--pid", target["pid"])
    assert "CAP_SYS_ADMIN" in answer.json["caller"]["capabilities"]
    assert causes(answer.json) == only_memory("not-initial-user-namespace", yama_exempt=True)
    assert causes(outside.json) == ALL_OPEN


def test_a_landlock_domain_is_named_as_a_security_module(mapped_file: Path) -> None:
    with running(VICTIM, str(mapped_file), "{}") as target:
        if not landlock_is_there():
            pytest.skip("this kernel has no Landlock")
        document = doctor("--pid", target["pid"], rights={"landlock": True}).json
    assert causes(document) == nothing("security-module")


@pytest.mark.parametrize("hidepid", ["noaccess", "invisible", "ptraceable"])
def test_hidepid_is_told_from_a_process_that_is_not_there(mapped_file: Path, hidepid: str) -> None:
    need("unshare")
    if tuple(map(int, FULL.kernel.split(".")[:2])) < (5, 8):
        pytest.skip("before Linux 5.8 the option would hold for the whole pid namespace")
    # A mount of its own: to remount /proc would change it for everyone.
    mount = f'mount -t proc -o hidepid={hidepid} proc /proc && exec "$@"'
    prefix = ["unshare", "--mount", "--propagation", "private", "sh", "-c", mount, "sh"]
    with running(VICTIM, str(mapped_file), "{}") as target:
        hidden = doctor("--pid", target["pid"], rights=USER, prefix=prefix)
        absent = doctor("--pid", 1 << 22, rights=USER, prefix=prefix)
        root = doctor("--pid", target["pid"], prefix=prefix)
        own = doctor(rights=USER, prefix=prefix)
    assert (hidden.code, causes(hidden.json)) == (2, nothing("hidepid"))
    assert (absent.code, absent.json["code"]) == (2, "ProcessGone")
    assert causes(root.json) == ALL_OPEN
    assert own.json["caller"]["hidepid"] == hidepid
    assert own.json["routes"][1]["open"]


def test_a_zombie_holds_nothing() -> None:
    child = subprocess.Popen(["true"], stdout=subprocess.PIPE)
    try:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        answer = doctor("--pid", child.pid)
    finally:
        child.communicate()
    assert (answer.code, causes(answer.json)) == (2, nothing("zombie"))


def test_a_kernel_thread_holds_nothing() -> None:
    if Path("/proc/2/comm").read_bytes() != b"kthreadd\n":
        pytest.skip("no kernel thread is visible in this pid namespace")
    answer = doctor("--pid", 2)
    assert (answer.code, causes(answer.json)) == (2, nothing("kernel-thread"))


def test_a_process_that_is_not_there_is_an_error() -> None:
    answer = doctor("--pid", 1 << 22)
    assert (answer.code, answer.json["code"]) == (2, "ProcessGone")


@pytest.mark.parametrize(
    ("rights", "best"),
    [({}, "map_files"), (USER, "fd"), ({"capabilities": DOCKER}, "fd")],
    ids=["root", "user", "container"],
)
def test_without_a_pid_a_child_of_its_own_is_tried(rights: Rights, best: str) -> None:
    answer = doctor(rights=rights)
    document = answer.json
    assert (answer.code, document["target"], document["best_route"]) == (0, None, best)
    count = document["processes"]
    assert count["visible"] == sum(count[k] for k in ("accessible", "refused", "without_memory"))
    assert count["refused" if rights else "accessible"] > 0


def test_looking_makes_nothing_resident(mapped_file: Path) -> None:
    with running(VICTIM, str(mapped_file), "{}") as target:
        rollup = Path(f"/proc/{target['pid']}/smaps_rollup")
        before = resident(rollup)
        assert causes(doctor("--pid", target["pid"]).json) == ALL_OPEN
        assert resident(rollup) == before


def test_the_child_is_gone_afterwards() -> None:
    script = (
        "import os\nfrom reefkit.recover.doctor.probes import own_child\n"
        "with own_child() as child:\n    assert os.path.exists(f'/proc/{child.pid}')\n"
        "print(os.path.exists(f'/proc/{child.pid}'), child.pid)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("False ")


def resident(rollup: Path) -> list[str]:
    return [line for line in rollup.read_text().splitlines() if line.startswith(("Rss", "Swap:"))]


def landlock_is_there() -> bool:
    script = "import ctypes; print(ctypes.CDLL(None).syscall(444, None, 0, 1))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return int(done.stdout) > 0


def need(*tools: str) -> None:
    for tool in tools:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
