"""Pins: what is held outlives whatever happens to the process that mapped it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from victims import WITHOUT_CAPABILITIES, dump_json, lost, mapping, reef, write_checkpoint

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="map_files needs a capability: run as root"
)


@pytest.fixture
def unpinned() -> Iterator[list[int]]:
    """Collects target process ids; whatever is still pinned of them is let go at the end."""
    targets: list[int] = []
    yield targets
    for pid in targets:
        reef("unpin", "--pid", pid)


def pins_of(pid: int) -> list[dict[str, object]]:
    found = reef("pins", "--json").json["pins"]
    return [pin for pin in found if pin["target"]["pid"] == pid]


def test_a_pinned_file_outlives_its_process(tmp_path: Path, unpinned: list[int]) -> None:
    checkpoint = write_checkpoint(tmp_path / "run" / "step_8" / "adapter_model.safetensors")
    with lost(checkpoint) as victim:
        pid = victim["pid"]
        unpinned.append(pid)
        pinned = reef("pin", "--pid", pid, "--json")
    assert pinned.code == 0
    assert [f["name"] for f in pinned.json["files"]] == [str(checkpoint.path)]
    (pin,) = pins_of(pid)
    assert pin["holder"] == pinned.json["holder"]
    code, document = dump_json(pid, tmp_path / "out")
    assert (code, document["verdict"]) == (0, "FILE_EXACT")
    (file,) = document["files"]
    assert file["path"].endswith("/run/step_8/adapter_model.safetensors")
    assert (file["sha256"], file["source"]["state"]) == (checkpoint.sha256, "deleted")
    assert document["process"]["pid"] == pid
    assert reef("unpin", "--pid", pid).code == 0
    assert not pins_of(pid)
    assert reef("dump", "--pid", pid, "--out", tmp_path / "gone").code == 2


def test_an_interrupted_dump_goes_on_from_the_pin(tmp_path: Path, unpinned: list[int]) -> None:
    checkpoint = write_checkpoint(tmp_path / "run" / "a.safetensors", [("t", "U8", (1 << 20,))])
    with lost(checkpoint) as victim:
        unpinned.append(victim["pid"])
        reef("pin", "--pid", victim["pid"])
        code, _ = dump_json(victim["pid"], tmp_path / "out")
        assert code == 0
    again = reef("dump", "--pid", victim["pid"], "--out", tmp_path / "out")
    assert again.code == 2
    assert "exists already" in again.err
    forced = reef("dump", "--pid", victim["pid"], "--out", tmp_path / "out", "--force")
    assert forced.code == 0


def test_the_holder_keeps_descriptors_and_nothing_else(tmp_path: Path, unpinned: list[int]) -> None:
    checkpoint = write_checkpoint(tmp_path / "run" / "a.safetensors")
    with lost(checkpoint) as victim:
        unpinned.append(victim["pid"])
        holder = Path(f"/proc/{reef('pin', '--pid', victim['pid'], '--json').json['holder']}")
        status = dict(line.split(":\t", 1) for line in (holder / "status").read_text().splitlines())
        links = sorted(os.readlink(fd) for fd in (holder / "fd").iterdir())
        os.kill(int(holder.name), signal.SIGHUP)
    assert {status[f"Cap{kind}"].strip() for kind in ("Inh", "Prm", "Eff", "Amb")} == {"0" * 16}
    assert status["NoNewPrivs"] == "1"
    assert set(links) == {
        "/dev/null",
        "/memfd:reefkit-pin (deleted)",
        f"{checkpoint.path} (deleted)",
    }
    assert (holder / "mem").stat().st_uid == 0
    refused = subprocess.run(
        [
            "setpriv",
            "--bounding-set",
            "-all",
            "--inh-caps",
            "-all",
            "readlink",
            str(holder / "fd" / "0"),
        ],
        capture_output=True,
        check=False,
    )
    assert refused.returncode != 0, "root without CAP_SYS_PTRACE must not reach the descriptors"
    assert holder.exists(), "a hang-up must not end the holder"


def test_a_pin_with_a_timeout_lets_go(tmp_path: Path, unpinned: list[int]) -> None:
    checkpoint = write_checkpoint(tmp_path / "run" / "a.safetensors")
    with lost(checkpoint) as victim:
        unpinned.append(victim["pid"])
        assert reef("pin", "--pid", victim["pid"], "--timeout", "1").code == 0
        deadline = time.monotonic() + 10
        while pins_of(victim["pid"]) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not pins_of(victim["pid"])


def test_where_nothing_can_be_opened_pin_says_so_and_offers_dump(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "run" / "a.safetensors")
    with mapping(
        {"path": checkpoint.path, "kind": "private"}, prefix=WITHOUT_CAPABILITIES
    ) as victim:
        checkpoint.path.unlink()
        refused = reef("pin", "--pid", victim["pid"], prefix=WITHOUT_CAPABILITIES)
        saved = reef(
            "dump",
            "--pid",
            victim["pid"],
            "--out",
            tmp_path / "out",
            "--json",
            prefix=WITHOUT_CAPABILITIES,
        )
    assert refused.code == 2
    assert f"reef-recover dump --pid {victim['pid']}" in refused.err
    assert (saved.code, saved.json["verdict"]) == (0, "MEMORY_CLEAN")
    assert saved.json["files"][0]["sha256"] == checkpoint.sha256


def test_a_reused_process_id_is_not_taken_for_the_pinned_one(
    tmp_path: Path, unpinned: list[int]
) -> None:
    checkpoint = write_checkpoint(tmp_path / "run" / "a.safetensors")
    with lost(checkpoint) as victim:
        pid = victim["pid"]
        unpinned.append(pid)
        holder = reef("pin", "--pid", pid, "--json").json["holder"]
    with reused(pid):
        refused = reef("dump", "--pid", pid, "--out", tmp_path / "out")
        by_holder, document = dump_json(holder, tmp_path / "out")
    assert refused.code == 2
    assert f"--pid {holder}" in refused.err
    assert (by_holder, document["files"][0]["sha256"]) == (0, checkpoint.sha256)
    assert document["process"]["pid"] == pid


class reused:
    """Start processes until one has the given id."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def __enter__(self) -> None:
        for _ in range(200):
            Path("/proc/sys/kernel/ns_last_pid").write_text(str(self.pid - 1))
            self.process = subprocess.Popen(["sleep", "60"])
            if self.process.pid == self.pid:
                return
            self.__exit__()
        pytest.fail("the process id could not be had again")

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
