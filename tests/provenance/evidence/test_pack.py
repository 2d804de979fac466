"""`pack`: one zip that stock tools accept, the same everywhere, and never of torn files."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reefkit.errors import DoesNotHold, Unusable
from reefkit.provenance.evidence.pack import Order, pack
from reefkit.provenance.sign.private_key import load_private_key
from reefkit.records.custody import Artifact, Link, append
from reefkit.recover.formats.safetensors import write_header

Command = Callable[..., Any]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    (folder / "logs").mkdir(parents=True)
    (folder / "logs/train.log").write_text("step 8 reward 175.69\n")
    (folder / "Ünïcode ☃.txt").write_text("text\n")
    header = write_header([("a", "F32", (4,)), ("b", "BF16", (3, 5))], {"format": "pt"})
    (folder / "adapter_model.safetensors").write_bytes(header + bytes(range(46)))
    return folder


@pytest.fixture
def key(tmp_path: Path, reef_archive: Command) -> Path:
    assert reef_archive("keygen", "--out", tmp_path / "lab", "--identity", "e@lab").code == 0
    return tmp_path / "lab"


def packed(reef_archive: Command, run: Path, out: Path, *options: object) -> Any:
    return reef_archive("pack", run, "--out", out, "--no-redact", "--json", *options)


def unpacked(path: Path, folder: Path) -> Path:
    with zipfile.ZipFile(path) as archive:
        archive.extractall(folder)
    return folder


def test_the_zip_is_verified_by_us_and_by_stock_tools(
    run: Path, key: Path, tmp_path: Path, reef_archive: Command
) -> None:
    out = tmp_path / "evidence.zip"
    answer = packed(reef_archive, run, out, "--key", key)
    assert (answer.code, answer.document["schema"]) == (0, "reefkit.redaction/1")
    signers = key.with_name("lab.allowed_signers")
    verdict = reef_archive("verify", out, "--signers", signers, "--json")
    assert (verdict.code, verdict.document["verdict"]) == (0, "VERIFIED"), verdict.document
    kinds = [finding["kind"] for finding in verdict.document["findings"]]
    assert kinds == ["not-redacted"]
    folder = unpacked(out, tmp_path / "unpacked")
    sums = (folder / "SHA256SUMS").read_bytes()
    subprocess.run(["sha256sum", "--strict", "--quiet", "-c", "SHA256SUMS"], cwd=folder, check=True)
    for name, text, namespace in (
        ("SHA256SUMS.sig", sums, "reefkit-sums"),
        (
            "custody.head.json.sig",
            (folder / "custody.head.json").read_bytes(),
            "reefkit-custody",
        ),
    ):
        options = ["-f", str(signers), "-I", "e@lab", "-n", namespace, "-s", name]
        subprocess.run(["ssh-keygen", "-Y", "verify", *options], cwd=folder, input=text, check=True)
    verdict = reef_archive("verify", folder, "--signers", signers, "--json")
    assert (verdict.code, verdict.document["verdict"]) == (0, "VERIFIED"), verdict.document


def test_every_tensor_of_every_checkpoint_is_in_the_manifest(
    run: Path, tmp_path: Path, reef_archive: Command
) -> None:
    assert packed(reef_archive, run, tmp_path / "e.zip", "--unsigned").code == 0
    with zipfile.ZipFile(tmp_path / "e.zip") as archive:
        manifest = json.loads(archive.read("manifest.json"))
    (entry,) = (file for file in manifest["files"] if "header" in file)
    assert [tensor["name"] for tensor in entry["tensors"]] == ["a", "b"]


BUILD = """
import os, sys
from pathlib import Path
from reefkit.cli import archive, run
os.umask(int(sys.argv[1], 8))
sys.exit(run(archive, sys.argv[2:]))
"""


def test_the_same_content_and_key_give_the_same_zip(run: Path, key: Path, tmp_path: Path) -> None:
    copy = tmp_path / "another place" / "run"
    copy.parent.mkdir()
    names = sorted(path.relative_to(run) for path in run.rglob("*") if path.is_file())
    for name in reversed(names):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes((run / name).read_bytes())
        os.utime(copy / name, (1, 1))
        (copy / name).chmod(0o400)
    found: list[bytes] = []
    for umask, folder, zone, language in (
        ("022", run, "UTC", "C.UTF-8"),
        ("077", copy, "Pacific/Chatham", "C"),
    ):
        out = folder.parent / "e.zip"
        arguments = ["pack", folder, "--out", out, "--key", key, "--no-redact"]
        subprocess.run(
            [sys.executable, "-c", BUILD, umask, *map(str, arguments)],
            check=True,
            capture_output=True,
            env={**os.environ, "TZ": zone, "LC_ALL": language, "PYTHONHASHSEED": umask},
        )
        found.append(out.read_bytes())
    assert found[0] == found[1]


def test_the_date_comes_from_source_date_epoch_and_from_nowhere_else(
    run: Path, tmp_path: Path, reef_archive: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    for epoch, expected in ((None, None), ("1764460800", "2025-11-30T00:00:00Z")):
        if epoch is not None:
            monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
        assert packed(reef_archive, run, tmp_path / "e.zip", "--unsigned", "--force").code == 0
        with zipfile.ZipFile(tmp_path / "e.zip") as archive:
            link = json.loads(archive.read("custody.jsonl"))
        assert link["predicate"]["time"] == expected
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    assert packed(reef_archive, run, tmp_path / "f.zip", "--unsigned").code == 2


def test_without_a_key_it_is_refused_and_unsigned_is_untrusted(
    run: Path, tmp_path: Path, reef_archive: Command
) -> None:
    out = tmp_path / "e.zip"
    assert packed(reef_archive, run, out).code == 2
    assert not out.exists()
    assert packed(reef_archive, run, out, "--unsigned").code == 0
    assert reef_archive("verify", out).code == 3
    assert reef_archive("verify", out, "--integrity-only").code == 0


def test_it_refuses_without_no_redact(run: Path, tmp_path: Path, reef_archive: Command) -> None:
    answer = reef_archive("pack", run, "--out", tmp_path / "e.zip", "--unsigned")
    assert (answer.code, "--no-redact" in answer.err) == (2, True)


def test_a_chain_of_custody_goes_on(run: Path, tmp_path: Path, reef_archive: Command) -> None:
    first = tmp_path / "first.zip"
    assert packed(reef_archive, run, first, "--unsigned").code == 0
    with zipfile.ZipFile(first) as archive:
        (run / "custody.jsonl").write_bytes(archive.read("custody.jsonl"))
    before = (run / "custody.jsonl").read_bytes()
    assert packed(reef_archive, run, tmp_path / "second.zip", "--unsigned").code == 0
    with zipfile.ZipFile(tmp_path / "second.zip") as archive:
        chain = archive.read("custody.jsonl")
    assert chain.startswith(before)
    assert chain.count(b"\n") == 2
    assert (run / "custody.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    "name",
    ["SHA256SUMS", "sha256sums", "manifest.json", "VERIFY.md", "model.sig", "SHA256SUMS.2.sig"],
)
def test_a_name_that_the_package_needs_is_refused(
    name: str, run: Path, tmp_path: Path, reef_archive: Command
) -> None:
    (run / name).touch()
    answer = packed(reef_archive, run, tmp_path / "e.zip", "--unsigned")
    assert (answer.code, "makes its own" in answer.document["message"]) == (2, True)


def test_links_are_refused_and_empty_folders_said(
    run: Path, tmp_path: Path, reef_archive: Command
) -> None:
    (run / "empty").mkdir()
    answer = packed(reef_archive, run, tmp_path / "e.zip", "--unsigned")
    assert (answer.code, answer.document["left_out"]) == (0, ["empty"])
    (run / "link").symlink_to("/etc/passwd")
    assert packed(reef_archive, run, tmp_path / "f.zip", "--unsigned").code == 2
    assert not (tmp_path / "f.zip").exists()


@pytest.mark.parametrize("name", ["a\nb", "a\\b", " a", b"\xff"])
def test_a_name_that_some_tool_cannot_check_is_refused(
    name: str | bytes, run: Path, tmp_path: Path, reef_archive: Command
) -> None:
    (run / os.fsdecode(name)).touch()
    assert packed(reef_archive, run, tmp_path / "e.zip", "--unsigned").code == 2
    assert sorted(os.listdir(tmp_path)) == ["run"]


def test_a_zip_in_the_folder_itself_is_refused(run: Path, reef_archive: Command) -> None:
    assert packed(reef_archive, run, run / "e.zip", "--unsigned").code == 2
    assert packed(reef_archive, run / "none", run / "e.zip", "--unsigned").code == 2


@pytest.mark.parametrize("change", [b"step 9 reward 999.99\n", b"short", b"x" * 99])
def test_a_file_that_changes_meanwhile_leaves_no_zip(
    change: bytes, run: Path, key: Path, tmp_path: Path
) -> None:
    def stamp(_: bytes) -> bytes:
        (run / "logs/train.log").write_bytes(change)
        return b"0"

    signer = load_private_key(key, lambda: b"")
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(DoesNotHold, match="changed"):
        pack(Order(run, tmp_path / "e.zip", signer, "e@lab", timestamp=stamp))
    assert sorted(os.listdir(tmp_path)) == before


def test_a_damaged_chain_is_not_bridged(run: Path, tmp_path: Path) -> None:
    (run / "custody.jsonl").write_text("{}\n")
    with pytest.raises(Unusable, match=r"custody\.jsonl is damaged"):
        pack(Order(run, tmp_path / "e.zip"))


@pytest.mark.parametrize("stage", ["dump", "validate"])
def test_a_file_that_is_not_what_a_stage_left_is_not_packed(
    stage: str, run: Path, tmp_path: Path, reef_archive: Command
) -> None:
    data = (run / "adapter_model.safetensors").read_bytes()
    file = Artifact("adapter_model.safetensors", hashlib.sha256(data).hexdigest(), len(data))
    dumped = stage == "dump"
    append(run, Link(stage, outputs=[file] * dumped, inputs=[file] * (not dumped)))
    assert packed(reef_archive, run, tmp_path / "whole.zip", "--unsigned").code == 0
    assert reef_archive("verify", tmp_path / "whole.zip", "--integrity-only").code == 0
    (run / "adapter_model.safetensors").write_bytes(data[:-1] + b"?")
    answer = packed(reef_archive, run, tmp_path / "e.zip", "--unsigned")
    assert (answer.code, answer.document["code"]) == (1, "DoesNotHold")
    assert (
        f"adapter_model.safetensors: It is not what stage `{stage}`" in answer.document["message"]
    )
    assert not (tmp_path / "e.zip").exists()
    (run / "custody.jsonl").rename(run / "custody.broken.jsonl")
    assert packed(reef_archive, run, tmp_path / "e.zip", "--unsigned").code == 0


def test_a_chain_that_contradicts_itself_is_not_packed(run: Path, tmp_path: Path) -> None:
    append(run, Link("dump", outputs=[Artifact("gone", "a" * 64)]))
    append(run, Link("validate", inputs=[Artifact("gone", "b" * 64)]))
    with pytest.raises(DoesNotHold, match="does not fit together"):
        pack(Order(run, tmp_path / "e.zip"))


def test_what_is_packed_is_told_as_input_and_as_output(run: Path, tmp_path: Path) -> None:
    pack(Order(run, tmp_path / "e.zip"))
    with zipfile.ZipFile(tmp_path / "e.zip") as archive:
        link = json.loads(archive.read("custody.jsonl"))["predicate"]
    digests = [
        {each["name"]: each["sha256"] for each in link[key]} for key in ("inputs", "outputs")
    ]
    assert digests[0] == digests[1] and len(digests[0]) == 3
