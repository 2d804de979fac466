"""A process is never taken for another, and what it maps is told exactly."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from victims import (
    HOSTILE_NAMES,
    WITHOUT_CAPABILITIES,
    eventually,
    mapping,
    reef,
    running,
    write_checkpoint,
)

from reefkit.errors import ProcessGone, Unusable
from reefkit.recover import linux
from reefkit.recover.mappings import parse_maps
from reefkit.recover.process import Life, Process, same_process
from reefkit.recover.tree import all_pids, descendants

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="it takes capabilities: run as root")

# A main thread, a worker and a listener; the name of one of the first two on stdin ends it.
THREADED = """
import ctypes, json, mmap, os, platform, sys, threading
with open(sys.argv[1], "rb") as file:
    held = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
ends = {"leader": threading.Event(), "worker": threading.Event()}
worker = threading.Thread(target=ends["worker"].wait)
worker.start()
def listen():
    for line in sys.stdin:
        ends[line.strip()].set()
    os._exit(0)
threading.Thread(target=listen).start()
print(json.dumps({"pid": os.getpid(), "worker": worker.native_id}), flush=True)
ends["leader"].wait()
ctypes.CDLL(None).syscall({"x86_64": 60}.get(platform.machine(), 93), 0)  # SYS_exit: this thread
"""


@contextmanager
def threaded(folder: Path) -> Generator[dict[str, Any], None, None]:
    checkpoint = write_checkpoint(folder / "a.safetensors")
    with running(THREADED, str(checkpoint.path)) as victim:
        yield victim


def end_thread(victim: dict[str, Any], name: str) -> None:
    victim["process"].stdin.write(f"{name}\n")
    victim["process"].stdin.flush()


def wait_for_thread(pid: int, tid: int) -> None:
    """Wait until a thread has exited: the main thread stays as a zombie, another vanishes."""

    def has_exited() -> bool:
        try:
            stat = Path(f"/proc/{pid}/task/{tid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return True
        return stat.rpartition(")")[2].split()[0] == "Z"

    eventually(has_exited)


def names_mapped(process: Process) -> set[bytes]:
    return {mapping.name for mapping in process.mappings()}


def no_pidfd(pid: int, flags: int = 0) -> int:
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))


def no_query(fd: int, flags: int = 0) -> Iterator[linux.Vma]:
    raise OSError(errno.ENOTTY, os.strerror(errno.ENOTTY))


@pytest.fixture(params=["pidfd", "no pidfd"])
def with_and_without_pidfd(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "no pidfd":
        monkeypatch.setattr(os, "pidfd_open", no_pidfd)


# --- life ----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("with_and_without_pidfd")
def test_running_then_zombie_then_gone() -> None:
    child = subprocess.Popen(["sleep", "60"])
    with Process(child.pid) as held:
        assert (held.life(), held.has_ended()) == (Life.RUNNING, False)
        held.send_signal(signal.SIGKILL)
        eventually(lambda: held.life() is Life.ZOMBIE)
        assert held.has_ended()
        with pytest.raises(ProcessGone, match="zombie"):
            held.mappings()
        child.wait()
        assert (held.life(), held.has_ended()) == (Life.GONE, True)
        for read in (held.mappings, held.open_files, held.identity, held.comm):
            with pytest.raises(ProcessGone):
                read()


def test_a_zombie_can_be_opened_and_is_told() -> None:
    child = subprocess.Popen(["sleep", "60"])
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    with Process(child.pid) as zombie:
        assert zombie.life() is Life.ZOMBIE
        with pytest.raises(ProcessGone, match="zombie"):
            zombie.open_files()
    child.wait()


def test_an_exited_main_thread_leaves_the_memory_to_another(tmp_path: Path) -> None:
    with threaded(tmp_path) as victim:
        end_thread(victim, "leader")
        with Process(victim["pid"]) as held:
            eventually(lambda: held.life() is Life.LEADER_EXITED)
            assert not held.has_ended()
            (found,) = [m for m in held.mappings() if m.name.endswith(b"a.safetensors")]
            os.close(held.open_memory("mem"))
            assert found.permissions == "r--s"
            assert held.identity().pid == victim["pid"]


@pytest.mark.parametrize("ended", [("leader",), ("leader", "worker")], ids="-".join)
def test_threads_that_exit_while_it_is_held_change_nothing(
    tmp_path: Path, ended: tuple[str, ...]
) -> None:
    with threaded(tmp_path) as victim, Process(victim["pid"]) as held:
        before = names_mapped(held)
        assert any(name.endswith(b"a.safetensors") for name in before)
        for name in ended:
            held.mappings()
            tid = victim["pid"] if name == "leader" else victim["worker"]
            end_thread(victim, name)
            wait_for_thread(victim["pid"], tid)
        assert not held.has_ended()
        assert names_mapped(held) == before


# Runs in a pid namespace of its own, where nothing else takes process ids.
REUSE = """
import errno, json, os, signal, subprocess, sys, time
from reefkit.errors import ProcessGone
from reefkit.recover.process import Process, same_process

def no_pidfd(pid, flags=0):
    raise OSError(errno.ENOSYS, "")

if sys.argv[1] == "no pidfd":
    os.pidfd_open = no_pidfd
first = subprocess.Popen(["sleep", "60"])
held = Process(first.pid)
while not (mapped := held.mappings()):  # exec has begun, and is not done
    time.sleep(0.005)
identity = held.identity()
first.kill()
first.wait()
time.sleep(0.05)
for _ in range(1000):
    with open("/proc/sys/kernel/ns_last_pid", "w") as last:
        last.write(str(first.pid - 1))
    second = subprocess.Popen(["sleep", "60"])
    if second.pid == first.pid:
        break
    second.kill()
    second.wait()
answers = {}
for name, call in {
    "comm": held.comm, "status": held.status, "identity": held.identity,
    "mappings": held.mappings, "mem": lambda: held.open_memory("mem"),
    "open_mapped": lambda: held.open_mapped(mapped[0]), "open_files": held.open_files,
    "descriptor": lambda: held.open_descriptor(0),
    "signal": lambda: held.send_signal(signal.SIGTERM),
}.items():
    try:
        answers[name] = repr(call())
    except ProcessGone:
        answers[name] = "gone"
with Process(second.pid) as other:
    same = same_process(identity.to_json(), other.identity().to_json())
    unharmed = other.life().value
print(json.dumps({
    "reused": first.pid == second.pid, "life": held.life().value, "ended": held.has_ended(),
    "answers": answers, "same": same, "unharmed": unharmed,
}))
"""


@dataclass(frozen=True)
class Reuse:
    """What a process that was held answered after its id went to another."""

    reused: bool
    life: str
    ended: bool
    answers: dict[str, str]
    same: bool
    unharmed: str


def reuse(variant: str) -> Reuse:
    done = subprocess.run(
        ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", REUSE, variant],
        stdout=subprocess.PIPE,
        check=True,
        timeout=60,
    )
    return Reuse(**json.loads(done.stdout))


@root_only
@pytest.mark.parametrize("variant", ["pidfd", "no pidfd"])
def test_a_reused_id_never_leads_to_the_new_process(variant: str) -> None:
    after = reuse(variant)
    assert after.reused
    assert (after.life, after.ended, after.same) == ("reused", True, False)
    assert set(after.answers.values()) == {"gone"}, after.answers


@root_only
@pytest.mark.parametrize("variant", ["pidfd", "no pidfd"])
def test_a_reused_id_is_never_signalled(variant: str) -> None:
    after = reuse(variant)
    assert (after.answers["signal"], after.unharmed) == ("gone", "running")


# --- who it is -----------------------------------------------------------------------------------


def test_a_process_that_does_not_exist_is_told() -> None:
    with pytest.raises(ProcessGone, match="There is no process 4194304") as caught:
        Process(1 << 22)  # the largest limit that the kernel allows is this, exclusive
    assert "scan" in str(caught.value.remedy)


def test_a_thread_is_refused_with_the_process_to_name(tmp_path: Path) -> None:
    with threaded(tmp_path) as victim:
        with pytest.raises(Unusable, match="is a thread of process") as caught:
            Process(victim["worker"])
        answer = reef("scan", "--pid", victim["worker"])
    assert caught.value.remedy == f"Use --pid {victim['pid']}."
    assert (answer.code, answer.out) == (2, "")
    assert f"Use --pid {victim['pid']}." in answer.err


def kernel_threads() -> list[int]:
    found: list[int] = []
    for pid in all_pids():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            flags = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[6]
            if int(flags) & 0x00200000:  # PF_KTHREAD, include/linux/sched.h
                found.append(pid)
    return found


@pytest.fixture
def kernel_thread() -> Process:
    found = kernel_threads()
    if not found:
        pytest.skip("this pid namespace shows no kernel thread")
    return Process(found[0])


@root_only
def test_a_kernel_thread_holds_nothing_and_is_still_running(kernel_thread: Process) -> None:
    with kernel_thread as held:
        assert held.life() is Life.RUNNING
        assert held.open_files() == ()
        assert held.identity().pid == held.pid


@root_only
def test_a_kernel_thread_has_no_mappings(kernel_thread: Process) -> None:
    with kernel_thread as held:
        assert held.mappings() == ()


@root_only
def test_a_kernel_thread_has_no_arguments(kernel_thread: Process) -> None:
    with kernel_thread as held:
        assert held.arguments() == ()


def test_an_identity_survives_json_and_fits_nobody_else() -> None:
    with Process(os.getpid()) as held:
        identity = held.identity()
    document = json.loads(json.dumps(identity.to_json()))
    assert same_process(identity.to_json(), document)
    for other in (
        replace(identity, pid=identity.pid + 1),
        replace(identity, start_ticks=identity.start_ticks + 1),
        replace(identity, boot_id="0" * 36),
    ):
        assert not same_process(other.to_json(), document)
    hostile: list[object] = [None, [], "pid", {}, {"pid": identity.pid}]
    assert not any(same_process(identity.to_json(), other) for other in hostile)


@root_only
def test_an_identity_has_the_ids_in_every_namespace() -> None:
    script = 'import sys; print("{}", flush=True); sys.stdin.read()'
    prefix = ("unshare", "--pid", "--fork", "--kill-child")
    with running(script, prefix=prefix) as victim:
        (inside,) = descendants(victim["process"].pid)
        with Process(inside) as held:
            assert held.identity().namespace_pids == (inside, 1)


@pytest.mark.parametrize("name", [b") S 1 (", b"a b", b"\xff\x1b[0m", b"tab\tcr\r"])
def test_a_hostile_process_name_is_bytes_and_shifts_no_field(name: bytes) -> None:
    script = """
import sys
with open("/proc/self/comm", "wb") as comm:
    comm.write(bytes.fromhex(sys.argv[1]))
print("{}", flush=True)
sys.stdin.read()
"""
    with running(script, name.hex()) as victim, Process(victim["process"].pid) as held:
        assert held.comm() == name
        assert held.life() is Life.RUNNING
        assert held.identity().uid == os.geteuid()
        assert held.arguments()[-1] == name.hex().encode()


@pytest.mark.parametrize("pid", [1 << 22, "thread"])
def test_no_descriptor_is_left_open(tmp_path: Path, pid: int | str) -> None:
    with threaded(tmp_path) as victim:
        before = os.listdir("/proc/self/fd")
        with pytest.raises((ProcessGone, Unusable)):
            Process(victim["worker"] if pid == "thread" else int(pid))
        with Process(victim["pid"]) as held:
            held.mappings()
            held.open_files()
            with pytest.raises(FileNotFoundError):
                held.open_descriptor(0)  # a pipe
        assert os.listdir("/proc/self/fd") == before


# --- where /proc hides processes -----------------------------------------------------------------

BEHIND_HIDEPID = (
    "unshare",
    "--mount",
    "sh",
    "-c",
    'mount -t proc -o "hidepid=$1" proc /proc && shift && exec "$@"',
    "sh",
)
OUTSIDER = (*WITHOUT_CAPABILITIES, "--regid", "65534", "--clear-groups")


@root_only
@pytest.mark.parametrize("hidepid", ["1", "2"])
def test_a_hidden_process_is_told_from_none(hidepid: str) -> None:
    prefix = (*BEHIND_HIDEPID, hidepid, *OUTSIDER)
    hidden = reef("scan", "--pid", 1, prefix=prefix)
    absent = reef("scan", "--pid", 1 << 22, prefix=prefix)
    assert (hidden.code, absent.code) == (2, 2)
    assert "Process 1 exists" in hidden.err
    assert "hidepid" in hidden.err
    assert "There is no process" in absent.err


@root_only
@pytest.mark.parametrize("hidepid", ["1", "2"])
def test_a_scan_passes_over_hidden_processes(hidepid: str) -> None:
    answer = reef("scan", prefix=(*BEHIND_HIDEPID, hidepid, *OUTSIDER))
    assert "looked at" in answer.err
    assert answer.code == 1


# --- mappings ------------------------------------------------------------------------------------


@pytest.fixture
def hostile(tmp_path: Path) -> Generator[dict[str, Any], None, None]:
    """A victim that maps files of every hostile name; half of them are deleted."""
    paths = [os.fsencode(tmp_path) + b"/" + name for name in HOSTILE_NAMES]
    for path in paths:
        with open(path, "wb") as file:
            file.write(bytes(10_000))
    kinds = ("private", "readonly", "shared")
    plans = [{"path": os.fsdecode(p), "kind": kinds[i % 3]} for i, p in enumerate(paths)]
    with mapping(*plans) as victim:
        for path in paths[::2]:
            os.unlink(path)
        expected = {p + (b"" if i % 2 else b" (deleted)") for i, p in enumerate(paths)}
        yield {**victim, "expected": expected, "folder": os.fsencode(tmp_path)}


def test_names_are_the_bytes_of_the_link(hostile: dict[str, Any]) -> None:
    with Process(hostile["pid"]) as held:
        found = {name for name in names_mapped(held) if name.startswith(hostile["folder"])}
    assert found == hostile["expected"]


@pytest.mark.parametrize(
    "flags",
    [0, linux.READABLE, linux.WRITABLE, linux.EXECUTABLE, linux.SHARED, linux.SHARED | 2],
)
def test_both_ways_to_list_mappings_agree(
    hostile: dict[str, Any], monkeypatch: pytest.MonkeyPatch, flags: int
) -> None:
    with Process(hostile["pid"]) as held:
        asked = held.mappings(flags)
        monkeypatch.setattr(linux, "query_mappings", no_query)
        parsed = held.mappings(flags)
    assert asked == parsed
    assert asked
    assert all(m.flags & flags == flags for m in asked)
    assert [m.start for m in asked] == sorted(m.start for m in asked)


@pytest.mark.parametrize(
    ("kind", "shown"), [("private", "rw-p"), ("readonly", "r--s"), ("shared", "rw-s")]
)
def test_a_part_of_a_file_is_described_exactly(tmp_path: Path, kind: str, shown: str) -> None:
    path = tmp_path / "a"
    path.write_bytes(bytes(5 * 4096 + 1))
    info = path.stat()
    plan = {"path": path, "kind": kind, "offset": 4096, "stop": 3 * 4096}
    with mapping(plan) as victim, Process(victim["pid"]) as held:
        (found,) = [m for m in held.mappings() if m.name == os.fsencode(path)]
        maps = Path(f"/proc/{victim['pid']}/maps").read_text()
    assert found.file_range == (4096, 3 * 4096)
    assert (found.inode, found.permissions) == (info.st_ino, shown)
    (line,) = [line for line in maps.splitlines() if line.endswith(str(path))]
    assert line.split()[:2] == [f"{found.start:08x}-{found.stop:08x}", shown]


@root_only
def test_a_mapping_leads_to_the_inode_and_a_vanished_one_nowhere(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"content")
    with mapping({"path": path, "kind": "private"}) as victim, Process(victim["pid"]) as held:
        path.unlink()
        (found,) = [m for m in held.mappings() if m.name.startswith(os.fsencode(path))]
        fd = held.open_mapped(found)
        assert os.read(fd, 100) == b"content"
        os.close(fd)
        with pytest.raises(FileNotFoundError):
            held.open_mapped(replace(found, stop=found.stop + 4096))


def test_an_open_file_is_listed_with_its_way_of_access(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"content")
    plans = [{"path": path, "kind": kind, "descriptor": True} for kind in ("readonly", "shared")]
    with mapping(*plans) as victim, Process(victim["pid"]) as held:
        found = [f for f in held.open_files() if f.name == os.fsencode(path)]
        assert sorted(held.may_write(f.number) for f in found) == [False, True]
        assert {(f.size, f.inode) for f in found} == {(7, path.stat().st_ino)}
        fd = held.open_descriptor(found[0].number)
        assert os.read(fd, 100) == b"content"
        os.close(fd)


# Runs where paths are longer than a page, which the kernel has no text for.
DEEP = """
import json, mmap, os, sys
for _ in range(20):
    os.mkdir("d" * 250)
    os.chdir("d" * 250)
with open("a", "wb") as file:
    file.write(bytes.fromhex(sys.argv[1]))
with open("a", "rb") as file:
    held = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
print("{}", flush=True)
sys.stdin.read()
"""


def test_a_path_longer_than_a_page_gives_a_mapping_without_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with running(DEEP, bytes(10).hex()) as victim, Process(victim["process"].pid) as held:
        assert b"" in names_mapped(held)


@root_only
def test_a_file_whose_path_is_longer_than_a_page_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = write_checkpoint(tmp_path / "run" / "a.safetensors", [("t", "U8", (4000,))])
    monkeypatch.chdir(tmp_path)
    with running(DEEP, checkpoint.data.hex()) as victim:
        pid = victim["process"].pid
        answer = reef("dump", "--pid", pid, "--match", "*", "--out", tmp_path / "out")
    assert answer.code == 0, answer.err
    assert (tmp_path / "out" / "unnamed").read_bytes() == checkpoint.data


def test_an_open_file_with_a_path_longer_than_a_page_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with running(DEEP, bytes(10).hex()) as victim, Process(victim["process"].pid) as held:
        assert 10 in [file.size for file in held.open_files()]


# --- the text of maps ----------------------------------------------------------------------------


@st.composite
def maps_lines(draw: st.DrawFn) -> tuple[linux.Vma, bytes]:
    """A mapping, and its line as fs/proc/task_mmu.c prints it: only newlines are escaped."""
    start = draw(st.integers(0, 2**47)) & ~0xFFF
    major, minor = draw(st.integers(0, 0xFFF)), draw(st.integers(0, 0xFFFFF))
    vma = linux.Vma(
        start=start,
        stop=start + 4096 * draw(st.integers(1, 2**20)),
        flags=draw(st.integers(0, 15)),
        offset=4096 * draw(st.integers(0, 2**30)),
        device=os.makedev(major, minor),
        inode=draw(st.integers(0, 2**64 - 1)),
    )
    letters = "".join(c if vma.flags >> i & 1 else "-" for i, c in enumerate("rwx"))
    head = f"{vma.start:08x}-{vma.stop:08x} {letters}{'s' if vma.flags & 8 else 'p'} "
    head += f"{vma.offset:08x} {major:02x}:{minor:02x} {vma.inode}"
    name = draw(st.binary(max_size=30)).replace(b"\0", b"").replace(b"\n", b"\\012")
    return vma, head.encode().ljust(73) + name.replace(b"\r", b"") + b"\n"


@given(st.lists(maps_lines()))
def test_the_numbers_of_maps_are_parsed_whatever_the_names(
    lines: list[tuple[linux.Vma, bytes]],
) -> None:
    text = b"".join(line for _, line in lines)
    assert parse_maps(text) == [vma for vma, _ in lines if vma.inode]


@pytest.mark.parametrize(
    "name", [b"x\ra b c d 5 e", b"x\r00400000-00500000 r-xp 00000000 08:02 12 forged"]
)
def test_a_carriage_return_in_a_name_forges_no_mapping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: bytes
) -> None:
    path = os.fsencode(tmp_path) + b"/" + name
    with open(path, "wb") as file:
        file.write(bytes(4096))
    with mapping({"path": os.fsdecode(path), "kind": "private"}) as victim:
        with Process(victim["pid"]) as held:
            expected = len(held.mappings())
        text = Path(f"/proc/{victim['pid']}/maps").read_bytes()
    assert len(parse_maps(text)) == expected
