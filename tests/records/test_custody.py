"""The chain of custody as it is written: by several at once, through crashes, never over damage."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from reefkit.errors import Unusable
from reefkit.records import custody_lock
from reefkit.records.custody import Artifact, Link, append, extended, now, read, resumable
from reefkit.records.custody_lines import FILE, PREDICATE_TYPE, lines, order_fault

FILE_A = Artifact("step_8/a.safetensors", "a" * 64, 10, action="carried")
APPENDER = """
import sys
from pathlib import Path
from reefkit.records.custody import Artifact, Link, append
for number in range(int(sys.argv[2])):
    outputs = [Artifact(f"f{n}", "b" * 64, n) for n in range(50)]
    append(Path(sys.argv[1]), Link("stage", outputs=outputs))
    print(number, flush=True)
"""


def faults(data: bytes) -> list[str]:
    found = list(lines(data))
    pairs = zip([None, *found], found, strict=False)
    return [fault for before, line in pairs if (fault := order_fault(line, before)) is not None]


def appender(folder: Path, count: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", APPENDER, str(folder), str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


def test_a_link_is_an_in_toto_statement_that_names_the_line_before_it(tmp_path: Path) -> None:
    first = append(tmp_path, Link("dump", outputs=[FILE_A], verdict="FILE_EXACT", time=now()))
    second = append(tmp_path, Link("validate", inputs=[FILE_A]))
    one, two = (read(tmp_path) or b"").splitlines()
    assert first == hashlib.sha256(one).hexdigest()
    assert second == hashlib.sha256(two).hexdigest()
    statement = json.loads(one)
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == PREDICATE_TYPE
    assert statement["subject"] == [{"name": FILE_A.name, "digest": {"sha256": "a" * 64}}]
    predicate = statement["predicate"]
    assert (predicate["stage"], predicate["seq"], predicate["previous"]) == ("dump", 0, None)
    assert predicate["outputs"] == [
        {"name": FILE_A.name, "sha256": "a" * 64, "size": 10, "action": "carried"}
    ]
    assert predicate["tool"]["name"] == "reefkit"
    following = json.loads(two)["predicate"]
    assert (following["seq"], following["previous"]) == (1, {"sha256": first})
    assert following["run_id"] != predicate["run_id"]


def test_without_run_and_time_the_same_link_gives_the_same_bytes() -> None:
    link = Link("pack", outputs=[FILE_A], run_id=None)
    assert extended(b"", link) == extended(b"", link)
    assert b'"time":null' in extended(b"", link)


def test_a_resumed_link_names_the_one_that_it_resumes(tmp_path: Path) -> None:
    first = append(tmp_path, Link("dump", outputs=[FILE_A]))
    append(tmp_path, Link("validate", inputs=[FILE_A]))
    assert resumable(tmp_path, "dump") == first
    append(tmp_path, Link("dump", outputs=[FILE_A], resumes=first))
    last = json.loads((read(tmp_path) or b"").splitlines()[-1])
    assert last["predicate"]["resumes"] == first


def test_what_is_not_in_the_chain_cannot_be_resumed(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="holds no link"):
        append(tmp_path, Link("dump", outputs=[FILE_A], resumes="c" * 64))


DAMAGE: list[tuple[Callable[[bytes], bytes], str]] = [
    (lambda data: data[:-1], "line 2 is torn"),
    (lambda data: data[: len(data) - 40], "line 2 is torn"),
    (lambda data: data.split(b"\n", 1)[1], "line 1 is link 1"),
    (lambda data: data.replace(b'"dump"', b'"dumb"'), "names another predecessor"),
    (lambda data: data + b"\n", "is no statement"),
    (lambda data: data + data.splitlines(True)[1], "repeats the number"),
    (lambda data: b"\xff\xfe" + data, "line 1 is no statement"),
]


@pytest.mark.parametrize(("damage", "says"), DAMAGE)
def test_a_damaged_chain_is_never_bridged(
    tmp_path: Path, damage: Callable[[bytes], bytes], says: str
) -> None:
    append(tmp_path, Link("dump", outputs=[FILE_A]))
    append(tmp_path, Link("validate", inputs=[FILE_A]))
    broken = damage(read(tmp_path) or b"")
    (tmp_path / FILE).write_bytes(broken)
    with pytest.raises(Unusable, match=says) as caught:
        append(tmp_path, Link("repair", outputs=[FILE_A]))
    assert "custody.broken.jsonl" in (caught.value.remedy or "")
    assert (tmp_path / FILE).read_bytes() == broken


def test_a_new_chain_names_the_damaged_one_as_its_gap(tmp_path: Path) -> None:
    (tmp_path / "custody.broken.jsonl").write_bytes(b"torn")
    append(tmp_path, Link("repair", outputs=[FILE_A]))
    first, second = map(json.loads, (read(tmp_path) or b"").splitlines())
    assert first["predicate"]["stage"] == "continued"
    assert first["subject"] == [
        {
            "name": "custody.broken.jsonl",
            "digest": {"sha256": hashlib.sha256(b"torn").hexdigest()},
        }
    ]
    assert (second["predicate"]["stage"], second["predicate"]["seq"]) == ("repair", 1)


def test_a_link_follows_no_symbolic_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / FILE).symlink_to(outside)
    with pytest.raises(Unusable, match="Cannot write"):
        append(tmp_path / "in", Link("dump", outputs=[FILE_A]))
    assert outside.read_bytes() == b""


def test_the_chain_keeps_its_mode_and_leaves_nothing_beside(tmp_path: Path) -> None:
    append(tmp_path, Link("dump", outputs=[FILE_A]))
    os.chmod(tmp_path / FILE, 0o644)
    append(tmp_path, Link("dump", outputs=[FILE_A]))
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o644
    assert os.listdir(tmp_path) == [FILE]


def test_links_of_several_processes_at_once_are_all_there(tmp_path: Path) -> None:
    processes = [appender(tmp_path, 15) for _ in range(4)]
    for process in processes:
        process.communicate()
        assert process.returncode == 0
    data = read(tmp_path) or b""
    assert (data.count(b"\n"), faults(data)) == (60, [])


def test_a_killed_writer_leaves_the_old_chain_or_the_new_one(tmp_path: Path) -> None:
    written = 0
    for attempt in range(12):
        process = appender(tmp_path, 1000)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(attempt * 0.004)
        process.send_signal(signal.SIGKILL)
        told = 1 + process.stdout.read().count(b"\n")
        process.wait()
        process.stdout.close()
        data = read(tmp_path) or b""
        assert faults(data) == []
        assert data.count(b"\n") - written in (told, told + 1)
        written = data.count(b"\n")
    append(tmp_path, Link("dump", outputs=[FILE_A]))
    assert faults(read(tmp_path) or b"") == []
    assert os.listdir(tmp_path) == [FILE]


def test_without_locks_of_the_system_a_lock_file_keeps_others_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(custody_lock, "fcntl", None)
    monkeypatch.setattr(custody_lock, "PATIENCE", 0.05)
    with custody_lock.locked(tmp_path / FILE):
        with pytest.raises(Unusable, match="Another command keeps writing"):
            append(tmp_path, Link("dump", outputs=[FILE_A]))
    append(tmp_path, Link("dump", outputs=[FILE_A]))
    assert os.listdir(tmp_path) == [FILE]
