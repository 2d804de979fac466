"""Run records: written once, read strictly, silent about the machine and its users."""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from code_repository import git, repository
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reefkit.errors import DestinationExists, Unusable
from reefkit.provenance.evidence.environment import (
    is_recorded,
    recorded_environment,
    recorded_variables,
    without_home,
)
from reefkit.provenance.evidence.run_record import (
    Predecessor,
    RunRecord,
    RunStatus,
    predecessor_of,
    provenance_gaps,
    read_run,
    start_run,
)
from reefkit.provenance.gate.model import Topology

TOPOLOGY = Topology(tp=4, ep=2, world_size=8)


@pytest.fixture
def code(tmp_path: Path) -> Path:
    return repository(tmp_path / "code")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


def _record(out: Path, name: str = "run.json") -> RunRecord:
    return read_run((out / name).read_bytes(), name)


def test_a_finished_run_has_all_its_provenance(code: Path, out: Path, tmp_path: Path) -> None:
    data = tmp_path / "in.bin"
    data.write_bytes(b"x" * 3_000_000)
    before = Predecessor(str(UUID(int=0, version=4)), "0" * 64)
    run = start_run(
        out, ["train", "--token", "s3cr3t"], repository=code, topology=TOPOLOGY, rank=0,
        inputs=[data], predecessor=before,
        environment={"NCCL_DEBUG": "INFO", "HOME": "/home/x", "NCCL_TOKEN": "t"},
    )  # fmt: skip
    assert not (out / "run.json").exists()
    made = run.finish("passed")
    record = _record(out)
    assert record == made
    assert UUID(record.execution_id).version == 4
    assert record.argv == ("train", "--token", "<redacted>")
    assert record.commit == git(code, "rev-parse", "HEAD")
    assert record.topology == TOPOLOGY
    assert record.predecessor == before
    assert record.inputs[0].sha256 == hashlib.sha256(data.read_bytes()).hexdigest()
    assert record.inputs[0].size == 3_000_000
    assert record.environment is not None
    assert record.environment["variables"] == {"NCCL_DEBUG": "INFO"}
    assert provenance_gaps(record) == ()
    assert run.sha256 == hashlib.sha256((out / "run.json").read_bytes()).hexdigest()
    assert record.provenance(run.sha256).lacking() == ()


def test_every_run_has_another_id(code: Path, tmp_path: Path) -> None:
    ids = {start_run(tmp_path, ["x"], repository=code).execution_id for _ in range(5)}
    assert len(ids) == 5


def test_a_record_is_read_only_and_never_overwritten(code: Path, out: Path) -> None:
    umask = os.umask(0o077)
    try:
        run = start_run(out, ["x"], repository=code)
        other = start_run(out, ["y"], repository=code)
        run.finish("failed", "cell a failed")
    finally:
        os.umask(umask)
    before = (out / "run.json").read_bytes()
    assert stat.S_IMODE((out / "run.json").stat().st_mode) == 0o444
    for attempt in (
        lambda: run.finish("passed"),
        lambda: other.finish("passed"),
        lambda: start_run(out, ["z"], repository=code),
    ):
        with pytest.raises(DestinationExists) as caught:
            attempt()
        assert "--force" not in str(caught.value.remedy)
    assert (out / "run.json").read_bytes() == before
    assert os.listdir(out) == ["run.json"]


def test_a_dangling_link_is_in_the_way_too(code: Path, out: Path, tmp_path: Path) -> None:
    (out / "run.json").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DestinationExists):
        start_run(out, ["x"], repository=code)
    assert not (tmp_path / "elsewhere").exists()


def test_a_killed_run_leaves_only_the_start(code: Path, out: Path) -> None:
    script = (
        "import os, sys; from pathlib import Path;"
        "from reefkit.provenance.evidence.run_record import start_run;"
        "start_run(Path(sys.argv[1]), ['x'], repository=Path(sys.argv[2]));"
        "os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", script, out, code], check=False)
    assert os.listdir(out) == ["run.json.started"]
    with pytest.raises(Unusable):
        read_run((out / "run.json.started").read_bytes(), "run.json.started")
    start_run(out, ["x"], repository=code).finish("passed")
    assert os.listdir(out) == ["run.json"]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ValueError, RunStatus.FAILED),
        (KeyboardInterrupt, RunStatus.INTERRUPTED),
        (SystemExit, RunStatus.INTERRUPTED),
        (None, RunStatus.INTERRUPTED),
    ],
)
def test_only_finish_can_say_that_a_run_passed(
    code: Path, out: Path, error: type[BaseException] | None, status: RunStatus
) -> None:
    try:
        with start_run(out, ["x"], repository=code):
            if error is not None:
                raise error
    except BaseException as raised:
        assert type(raised) is error
    record = _record(out)
    assert record.status is status
    assert record.reason
    assert ("status" in provenance_gaps(record)) == (status is RunStatus.INTERRUPTED)


def test_a_repository_that_changes_during_the_run_is_a_gap(code: Path, out: Path) -> None:
    with start_run(out, ["x"], repository=code, topology=TOPOLOGY) as run:
        (code / "train.py").write_text("print(2)\n")
        run.finish("passed")
    record = _record(out)
    assert record.repository_changed
    assert record.dirty is False
    assert provenance_gaps(record) == ("dirty",)
    assert record.provenance().dirty is True


def test_dirty_and_missing_code_are_gaps(code: Path, out: Path, tmp_path: Path) -> None:
    (code / "train.py").write_text("print(2)\n")
    start_run(out, ["x"], repository=code).finish("passed")
    assert provenance_gaps(_record(out)) == ("dirty", "topology")
    none = tmp_path / "none"
    none.mkdir()
    start_run(none, ["x"], repository=tmp_path, topology=TOPOLOGY).finish("passed")
    record = _record(none)
    assert provenance_gaps(record) == ("commit", "tree", "dirty")
    assert record.missing


def test_each_rank_has_a_record_of_its_own(code: Path, out: Path) -> None:
    for rank in (0, 3):
        start_run(out, ["x"], repository=code, topology=TOPOLOGY, rank=rank).finish("passed")
    assert sorted(os.listdir(out)) == ["run-rank-3.json", "run.json"]
    assert _record(out, "run-rank-3.json").rank == 3
    with pytest.raises(Unusable, match="no rank 8"):
        start_run(out, ["x"], repository=code, topology=TOPOLOGY, rank=8)


def test_host_user_and_home_are_not_recorded(
    code: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/data/people/annabel")
    environment = {
        "VLLM_CACHE_ROOT": "/data/people/annabel/cache",
        "TORCH_HOME": "/home/bertram/torch:/Users/carla/x:C:\\Users\\dora\\y",
        "VLLM_HOST_IP": "10.1.2.3",
        "NCCL_COMM_ID": "10.1.2.3:99",
        "USER": "annabel",
        "HOSTNAME": socket.gethostname(),
        "VLLM_API_KEY": "k",
        "TORCH_PROXY": "http://u:pw@proxy/",
    }
    start_run(out, ["x"], repository=code, environment=environment).finish("passed")
    text = (out / "run.json").read_text()
    for private in ("annabel", "bertram", "carla", "dora", "10.1.2.3", ":pw", str(code)):
        assert private not in text
    assert socket.gethostname() not in text
    assert len(getpass.getuser()) < 5 or getpass.getuser() not in text
    assert '"VLLM_CACHE_ROOT": "~/cache"' in text


@pytest.mark.parametrize(
    ("name", "kept"),
    [("CUDA_VISIBLE_DEVICES", True), ("NCCL_ALGO", True), ("VLLM_USE_V1", True),
     ("PYTHONHASHSEED", True), ("CUBLAS_WORKSPACE_CONFIG", True), ("PATH", False),
     ("HF_TOKEN", False), ("VLLM_API_KEY", False), ("MASTER_ADDR", False), ("PYTHONPATH", False),
     ("VLLM_MAX_TOKENS", True), ("VLLM_DB_PASS", False), ("NCCL_JWT", False),
     ("TORCH_SESSION", False), ("VLLM_SLACK_WEBHOOK", False), ("SGLANG_SAS_URL", False)],
)  # fmt: skip
def test_the_environment_is_an_allow_list(name: str, kept: bool) -> None:
    assert is_recorded(name) is kept
    assert (name in recorded_variables({name: "1"})) is kept


def test_variables_that_are_left_out_are_named() -> None:
    environment = {"VLLM_API_KEY": "k1", "NCCL_ALGO": "Ring", "NCCL_COMM_ID": "h1", "MY_KEY": "m1"}
    recorded = recorded_environment(environment)
    assert recorded["withheld"] == ["NCCL_COMM_ID", "VLLM_API_KEY"]
    assert recorded["variables"] == {"NCCL_ALGO": "Ring"}


def test_a_home_folder_is_hidden_and_its_likes_are_not() -> None:
    assert without_home("/home/ann/a /homework/b /opt/home/c") == "~/a /homework/b /opt/home/c"


@pytest.mark.parametrize("what", ["absent", "folder"])
def test_an_input_that_is_no_file_is_refused(code: Path, out: Path, what: str) -> None:
    path = out / "absent" if what == "absent" else code
    with pytest.raises(Unusable, match="input"):
        start_run(out, ["x"], repository=code, inputs=[path])
    assert os.listdir(out) == []


def test_a_folder_that_is_not_there_is_refused(code: Path, tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="Cannot write"):
        start_run(tmp_path / "absent", ["x"], repository=code)


def test_a_status_that_is_none_is_refused(code: Path, out: Path) -> None:
    run = start_run(out, ["x"], repository=code)
    with pytest.raises(Unusable, match="does not end"):
        run.finish("fine")


def test_a_predecessor_is_named_by_its_bytes(code: Path, out: Path, tmp_path: Path) -> None:
    run = start_run(out, ["x"], repository=code)
    run.finish("passed")
    found = predecessor_of(out / "run.json")
    assert (found.id, found.sha256) == (run.execution_id, run.sha256)
    for path in (tmp_path, tmp_path / "absent", code / "data.bin"):
        with pytest.raises(Unusable):
            predecessor_of(path)


def _document() -> dict[str, Any]:
    record = RunRecord(
        "3b241101-e2bb-4255-8caf-4136c566a962", ("a", "b"), RunStatus.PASSED, 1, "a" * 40, "b" * 40,
        False, None, 0, False, None, TOPOLOGY, {"python": "3.11"},
    )  # fmt: skip
    return dict(record.to_json())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("schema", "reefkit.run/2"),
        ("schema", None),
        ("execution_id", "7"),
        ("execution_id", "3b241101-e2bb-1255-8caf-4136c566a962"),
        ("argv", "a b"),
        ("argv", [1]),
        ("status", "ok"),
        ("status", None),
        ("reason", "why"),
        ("rank", 8),
        ("rank", -1),
        ("rank", True),
        ("commit", "abc"),
        ("commit", None),
        ("tree", "A" * 40),
        ("dirty", "no"),
        ("dirty", True),
        ("diff_sha256", "0" * 64),
        ("untracked", 1.0),
        ("repository_changed", None),
        ("topology", {"tp": 1}),
        ("topology", []),
        ("environment", []),
        ("inputs", [{"path": "a", "sha256": "0" * 64}]),
        ("inputs", [{"path": "a", "sha256": "0" * 64, "size": 1, "more": 1}]),
        ("predecessor", {"id": "x", "sha256": "0" * 64}),
        ("predecessor", {"id": "3b241101-e2bb-4255-8caf-4136c566a962", "sha256": "0" * 64}),
        ("tool", None),
        ("unknown", 1),
    ],
)
def test_anything_that_is_off_is_refused(key: str, value: object) -> None:
    document = _document()
    assert read_run(json.dumps(document).encode(), "run.json").rank == 1
    with pytest.raises(Unusable, match=r"run\.json"):
        read_run(json.dumps({**document, key: value}).encode(), "run.json")


@pytest.mark.parametrize("key", sorted(_document()))
def test_a_missing_key_is_refused(key: str) -> None:
    document = _document()
    del document[key]
    with pytest.raises(Unusable):
        read_run(json.dumps(document).encode(), "run.json")


@given(st.integers(0, 2000), st.binary(max_size=4), st.booleans())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_damaged_records_are_read_or_refused(at: int, junk: bytes, cut: bool) -> None:
    data = json.dumps(_document()).encode()
    at %= len(data)
    damaged = data[:at] if cut else data[:at] + junk + data[at + len(junk) :]
    try:
        read_run(damaged, "run.json")
    except Unusable as error:
        assert error.message.endswith(".")


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.sampled_from(sorted(_document())), _json)
@settings(max_examples=200, deadline=None)
def test_any_value_of_any_key_is_read_or_refused(key: str, value: object) -> None:
    try:
        record = read_run(json.dumps({**_document(), key: value}).encode(), "run.json")
    except Unusable:
        return
    assert read_run(json.dumps(record.to_json()).encode(), "again") == record


_any_text = st.text(st.characters(codec=None), max_size=20)


@given(
    st.lists(_any_text, max_size=3),
    st.dictionaries(_any_text.map(lambda text: f"NCCL_{text}"), _any_text, max_size=3),
    _any_text,
)
@settings(max_examples=25, deadline=None)
def test_whatever_was_run_the_record_can_be_read(
    argv: list[str], environment: dict[str, str], reason: str
) -> None:
    with tempfile.TemporaryDirectory() as name:
        out = Path(name)
        run = start_run(out, [*argv, "x" * 100_000], repository=out, environment=environment)
        made = run.finish("failed", reason)
        assert _record(out) == made
        assert len(made.argv) == len(argv) + 1
