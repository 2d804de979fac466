"""Checkpoints as people name them: files, folders, dumps, folders of ranks, files of a process."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from victims import dump_json, mapping, write_checkpoint

from reefkit.errors import NotPermitted, ReefError, Unusable
from reefkit.records.names import printable
from reefkit.records.strict_json import parse_object
from reefkit.recover.checkpoint import Checkpoint
from reefkit.recover.formats.safetensors import parse_header, write_header
from reefkit.recover.formats.safetensors_errors import HeaderTooLarge
from reefkit.recover.json_files import CONFIG_LIMIT
from reefkit.recover.open_checkpoint import open_checkpoint
from reefkit.recover.ranges import Range

ONE, TWO = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
INDEX = "model.safetensors.index.json"
PAGE = 4096


def put(folder: Path, *names: str) -> None:
    """Write a file of one tensor, called as its file, under each name."""
    for name in names:
        stem = name.removesuffix(".partial")
        write_checkpoint(folder / name, [(f"{stem}.weight", "F32", (4,))])


def put_index(folder: Path, weight_map: Mapping[str, object], name: str = INDEX) -> None:
    document = {"metadata": {"total_size": 32}, "weight_map": weight_map}
    (folder / name).write_text(json.dumps(document))


def opened(path: Path | str) -> Checkpoint:
    """Open, and close again: what is left is what was found."""
    with open_checkpoint(str(path)) as checkpoint:
        return checkpoint


def names(checkpoint: Checkpoint) -> list[str]:
    return [shard.name for shard in checkpoint.shards]


def test_a_file_is_one_shard_with_the_configuration_beside_it(tmp_path: Path) -> None:
    put(tmp_path, "adapter_model.safetensors", ".tmpAbCdEf")
    (tmp_path / "adapter_config.json").write_text('{"r": 8}')
    found = opened(tmp_path / "adapter_model.safetensors")
    assert names(found) == ["adapter_model.safetensors"]
    assert found.shards[0].header is not None
    assert found.adapter_config == {"r": 8}
    assert (found.folder, found.strays, found.problems) == (tmp_path, (".tmpAbCdEf",), ())


def test_what_is_read_later_comes_from_the_same_open_file(tmp_path: Path) -> None:
    data = write_checkpoint(tmp_path / "model.safetensors").data
    with open_checkpoint(str(tmp_path)) as found:
        (tmp_path / "model.safetensors").unlink()
        assert found.shards[0].readable.read(0, len(data)) == data


@pytest.mark.parametrize(
    ("there", "shards", "strays"),
    [
        (["model.safetensors"], ["model.safetensors"], []),
        (["lora.safetensors", "pytorch_model.bin"], ["lora.safetensors"], ["pytorch_model.bin"]),
        ([ONE, TWO], [ONE, TWO], []),
        (["model.safetensors", ONE, TWO], ["model.safetensors"], [ONE, TWO]),
        (
            ["rank_0.safetensors", "rank_1.safetensors"],
            ["rank_0.safetensors", "rank_1.safetensors"],
            [],
        ),
        ([".tmpAbCdEf"], [".tmpAbCdEf"], []),
        ([".tmpAbCdEf", "model.safetensors"], ["model.safetensors"], [".tmpAbCdEf"]),
        (["model.safetensors.partial"], ["model.safetensors"], []),
        (
            ["model.safetensors", "model.safetensors.partial"],
            ["model.safetensors"],
            ["model.safetensors.partial"],
        ),
        (
            ["adapter_model.safetensors", "x.safetensors"],
            ["adapter_model.safetensors"],
            ["x.safetensors"],
        ),
    ],
)
def test_a_folder_is_its_weights_and_the_rest_are_strays(
    tmp_path: Path, there: list[str], shards: list[str], strays: list[str]
) -> None:
    put(tmp_path, *there)
    found = opened(tmp_path)
    assert (names(found), list(found.strays), found.problems) == (shards, strays, ())


def test_a_partial_file_keeps_its_doubt(tmp_path: Path) -> None:
    put(tmp_path, "model.safetensors.partial")
    for path in (tmp_path, tmp_path / "model.safetensors.partial"):
        (shard,) = opened(path).shards
        assert shard.name == "model.safetensors"
        assert "incomplete" in (shard.readable.doubt or "")


def test_an_index_names_the_shards_and_others_are_strays(tmp_path: Path) -> None:
    put(tmp_path, ONE, TWO, "model-00003-of-00003.safetensors")
    put_index(tmp_path, {"a": ONE, "b": TWO, "c": "model-00009-of-00009.safetensors"})
    for path in (tmp_path, tmp_path / INDEX):
        found = opened(path)
        assert names(found) == [ONE, TWO]
        assert found.index is not None
        assert (found.index.name, found.index.total_size) == (INDEX, 32)
        assert found.index.weight_map["c"] == "model-00009-of-00009.safetensors"
        assert found.strays == ("model-00003-of-00003.safetensors",)
        assert found.problems == ()


@pytest.mark.parametrize("stem", ["adapter_model", "diffusion_pytorch_model", "model.fp16"])
def test_indexes_of_other_names_count_too(tmp_path: Path, stem: str) -> None:
    shards = [f"{stem}-0000{i}-of-00002.safetensors" for i in (1, 2)]
    put(tmp_path, *shards)
    put_index(tmp_path, dict(zip("ab", shards, strict=True)), f"{stem}.safetensors.index.json")
    found = opened(tmp_path)
    assert names(found) == shards
    assert found.index is not None


@pytest.mark.parametrize(
    "shard", ["../secret.safetensors", "/etc/passwd", "a/../../secret.safetensors", "", "a\0b", "."]
)
def test_an_index_is_not_followed_out_of_its_folder(tmp_path: Path, shard: str) -> None:
    folder = tmp_path / "inside"
    put(tmp_path, "secret.safetensors")
    put(folder, ONE)
    put_index(folder, {"a": ONE, "b": shard})
    found = opened(folder)
    assert names(found) == [ONE]
    assert "not inside its folder" in found.problems[0]


@pytest.mark.parametrize("below", ["", "sub/"])
def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path, below: str) -> None:
    folder = tmp_path / "inside"
    put(tmp_path, "secret.safetensors")
    put(folder, ONE)
    (folder / below).mkdir(exist_ok=True)
    (folder / below / TWO).symlink_to(tmp_path / "secret.safetensors")
    put_index(folder, {"a": ONE, "b": below + TWO})
    found = opened(folder)
    assert names(found) == [ONE]
    assert any("leads out of its folder" in problem for problem in found.problems)


def test_links_within_the_folder_and_to_the_folder_are_followed(tmp_path: Path) -> None:
    put(tmp_path / "real", "blob.safetensors")
    (tmp_path / "real" / "model.safetensors").symlink_to("blob.safetensors")
    (tmp_path / "link").symlink_to("real")
    assert names(opened(tmp_path / "link")) == ["model.safetensors"]


def test_a_snapshot_of_the_hub_cache_is_links_into_its_blobs(tmp_path: Path) -> None:
    repository = tmp_path / "models--org--name"
    put(repository / "blobs", "0123abcd")
    snapshot = repository / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (snapshot / "model.safetensors").symlink_to("../../blobs/0123abcd")
    found = opened(snapshot)
    assert names(found) == ["model.safetensors"]
    assert found.problems == ()
    (snapshot / "other.safetensors").symlink_to("/etc/passwd")
    assert "leads out" in opened(snapshot).problems[0]


def test_shards_that_are_missing_from_a_numbered_set_are_a_problem(tmp_path: Path) -> None:
    put(tmp_path, "model-00001-of-00004.safetensors", "model-00003-of-00004.safetensors")
    assert opened(tmp_path).problems == ("model: of 4 shards, these are missing: 2, 4.",)


def test_sets_of_different_lengths_are_a_problem(tmp_path: Path) -> None:
    put(tmp_path, ONE, TWO, "model-00001-of-00001.safetensors")
    assert "different sets" in opened(tmp_path).problems[0]


@pytest.mark.parametrize("stem", ["rank_{}", "ep_rank_0{}", "mp_rank_00_00{}", "tp{}"])
def test_folders_of_ranks_are_one_checkpoint(tmp_path: Path, stem: str) -> None:
    ranks = [stem.format(i) for i in range(3)]
    for rank in ranks:
        put(tmp_path / rank, "adapter_model.safetensors")
        (tmp_path / rank / "adapter_config.json").write_text('{"r": 4}')
    found = opened(tmp_path)
    assert names(found) == [f"{rank}/adapter_model.safetensors" for rank in ranks]
    assert (found.adapter_config, found.folder, found.problems) == ({"r": 4}, tmp_path, ())
    (tmp_path / ranks[2] / "adapter_config.json").write_text('{"r": 8}')
    assert "differs from that of other ranks" in opened(tmp_path).problems[0]


def test_several_checkpoints_below_a_folder_are_named_and_refused(tmp_path: Path) -> None:
    for step in ("step_1", "step_2"):
        put(tmp_path / step, "model.safetensors")
    with pytest.raises(Unusable, match="several checkpoints: step_1, step_2"):
        opened(tmp_path)


def test_an_adapter_beside_a_model_is_not_guessed(tmp_path: Path) -> None:
    put(tmp_path, "adapter_model.safetensors", "model.safetensors")
    with pytest.raises(Unusable, match="several checkpoints"):
        opened(tmp_path)
    (tmp_path / "adapter_config.json").write_text("{}")
    found = opened(tmp_path)
    assert (names(found), found.strays) == (["adapter_model.safetensors"], ("model.safetensors",))


def test_a_dump_is_found_below_its_folder(tmp_path: Path) -> None:
    lost = tmp_path / "run" / "step_9"
    put(lost, ONE, TWO)
    out = tmp_path / "out"
    with mapping(
        {"path": lost / ONE, "kind": "private"}, {"path": lost / TWO, "kind": "private"}
    ) as v:
        (lost / ONE).unlink()
        (lost / TWO).unlink()
        code, _ = dump_json(v["pid"], out)
        assert code == 0
        from_process = opened(f"{v['pid']}:*.safetensors")
    found = opened(out)
    assert names(found) == names(from_process) == [ONE, TWO]
    assert found.folder == out / "run" / "step_9"
    assert from_process.folder is None
    assert [s.header for s in found.shards] == [s.header for s in from_process.shards]


def test_a_file_of_any_name_is_found_in_a_dump(tmp_path: Path) -> None:
    put(tmp_path / "a" / "b", "policy_weights")
    (tmp_path / "a" / "b" / "optimizer").write_bytes(b"PK" * 99)
    (tmp_path / "recovery.json").write_text("{}")
    assert names(opened(tmp_path)) == ["policy_weights"]


def test_a_broken_header_is_kept_as_the_fault_of_its_shard(tmp_path: Path) -> None:
    put(tmp_path, ONE)
    (tmp_path / TWO).write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    one, two = opened(tmp_path).shards
    assert one.fault is None
    assert two.header is None
    assert isinstance(two.fault, HeaderTooLarge)


def test_what_the_filesystem_never_stored_is_given_as_holes(tmp_path: Path) -> None:
    header = write_header([("a", "U8", (64 * PAGE,))])
    size = parse_header(header).file_size
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.write(header)
        file.truncate(size)
        os.pwrite(file.fileno(), b"x" * PAGE, 16 * PAGE)
    (shard,) = opened(tmp_path).shards
    assert shard.holes == (Range(PAGE, 16 * PAGE), Range(17 * PAGE, size))


def test_a_file_without_holes_has_none(tmp_path: Path) -> None:
    put(tmp_path, "model.safetensors")
    assert opened(tmp_path).shards[0].holes == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"r": 8, "r": 16}', "`r` is there twice"),
        ('{"a": {"b": 1, "b": 1}}', "`b` is there twice"),
        ("[1]", "is not a JSON object"),
        ('{"a": NaN}', "NaN is not a JSON value"),
        ('{"a": 1e999}', "out of range"),
        ('{"a": "\\ud800"}', "surrogate"),
        ('{"a": ' + "[" * 70 + "]" * 70 + "}", "nests more than"),
        ('{"a": ' + "[" * 90_000 + "]" * 90_000 + "}", "nests more than"),
        ('{"a": ' + "[],\n" * 1_000_001 + "}", "more than 1,000,000 objects and lists"),
        ('{"a": ' + "1" * 5000 + "}", "not acceptable JSON"),
        ("{", "is not valid JSON at line 1"),
        ("\ufeff{}", "is not valid JSON"),
    ],
)
def test_configuration_that_is_not_strict_json_is_a_problem(
    tmp_path: Path, text: str, words: str
) -> None:
    put(tmp_path, "adapter_model.safetensors")
    (tmp_path / "adapter_config.json").write_text(text, "utf-8")
    found = opened(tmp_path)
    assert found.adapter_config is None
    assert words in found.problems[0]
    assert found.problems[0].startswith("adapter_config.json ")


def test_configuration_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    put(tmp_path, "adapter_model.safetensors")
    with (tmp_path / "adapter_config.json").open("wb") as file:
        file.truncate(CONFIG_LIMIT + 1)
    assert "more than the 16,777,216 that are read" in opened(tmp_path).problems[0]


@pytest.mark.parametrize(
    ("there", "words"),
    [
        ([], "holds no safetensors file"),
        (["adapter_model.bin"], "adapter_model.bin, a pickle"),
        ([".tmpAbCdEf", ".tmpGhIjKl"], "several checkpoints"),
        ([".cache/model.safetensors"], "holds no safetensors file"),
    ],
)
def test_a_folder_without_one_checkpoint_is_refused(
    tmp_path: Path, there: list[str], words: str
) -> None:
    for name in there:
        put(tmp_path / Path(name).parent, Path(name).name)
    with pytest.raises(Unusable, match=words) as caught:
        opened(tmp_path)
    assert caught.value.remedy


def test_a_path_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="No such file"):
        opened(tmp_path / "absent.safetensors")


def test_a_dangling_link_is_named(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").symlink_to("absent")
    with pytest.raises(Unusable, match="not there"):
        opened(tmp_path)


def test_an_index_that_cannot_be_used_leaves_the_files_that_are_there(tmp_path: Path) -> None:
    put(tmp_path, ONE, TWO)
    put_index(tmp_path, {"a": ONE, "b": 7})
    found = opened(tmp_path)
    assert (names(found), found.index) == ([ONE, TWO], None)
    assert "gives no file name for `b`" in found.problems[0]
    with pytest.raises(Unusable, match="gives no file name"):
        opened(tmp_path / INDEX)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
shard_names = st.sampled_from([ONE, TWO, "../x.safetensors", "sub", "sub/x", "."]) | st.text(
    max_size=9
)
index_like = st.fixed_dictionaries(
    {"weight_map": st.dictionaries(st.text(max_size=5), shard_names, max_size=5) | json_values},
    optional={"metadata": json_values},
)
documents = st.binary(max_size=60) | (json_values | index_like).map(
    lambda value: json.dumps(value).encode()
)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(index=documents, config=documents)
def test_hostile_json_makes_problems_or_refusals_and_nothing_else(
    tmp_path: Path, index: bytes, config: bytes
) -> None:
    put(tmp_path, ONE)
    (tmp_path / "sub").mkdir(exist_ok=True)
    (tmp_path / INDEX).write_bytes(index)
    (tmp_path / "config.json").write_bytes(config)
    try:
        found = opened(tmp_path)
    except ReefError as error:
        assert isinstance(error, (Unusable, NotPermitted))
        return
    assert set(names(found)) <= {ONE}
    assert found.model_config is not None or found.problems
    assert all(printable(each) == each.replace("\\", "\\\\") for each in found.problems)


@given(documents)
def test_json_is_read_as_the_standard_parser_reads_it_or_refused(data: bytes) -> None:
    try:
        found = parse_object(data, "x.json")
    except Unusable as error:
        assert error.message.isprintable()
        return
    assert found == json.loads(data)
