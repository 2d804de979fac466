"""Every tensor of the index is held exactly once over all shards or ranks, or the verdict fails."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import QWEN, Piece, model, noise, split, write, write_sharded

from reefkit.recover.base.from_config import base_from_config
from reefkit.recover.open_checkpoint import open_checkpoint
from reefkit.recover.validate import Request, validate
from reefkit.recover.validation.result import Validation
from reefkit.recover.validation.same_bytes import differences_from
from reefkit.recover.validation.shards import Held, gather

BASE = base_from_config(QWEN, "base")


def gathered(folder: Path, replicated: str | None = None) -> Held:
    with open_checkpoint(str(folder)) as checkpoint:
        return gather(checkpoint, replicated)


def ranks(folder: Path, parts: list[dict[str, Piece]]) -> Path:
    for number, tensors in enumerate(parts):
        write(folder / f"ep_rank_{number}" / "model.safetensors", tensors)
    return folder


def judged(folder: Path, **options: object) -> Validation:
    with open_checkpoint(str(folder)) as checkpoint:
        return validate(checkpoint, Request(BASE, **{"headers_only": True, **options}))  # type: ignore[arg-type]


def small(count: int) -> dict[str, Piece]:
    return {f"t{number}.weight": noise((4, 4), number) for number in range(count)}


def test_shards_that_agree_with_their_index_hold_everything_once(tmp_path: Path) -> None:
    write_sharded(tmp_path, split(small(10), 3))
    held = gathered(tmp_path)
    assert sorted(held.tensors) == sorted(small(10))
    assert (held.damage, held.cautions, held.lacking) == ((), (), ())


def test_ranks_that_together_hold_the_base_are_ok(tmp_path: Path) -> None:
    result = judged(ranks(tmp_path, split(model(QWEN), 4)))
    assert result.ok
    assert result.found == result.expected == len(model(QWEN))
    assert len(result.files) == 4


@pytest.mark.parametrize("headers_only", [True, False])
@pytest.mark.parametrize("replicated", [None, "*norm.weight"])
def test_what_ranks_replicate_must_be_stated(
    tmp_path: Path, replicated: str | None, headers_only: bool
) -> None:
    parts = split(model(QWEN), 2)
    for part in parts:
        part["model.norm.weight"] = noise((512,), "norm")
    options = {"replicated": replicated, "headers_only": headers_only}
    result = judged(ranks(tmp_path, parts), **options)
    assert result.ok is (replicated is not None)
    assert [one.kind.value for one in result.damage] == ["tensor-twice"] * (replicated is None)


def test_the_first_element_in_which_replicas_differ_is_named(tmp_path: Path) -> None:
    parts = split(small(4), 2)
    data = bytearray(parts[0]["t0.weight"].data)
    data[2 * 5] ^= 4
    parts[1]["t0.weight"] = parts[0]["t0.weight"]._replace(data=bytes(data))
    (one,) = gathered(ranks(tmp_path, parts), "t*").damage
    assert (one.kind.value, one.tensor) == ("tensor-twice", "t0.weight")
    assert "element 5" in one.message


def test_a_replica_that_is_cut_is_no_replica(tmp_path: Path) -> None:
    parts = [small(3), small(3)]
    path = ranks(tmp_path, parts) / "ep_rank_1" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-8])
    (one,) = gathered(tmp_path, "t*").damage
    assert (one.kind.value, one.tensor) == ("tensor-twice", "t2.weight")


def test_a_total_size_that_is_wrong_is_a_caution(tmp_path: Path) -> None:
    index = write_sharded(tmp_path, split(small(4), 2))
    document = json.loads(index.read_text())
    document["metadata"]["total_size"] += 1
    index.write_text(json.dumps(document))
    held = gathered(tmp_path)
    assert held.damage == ()
    assert [caution.kind for caution in held.cautions] == ["index-size"]


def test_a_tensor_that_the_index_does_not_name_is_a_caution(tmp_path: Path) -> None:
    index = write_sharded(tmp_path, split(small(4), 2))
    document = json.loads(index.read_text())
    del document["weight_map"]["t1.weight"]
    index.write_text(json.dumps(document))
    assert "not-in-index" in {caution.kind for caution in gathered(tmp_path).cautions}


def test_numbers_that_lack_are_named(tmp_path: Path) -> None:
    write_sharded(tmp_path, split(small(10), 5)).unlink()
    for number in (2, 4):
        (tmp_path / f"model-{number:05d}-of-00005.safetensors").unlink()
    (one,) = gathered(tmp_path).damage
    assert one.kind.value == "shard-missing"
    assert "2, 4" in one.message


def test_a_temporary_file_beside_shards_is_pointed_out(tmp_path: Path) -> None:
    write_sharded(tmp_path, split(small(4), 2))
    (tmp_path / ".tmpQ1w2E3").write_bytes(b"x")
    assert [caution.kind for caution in gathered(tmp_path).cautions] == ["temporary-file"]


def test_a_shard_that_cannot_be_read_fails_closed(tmp_path: Path) -> None:
    shards = split(model(QWEN), 3)
    write_sharded(tmp_path, shards)
    path = tmp_path / "model-00002-of-00003.safetensors"
    path.write_bytes(os.urandom(len(path.read_bytes())))
    result = judged(tmp_path)
    assert not result.ok
    assert len(result.missing) == len(shards[1])


def compared(ours: Path, reference: Path) -> list[dict[str, object]]:
    with open_checkpoint(str(ours)) as a, open_checkpoint(str(reference)) as b:
        held = gather(a)
        return [one.to_json() for one in differences_from(b, held.tensors, held.shards)]


def test_other_shards_of_the_same_tensors_equal_the_reference(tmp_path: Path) -> None:
    write_sharded(tmp_path / "a", split(small(9), 3))
    write(tmp_path / "b" / "model.safetensors", small(9))
    assert compared(tmp_path / "a", tmp_path / "b") == []
    assert compared(tmp_path / "b", tmp_path / "a") == []


def test_what_only_one_side_has_differs_from_the_reference(tmp_path: Path) -> None:
    write(tmp_path / "a" / "model.safetensors", {**small(3), "ours": noise((2,), 0)})
    write(tmp_path / "b" / "model.safetensors", {**small(3), "theirs": noise((2,), 0)})
    found = compared(tmp_path / "a", tmp_path / "b")
    assert [one["tensor"] for one in found] == ["theirs", "ours"]


def test_a_reference_that_cannot_be_read_equals_nothing(tmp_path: Path) -> None:
    write(tmp_path / "a" / "model.safetensors", small(3))
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "model.safetensors").write_bytes(b"\0" * 100)
    assert len(compared(tmp_path / "a", tmp_path / "b")) == 1 + 3


@settings(max_examples=30, deadline=None)
@given(at=st.integers(0, 9 * 32 - 1), bit=st.integers(0, 7))
def test_any_flipped_bit_differs_from_the_reference(
    at: int, bit: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("flip")
    write(folder / "b" / "model.safetensors", small(9))
    write(folder / "a" / "model.safetensors", small(9))
    path = folder / "a" / "model.safetensors"
    data = bytearray(path.read_bytes())
    position = len(data) - 9 * 32 + at
    data[position] ^= 1 << bit
    path.write_bytes(data)
    (one,) = compared(folder / "a", folder / "b")
    assert one["class"] == "differs-from-reference"
    assert one["offset"] == position
