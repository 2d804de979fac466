"""`reef-recover identify`: which known file some bytes are, in files and in real processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from victims import Answer, Checkpoint, lost, mapping, reef, write_checkpoint

from reefkit.provenance.content.folder import FolderContent
from reefkit.provenance.manifest import build_manifest
from reefkit.recover.formats.safetensors import parse_header

root_only = pytest.mark.skipif(
    os.geteuid() != 0, reason="map_files needs a capability: run as root"
)


def known(folder: Path, out: Path) -> Path:
    out.write_bytes(build_manifest(FolderContent(folder)).to_bytes())
    return out


@pytest.fixture
def step(tmp_path: Path) -> Checkpoint:
    return write_checkpoint(tmp_path / "run" / "step_8" / "adapter_model.safetensors")


@pytest.fixture
def manifest(tmp_path: Path, step: Checkpoint) -> Path:
    write_checkpoint(tmp_path / "run" / "step_7" / "adapter_model.safetensors", seed=7)
    return known(tmp_path / "run", tmp_path / "manifest.json")


def identify(manifest: Path, *arguments: str | Path | int) -> Answer:
    return reef("identify", *arguments, "--manifest", manifest, "--json")


def only(answer: Answer) -> tuple[str, str, int, int]:
    (match,) = answer.json["matches"]
    return match["likeness"], match["entry"], match["tensors"], match["known_tensors"]


STEP_8 = "step_8/adapter_model.safetensors"


def test_the_same_bytes_are_the_same_file(step: Checkpoint, manifest: Path) -> None:
    answer = identify(manifest, step.path)
    assert (answer.code, only(answer)) == (0, ("same-file", STEP_8, 8, 8))
    (match,) = answer.json["matches"]
    assert (match["manifest"], match["where"]) == (str(manifest), str(step.path))
    assert answer.json["schema"] == "reefkit.identity/1"


def test_another_header_over_the_same_tensors_is_a_new_serialisation(
    tmp_path: Path, step: Checkpoint, manifest: Path
) -> None:
    header = parse_header(step.data)
    text = header.raw[8:].rstrip() + b" " * 64
    other = tmp_path / "other.safetensors"
    other.write_bytes(len(text).to_bytes(8, "little") + text + step.data[header.data_start :])
    answer = identify(manifest, other)
    assert (answer.code, only(answer)) == (0, ("same-tensors", STEP_8, 8, 8))


def test_a_file_with_bytes_after_its_end_is_damaged_and_not_held(
    tmp_path: Path, step: Checkpoint, manifest: Path
) -> None:
    longer = tmp_path / "longer.safetensors"
    longer.write_bytes(step.data + bytes(8))
    answer = identify(manifest, longer)
    assert (answer.code, only(answer)) == (1, ("damaged", STEP_8, 8, 8))
    assert [each["held"] for each in answer.json["manifests"]] == [False]
    assert "8 bytes more" in answer.json["files"][0]["fault"]
    told = reef("identify", longer, "--manifest", manifest)
    assert f"damaged  {STEP_8}" in told.out and f"NOT HELD  {manifest}" in told.out


def test_a_process_with_a_damaged_file_holds_no_manifest(
    tmp_path: Path, step: Checkpoint, manifest: Path
) -> None:
    longer = tmp_path / "longer.safetensors"
    longer.write_bytes(step.data + bytes(8))
    with mapping({"path": longer, "kind": "private"}) as victim:
        answer = identify(manifest, "--pid", victim["pid"])
    assert (answer.code, only(answer)) == (1, ("damaged", STEP_8, 8, 8))


def test_a_damaged_file_that_is_known_as_it_is_counts_as_that_file(
    tmp_path: Path, step: Checkpoint
) -> None:
    (tmp_path / "d").mkdir()
    longer = tmp_path / "d" / "longer.safetensors"
    longer.write_bytes(step.data + bytes(8))
    answer = identify(known(tmp_path / "d", tmp_path / "d.json"), longer)
    assert (answer.code, only(answer)[0]) == (0, "same-file")


@pytest.mark.parametrize(("kept", "tensors"), [(0.6, 4), (0.001, 0)])
def test_the_beginning_of_a_known_file_is_called_truncated(
    tmp_path: Path, step: Checkpoint, manifest: Path, kept: float, tensors: int
) -> None:
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes(step.data[: int(len(step.data) * kept)])
    answer = identify(manifest, cut)
    found = {
        match["entry"]: (match["likeness"], match["tensors"]) for match in answer.json["matches"]
    }
    assert answer.code == 1
    assert found[STEP_8] == ("truncated", tensors)
    assert (answer.json["files"][0]["fault"] is not None) is True


def test_so_many_tensors_of_a_step_are_equal(
    tmp_path: Path, step: Checkpoint, manifest: Path
) -> None:
    data = bytearray(step.data)
    data[-1] ^= 1
    changed = tmp_path / "changed.safetensors"
    changed.write_bytes(data)
    answer = identify(manifest, changed)
    assert (answer.code, only(answer)) == (1, ("some-tensors", STEP_8, 7, 8))


def test_the_layout_alone_is_the_poorest_likeness(tmp_path: Path, manifest: Path) -> None:
    other = write_checkpoint(tmp_path / "x" / "adapter_model.safetensors", seed=99)
    answer = identify(manifest, other.path)
    assert answer.code == 1
    assert {match["likeness"] for match in answer.json["matches"]} == {"same-header"}


def test_tensors_of_zeros_make_nothing_alike(tmp_path: Path) -> None:
    for place, name in (("a", "one"), ("b", "two")):
        made = write_checkpoint(tmp_path / place / "f.safetensors", [(name, "F32", (64, 64))])
        start = parse_header(made.data).data_start
        made.path.write_bytes(made.data[:start] + bytes(64 * 64 * 4))
    manifest = known(tmp_path / "a", tmp_path / "manifest.json")
    answer = identify(manifest, tmp_path / "b" / "f.safetensors")
    assert (answer.code, answer.json["matches"]) == (1, [])


def test_any_file_is_known_by_its_digest(tmp_path: Path, manifest: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.log").write_bytes(b"log")
    other = known(tmp_path / "logs", tmp_path / "logs.json")
    answer = reef(
        "identify", tmp_path / "logs" / "a.log", "--manifest", other, "--manifest", manifest
    )
    assert answer.code == 1
    assert "same-file  a.log" in answer.out
    assert f"NOT HELD  {manifest}" in answer.out and f"\nHELD  {other}" in answer.out


@root_only
def test_a_process_is_asked_what_it_serves_after_the_file_is_gone(
    step: Checkpoint, manifest: Path
) -> None:
    with lost(step) as victim:
        whole = identify(manifest, "--pid", victim["pid"])
        by_glob = identify(manifest, f"{victim['pid']}:*step_8*")
    for answer in (whole, by_glob):
        assert (answer.code, only(answer)) == (0, ("same-file", STEP_8, 8, 8))
        where = answer.json["matches"][0]["where"]
        assert where.startswith(f"{victim['pid']}:") and where.endswith(STEP_8)


def test_memory_that_was_changed_is_another_content(step: Checkpoint, manifest: Path) -> None:
    plan = {"path": step.path, "kind": "private", "dirty": [len(step.data) - 1]}
    with mapping(plan) as victim:
        answer = identify(manifest, "--pid", victim["pid"], "--source", "memory")
    assert (answer.code, only(answer)) == (1, ("some-tensors", STEP_8, 7, 8))


def test_a_manifest_of_shards_is_held_only_with_all_of_them(tmp_path: Path) -> None:
    shards = [
        write_checkpoint(tmp_path / "m" / f"model-0000{i}-of-00002.safetensors", seed=i)
        for i in (1, 2)
    ]
    manifest = known(tmp_path / "m", tmp_path / "manifest.json")
    with mapping({"path": shards[0].path, "kind": "private"}) as victim:
        one = identify(manifest, "--pid", victim["pid"])
    plans = [{"path": shard.path, "kind": "private"} for shard in shards]
    with mapping(*plans) as victim:
        both = identify(manifest, "--pid", victim["pid"])
    assert (one.code, both.code) == (1, 0)
    assert [m["held"] for m in one.json["manifests"]] == [False]


def test_a_process_without_weights_is_told_so(manifest: Path) -> None:
    with mapping() as victim:
        answer = identify(manifest, "--pid", victim["pid"])
    assert (answer.code, answer.json["code"]) == (1, "NothingFound")


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b'{"schema": "reefkit.manifest/2"}'])
def test_a_manifest_that_is_none_cannot_judge(
    tmp_path: Path, step: Checkpoint, text: bytes
) -> None:
    (tmp_path / "bad.json").write_bytes(text)
    answer = identify(tmp_path / "bad.json", step.path)
    assert (answer.code, answer.json["code"]) == (2, "Unusable")


def test_one_thing_is_identified_at_a_time(step: Checkpoint, manifest: Path) -> None:
    assert identify(manifest).code == 2
    assert identify(manifest, step.path, "--pid", os.getpid()).code == 2
