"""Verdicts that were wrong once, each with the right one: configs, names, indices, operands."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import peft_adapters
import pytest
from synthetic import (
    CONFIG,
    PREFIX,
    QWEN,
    Piece,
    lora,
    model,
    modules,
    noise,
    split,
    write,
    write_sharded,
)
from victims import mapping

from reefkit import cli
from reefkit.commands.validate_report import report
from reefkit.errors import Unusable
from reefkit.recover.adapter.config.refusals import refusals, refusals_of_base
from reefkit.recover.adapter.config.settings import read_settings
from reefkit.recover.base.from_config import base_from_config
from reefkit.recover.base.model import Base
from reefkit.recover.open_checkpoint import open_checkpoint
from reefkit.recover.prove import Knowledge, checkpoints_of, prove
from reefkit.recover.validate import Request, validate
from reefkit.recover.validation.result import DamageClass, Kind, Rename, Validation

ADAPTER = lora(modules(QWEN))
Q1 = f"{PREFIX}model.layers.1.self_attn.q_proj"


def saved(folder: Path, tensors: dict[str, Piece] = ADAPTER, **config: Any) -> Path:
    write(folder / "adapter_model.safetensors", tensors)
    (folder / "adapter_config.json").write_text(json.dumps({**CONFIG, **config}))
    return folder


def verdict(path: Path | str, base: Base | dict[str, Any] = QWEN, **options: Any) -> Validation:
    known = base if isinstance(base, Base) else base_from_config(base, "base")
    with open_checkpoint(str(path)) as checkpoint:
        return validate(checkpoint, replace(Request(known, headers_only=True), **options))


def fields(result: Validation) -> set[str]:
    return {fault.field for fault in result.config_faults}


def outcomes(result: Validation) -> dict[str, set[object]]:
    found: dict[str, set[object]] = {}
    for one in result.loaders or ():
        found.setdefault(str(one["loader"]), set()).add(one["outcome"])
    return found


# --- quantised checkpoints -----------------------------------------------------------------------

BNB = {**QWEN, "quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}}
FP8 = {**QWEN, "quantization_config": {"quant_method": "fp8"}}
UP1 = "model.layers.1.mlp.up_proj.weight"


def four_bits() -> dict[str, Piece]:
    tensors = model(QWEN)
    for name in modules(QWEN):
        weight = f"{name}.weight"
        size = tensors[weight].shape[0] * tensors[weight].shape[1]
        tensors[weight] = noise((size // 2, 1), name, "U8")
        tensors[f"{weight}.absmax"] = noise((size // 64,), f"{name} absmax", "U8")
        tensors[f"{weight}.quant_map"] = noise((16,), f"{name} map", "F32")
    return tensors


def eight_bits() -> dict[str, Piece]:
    tensors = model(QWEN)
    for name in modules(QWEN):
        weight = f"{name}.weight"
        tensors[weight] = noise(tensors[weight].shape, name, "F8_E4M3")
        tensors[f"{weight}_scale_inv"] = noise((1, 1), f"{name} scale", "F32")
    return tensors


@pytest.mark.parametrize(("make", "config"), [(four_bits, BNB), (eight_bits, FP8)])
def test_a_whole_quantised_checkpoint_is_ok_and_says_what_is_unknown(
    make: Callable[[], dict[str, Piece]], config: dict[str, Any], tmp_path: Path
) -> None:
    write(tmp_path / "model.safetensors", make())
    result = verdict(tmp_path, config)
    assert result.ok
    assert result.expected == result.found
    assert any("packed weights" in text for text in result.not_checked) == (config is BNB)


@pytest.mark.parametrize(
    ("make", "config", "lost"),
    [
        (four_bits, BNB, (UP1,)),
        (four_bits, BNB, (f"{UP1}.absmax",)),
        (four_bits, BNB, (UP1, f"{UP1}.absmax", f"{UP1}.quant_map")),
        (four_bits, BNB, ("lm_head.weight",)),
        (eight_bits, FP8, (f"{UP1}_scale_inv",)),
        (eight_bits, FP8, (UP1,)),
    ],
)
def test_what_most_layers_have_of_a_packed_weight_every_layer_must_have(
    make: Callable[[], dict[str, Piece]],
    config: dict[str, Any],
    lost: tuple[str, ...],
    tmp_path: Path,
) -> None:
    tensors = make()
    for name in lost:
        del tensors[name]
    write(tmp_path / "model.safetensors", tensors)
    assert set(verdict(tmp_path, config).missing) == set(lost)


def test_a_layer_that_is_spared_by_the_quantiser_is_lawful(tmp_path: Path) -> None:
    tensors = four_bits()
    for name in modules(QWEN):
        if name.startswith("model.layers.0."):
            weight = f"{name}.weight"
            del tensors[f"{weight}.absmax"], tensors[f"{weight}.quant_map"]
            tensors[weight] = model(QWEN)[weight]
    write(tmp_path / "model.safetensors", tensors)
    assert verdict(tmp_path, BNB).ok


def test_a_scale_in_a_model_that_is_not_quantised_is_unexpected(tmp_path: Path) -> None:
    stray = f"{UP1}_scale_inv"
    write(tmp_path / "model.safetensors", {**model(QWEN), stray: noise((1, 1), 1, "F32")})
    assert verdict(tmp_path).unexpected == (stray,)


# --- indices and shards --------------------------------------------------------------------------


@pytest.mark.parametrize("text", ['{"weight_map": {"a', "[]", '{"metadata": {}}'])
def test_an_index_that_cannot_be_read_is_damage(text: str, tmp_path: Path) -> None:
    index = write_sharded(tmp_path, split(model(QWEN), 3))
    index.write_text(text)
    result = verdict(tmp_path, loaders=True)
    (damage,) = result.damage
    assert (damage.kind, damage.shard) == (DamageClass.BROKEN_INDEX, index.name)
    assert not any(damage.message.startswith(caution.message) for caution in result.warnings)
    assert outcomes(result) == {"transformers from_pretrained": {"raises"}}


def test_an_index_that_is_only_odd_is_damage_and_loads(tmp_path: Path) -> None:
    index = write_sharded(tmp_path, split(model(QWEN), 3))
    index.write_text(index.read_text().replace('{"metadata"', '{"x": 1, "x": 1, "metadata"', 1))
    result = verdict(tmp_path, loaders=True)
    assert [damage.kind for damage in result.damage] == [DamageClass.BROKEN_INDEX]
    assert outcomes(result) == {"transformers from_pretrained": {"silent"}}


def test_a_broken_index_beside_the_single_file_that_loaders_take_is_a_caution(
    tmp_path: Path,
) -> None:
    write(tmp_path / "model.safetensors", model(QWEN))
    (tmp_path / "model.safetensors.index.json").write_text("{")
    result = verdict(tmp_path)
    assert result.ok
    assert [w.kind for w in result.warnings].count("checkpoint") == 1


@pytest.mark.parametrize("indexed", [True, False])
def test_a_shard_that_is_linked_out_of_its_folder_is_said_to_be(
    indexed: bool, tmp_path: Path
) -> None:
    folder = tmp_path / "it"
    index = write_sharded(folder, split(model(QWEN), 3))
    shard = folder / "model-00002-of-00003.safetensors"
    shard.rename(tmp_path / "elsewhere")
    shard.symlink_to(tmp_path / "elsewhere")
    if not indexed:
        index.unlink()
    result = verdict(folder)
    (damage,) = result.damage
    assert damage.kind is DamageClass.SHARD_MISSING
    assert "leads out of its folder" in damage.message
    assert "not there" not in damage.message
    assert not any("leads out" in caution.message for caution in result.warnings)


# --- configurations ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "outcome"),
    [("", "raises"), ("[]", "raises"), ("{", "raises"), ("{" + " " * (17 << 20) + "}", "raises")],
)
def test_a_configuration_that_cannot_be_read_is_a_fault(
    text: str, outcome: str, tmp_path: Path
) -> None:
    (saved(tmp_path) / "adapter_config.json").write_text(text)
    result = verdict(tmp_path, loaders=True)
    assert not result.ok
    assert fields(result) == {"*"}
    assert not any(caution.kind == "checkpoint" for caution in result.warnings)
    assert set().union(*outcomes(result).values()) == {outcome}


def test_an_empty_configuration_is_one(tmp_path: Path) -> None:
    (saved(tmp_path) / "adapter_config.json").write_text("{}")
    result = verdict(tmp_path, loaders=True)
    assert {"peft_type", "r", "lora_alpha", "target_modules"} <= fields(result)
    (text,) = (f.message for f in result.config_faults if f.field == "peft_type")
    assert text == "peft_type is not there: PEFT raises KeyError."
    assert "raises" in outcomes(result)["PeftModel.from_pretrained"]


@pytest.mark.parametrize(
    "changed",
    [
        {"r": "8"},
        {"r": 8.5},
        {"r": None},
        {"r": [8]},
        {"r": 10**400},
        {"rank_pattern": ["q"]},
        {"trainable_token_indices": "a"},
        {"lora_alpha": 10**400},
        {"layer_replication": "x"},
        {"modules_to_save": {"a": 1}},
    ],
)
def test_a_field_of_a_wrong_type_is_a_fault_for_the_loaders_too(
    changed: dict[str, Any], tmp_path: Path
) -> None:
    result = verdict(saved(tmp_path, **changed), loaders=True)
    assert fields(result) == set(changed)
    assert "loads" not in outcomes(result)["PeftModel.from_pretrained"]
    json.dumps(result.to_json())


REFUSED: list[dict[str, Any]] = [
    {"task_type": "NOPE"},
    {"task_type": 5},
    {"target_modules": ".*q_proj", "layers_to_transform": [0]},
    {"target_modules": "all-linear", "layers_to_transform": []},
    {"target_modules": ".*q_proj", "layers_pattern": "layers"},
    {"layers_pattern": "layers"},
    {"target_modules": []},
    {"layer_replication": [[0, 5]]},
    {"trainable_token_indices": {"x": [1]}},
    {"trainable_token_indices": {"embed_tokens": [500]}},
    {"trainable_token_indices": [500]},
    {"trainable_token_indices": {"embed_tokens": [1]}, "modules_to_save": ["embed_tokens"]},
    {"init_lora_weights": "nope"},
    {"init_lora_weights": "PISSA"},
    {"init_lora_weights": "pissa_niter_x"},
    {"init_lora_weights": "pissax"},
    {"init_lora_weights": "corda"},
    {"init_lora_weights": "EVA"},
    {"init_lora_weights": "loftq"},
    {"init_lora_weights": "orthogonal", "r": 3},
    {"init_lora_weights": [1]},
    {"init_lora_weights": 1},
    {"use_dora": True, "megatron_config": {"a": 1}},
    {"use_dora": True, "lora_bias": True},
    {"lora_bias": True, "init_lora_weights": "pissa"},
    {"lora_dropout": 2.0},
    {"lora_dropout": "no"},
    {"kasa_config": 1},
    {"monteclora_config": {"x": 1}},
]
TAKEN: list[dict[str, Any]] = [
    {},
    {"task_type": None},
    {"layers_to_transform": [0], "layers_pattern": ["layers"]},
    {"layer_replication": [[0, 2], [1, 3]]},
    {"layer_replication": []},
    {"trainable_token_indices": {"tokens": [1]}},
    {"trainable_token_indices": [1, 1]},
    {"trainable_token_indices": {}},
    {"init_lora_weights": "Gaussian"},
    {"init_lora_weights": "pissa_niter_4"},
    {"init_lora_weights": "OLORA"},
    {"init_lora_weights": "MICA"},
    {"init_lora_weights": "orthogonal"},
    {"init_lora_weights": None},
    {"init_lora_weights": ""},
    {"lora_dropout": 1},
    {"lora_bias": True},
    {"kasa_config": {"unknown": 1}},
]


@cache
def tiny() -> Any:
    return import_module("copy").deepcopy(peft_adapters.model("qwen3").float())


@pytest.mark.parametrize(
    ("changed", "refused"),
    [*((changed, True) for changed in REFUSED), *((changed, False) for changed in TAKEN)],
    ids=str,
)
def test_peft_refuses_what_is_said_to_be_refused(changed: dict[str, Any], refused: bool) -> None:
    peft = import_module("peft")
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"], **changed}
    made = tiny().config
    base = base_from_config({**made.to_dict(), "architectures": made.architectures}, "base")
    found = refusals(config) or refusals_of_base(config, base)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model_of = import_module("copy").deepcopy(tiny())
            peft.get_peft_model(model_of, peft.PeftConfig.from_peft_type(**config))
            raised = None
        except Exception as error:
            raised = type(error).__name__
    assert (raised is not None) == refused
    assert bool(found) == refused
    if raised is not None:
        assert raised in found[0].error


@pytest.mark.parametrize("changed", [{"task_type": "NOPE"}, {"layer_replication": [[0, 9]]}])
def test_what_peft_refuses_is_no_pass(changed: dict[str, Any], tmp_path: Path) -> None:
    result = verdict(saved(tmp_path, **changed), loaders=True)
    assert not result.ok
    assert set(changed) <= fields(result)
    assert outcomes(result)["PeftModel.from_pretrained"] == {"raises"}


def test_a_stated_field_stands_in_for_one_that_peft_refuses(tmp_path: Path) -> None:
    stated = read_settings(("task_type=CAUSAL_LM",))
    assert verdict(saved(tmp_path, task_type="NOPE"), stated=stated).ok


# --- heads and embeddings ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "junk",
    ["model.layers.7.junk_lm_head.weight", "lm_head.weight_", "model.layers.7.lm_head.weight"],
)
def test_what_only_ends_like_a_saved_module_is_unexpected(junk: str, tmp_path: Path) -> None:
    head = {f"{PREFIX}lm_head.weight": noise((512, 512), "head")}
    tensors = {**ADAPTER, **head, PREFIX + junk: noise((3, 3), junk)}
    result = verdict(saved(tmp_path, tensors, modules_to_save=["lm_head"]))
    assert result.unexpected == (PREFIX + junk,)


@pytest.mark.parametrize(
    ("name", "lawful"),
    [("score.weight", True), ("classifier.dense.bias", True), ("x.score.weight", False),
     ("my_score.weight", False)],
)  # fmt: skip
def test_a_classifier_stands_at_the_top(name: str, lawful: bool, tmp_path: Path) -> None:
    tensors = {**ADAPTER, PREFIX + name: noise((3, 512), name)}
    saving = {"task_type": "SEQ_CLS", "modules_to_save": ["classifier", "score"]}
    result = verdict(saved(tmp_path, tensors, **saving))
    assert result.unexpected == (() if lawful else (PREFIX + name,))


EMBEDDINGS = {
    f"{PREFIX}model.embed_tokens.weight": noise((520, 512), "in"),
    f"{PREFIX}lm_head.weight": noise((520, 512), "out"),
}


@pytest.mark.parametrize("lost", EMBEDDINGS)
@pytest.mark.parametrize("configured", [True, False])
def test_of_a_resized_vocabulary_both_embeddings_must_be_there(
    lost: str, configured: bool, tmp_path: Path
) -> None:
    folder = saved(tmp_path, {**ADAPTER, **EMBEDDINGS})
    if not configured:
        (folder / "adapter_config.json").unlink()
    assert verdict(folder).ok
    write(
        folder / "adapter_model.safetensors",
        {name: piece for name, piece in {**ADAPTER, **EMBEDDINGS}.items() if name != lost},
    )
    assert verdict(folder).missing == (lost,)
    assert verdict(folder, {**QWEN, "tie_word_embeddings": True}).ok


@pytest.mark.parametrize(
    "lora_config",
    [
        {},
        {"modules_to_save": ["embed_tokens", "lm_head"]},
        {"modules_to_save": ["embed_tokens"]},
        {"trainable_token_indices": [97, 98]},
        {"target_modules": ["q_proj", "embed_tokens"]},
        {"target_modules": ["q_proj", "lm_head"]},
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["qwen3", "tied"])
def test_what_peft_saves_of_a_resized_vocabulary_is_ok(
    name: str, lora_config: dict[str, Any], tmp_path: Path
) -> None:
    peft = import_module("peft")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bare = peft_adapters.model(name)
        made = bare.config.to_dict()
        bare.resize_token_embeddings(100)
        settings = {"r": 2, "target_modules": ["q_proj"], "task_type": "CAUSAL_LM", **lora_config}
        wrapped = peft.get_peft_model(bare, peft.LoraConfig(**settings))
        wrapped.save_pretrained(tmp_path, save_embedding_layers=True)
    base = base_from_config({**made, "architectures": ["Qwen3ForCausalLM"]}, name)
    result = verdict(tmp_path, base)
    assert (result.missing, result.unexpected, result.mismatched) == ((), (), ())
    assert result.ok
    if "modules_to_save" in lora_config:
        assert verdict(tmp_path, base, load_check=True).ok
    (tmp_path / "adapter_config.json").unlink()
    assert verdict(tmp_path, base).ok


@pytest.mark.parametrize(
    "tokens", [{"lm_head": [1]}, {"lm_head": [1], "embed_tokens": [1]},
               {"lm_head": [1], "embed_tokens": [2]}]
)  # fmt: skip
def test_tokens_of_a_tied_head_are_expected_as_peft_saves_them(
    tokens: dict[str, list[int]], tmp_path: Path
) -> None:
    peft = import_module("peft")
    warnings.simplefilter("ignore")
    bare = peft_adapters.model("tied")
    base = base_from_config(
        {**bare.config.to_dict(), "architectures": ["Qwen3ForCausalLM"]}, "tied"
    )
    config = peft.LoraConfig(r=2, target_modules=["q_proj"], trainable_token_indices=tokens)
    peft.get_peft_model(bare, config).save_pretrained(tmp_path)
    assert verdict(tmp_path, base).ok


# --- the bare model ------------------------------------------------------------------------------


def of_bare_model(folder: Path, **config: Any) -> Path:
    names = {n.replace(f"{PREFIX}model.", PREFIX): piece for n, piece in ADAPTER.items()}
    return saved(folder, names, **config)


@pytest.mark.parametrize(
    "config",
    [
        {"task_type": "FEATURE_EXTRACTION"},
        {"task_type": None, "auto_mapping": {"base_model_class": "Qwen3Model"}},
    ],
)
def test_an_adapter_of_a_bare_model_is_judged_against_it(
    config: dict[str, Any], tmp_path: Path
) -> None:
    result = verdict(of_bare_model(tmp_path, **config), load_check=True)
    assert result.ok
    assert result.load_check is not None
    assert (result.renames, result.warnings, result.load_check["ok"]) == ((), (), True)


def test_without_a_configuration_the_bare_model_is_a_caution_and_no_rename(tmp_path: Path) -> None:
    (of_bare_model(tmp_path) / "adapter_config.json").unlink()
    result = verdict(tmp_path)
    assert result.ok
    assert [caution.kind for caution in result.warnings] == ["bare-model"]
    assert "AutoModel" in result.warnings[0].message


def test_of_a_causal_task_the_path_of_the_bare_model_is_a_fault(tmp_path: Path) -> None:
    result = verdict(of_bare_model(tmp_path))
    assert [rename.fault for rename in result.renames] == ["wrong-path"]


def test_a_task_that_names_no_head_does_not_accuse_an_adapter_with_one(tmp_path: Path) -> None:
    result = verdict(saved(tmp_path, task_type="FEATURE_EXTRACTION"))
    assert result.ok
    assert [caution.kind for caution in result.warnings] == ["bare-model"]


# --- full checkpoints ----------------------------------------------------------------------------


def test_recipes_do_not_make_an_adapter_of_a_full_checkpoint(tmp_path: Path) -> None:
    write(tmp_path / "model.safetensors", model(QWEN))
    result = verdict(tmp_path, stated=read_settings(("r=4",)))
    assert (result.kind, result.ok) == (Kind.FULL, True)
    assert "recipe-unused" in {caution.kind for caution in result.warnings}


def test_an_adapter_config_makes_an_adapter_of_tensors_that_are_none(tmp_path: Path) -> None:
    result = verdict(saved(tmp_path, model(QWEN)))
    assert (result.kind, result.ok) == (Kind.ADAPTER, False)


def test_a_base_and_an_adapter_that_lie_in_one_folder_are_proven_each_as_what_it_is(
    tmp_path: Path,
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(QWEN))
    write(tmp_path / "out" / "model.safetensors", model(QWEN))
    write(tmp_path / "out" / "adapter_model.safetensors", ADAPTER)
    known = Knowledge(
        base=str(tmp_path / "config.json"),
        settings=("lora_alpha=16", "use_rslora=false", "base_model_name_or_path=org/base"),
    )
    names = ("adapter_model.safetensors", "model.safetensors")
    adapter, full = prove(checkpoints_of(str(tmp_path / "out" / name) for name in names), known)
    assert adapter.rebuilt is not None
    assert adapter.rebuilt.complete
    assert full.validation is not None
    assert (full.validation.kind, full.validation.ok) == (Kind.FULL, True)
    assert (full.rebuilt, full.errors) == (None, ())


def test_the_head_of_a_classifier_is_named_as_one(tmp_path: Path) -> None:
    tensors = {**model(QWEN), "score.weight": noise((3, 512), "score")}
    del tensors["lm_head.weight"]
    write(tmp_path / "model.safetensors", tensors)
    result = verdict(tmp_path)
    assert (result.missing, result.unexpected) == (("lm_head.weight",), ("score.weight",))
    assert [caution.kind for caution in result.warnings] == ["other-head"]


# --- operands ------------------------------------------------------------------------------------


def test_an_operand_that_names_nothing_cannot_be_judged(tmp_path: Path) -> None:
    write(tmp_path / "a.safetensors", ADAPTER)
    with mapping({"path": tmp_path / "a.safetensors", "kind": "private"}) as victim:
        assert cli.run(cli.recover, ["validate", f"{victim['pid']}:nope*", "--no-base"]) == 2


def test_a_glob_that_fits_two_checkpoints_is_refused(tmp_path: Path) -> None:
    paths = [tmp_path / run / "adapter_model.safetensors" for run in ("one", "two")]
    for path in paths:
        write(path, ADAPTER)
    with mapping(*({"path": path, "kind": "private"} for path in paths)) as victim:
        with pytest.raises(Unusable, match="several checkpoints"):
            verdict(f"{victim['pid']}:*")
        assert verdict(f"{victim['pid']}:*one/*").ok


def test_the_ranks_of_one_checkpoint_are_no_two(tmp_path: Path) -> None:
    halves = split(ADAPTER, 2)
    paths = [tmp_path / f"rank_{rank}" / "adapter_model.safetensors" for rank in range(2)]
    for path, tensors in zip(paths, halves, strict=True):
        write(path, tensors)
    with mapping(*({"path": path, "kind": "private"} for path in paths)) as victim:
        assert verdict(f"{victim['pid']}:*adapter_model*").ok


# --- bounds --------------------------------------------------------------------------------------


def test_thousands_of_saved_modules_are_looked_up(tmp_path: Path) -> None:
    large = base_from_config({**QWEN, "num_hidden_layers": 500}, "large")
    names = list(large.modules)
    since = time.perf_counter()
    result = verdict(saved(tmp_path, modules_to_save=names), large)
    assert time.perf_counter() - since < 5
    assert not result.ok


def test_slow_patterns_are_given_up(tmp_path: Path) -> None:
    slow = {f"{number}{'.*' * 12}x": 2 for number in range(3000)}
    large = base_from_config({**QWEN, "num_hidden_layers": 500}, "large")
    since = time.perf_counter()
    with pytest.raises(Unusable, match="longer than"):
        verdict(saved(tmp_path, rank_pattern=slow), large)
    assert time.perf_counter() - since < 20


def test_progress_is_told_of_every_byte_of_content(tmp_path: Path) -> None:
    path = saved(tmp_path) / "adapter_model.safetensors"
    read: list[int] = []
    assert verdict(tmp_path, headers_only=False, progress=read.append).ok
    assert sum(read) == sum(len(piece.data) for piece in ADAPTER.values()) < path.stat().st_size


def test_lines_for_people_are_few_and_short(tmp_path: Path) -> None:
    result = verdict(saved(tmp_path))
    renames = tuple(Rename("misplaced-prefix", f"x{n}.", PREFIX, 1) for n in range(50_000))
    odd = replace(result, renames=renames, unexpected=("x" * 500_000,))
    lines = report(odd).splitlines()
    assert len(lines) < 40
    assert max(map(len, lines)) <= 1000
    assert "and 49,990 more of rename (all with --json)" in report(odd)
    assert len(odd.to_json()["renames"]) == 50_000  # type: ignore[arg-type]
