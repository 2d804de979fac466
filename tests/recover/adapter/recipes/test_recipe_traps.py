"""Recipes that would mislead: garbage, contradictions, defaults that do not count."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from reefkit.errors import Unusable
from reefkit.records.strict_json import Json
from reefkit.recover.adapter.recipes.read import read_recipe, read_recipe_text
from reefkit.recover.adapter.statement import Recipe, Source
from reefkit.recover.formats.safetensors import write_header


def values(recipe: Recipe, field: str, source: Source | None = None) -> list[Json]:
    return [s.value for s in recipe.of(field) if source in (None, s.source)]


GARBAGE = ["thirty-two", "-1", "0", "1000000000000", ".nan", ".inf", "2.5", "true", "[8]", "{a: 1}"]


@pytest.mark.parametrize("value", GARBAGE)
def test_a_rank_that_cannot_be_is_refused_with_its_place(value: str) -> None:
    text = f"base_model: a/b\nadapter: lora\nlora_r: {value}\nlora_alpha: 16\n"
    with pytest.raises(Unusable, match=r"^lora\.yml:3: lora_r is not a "):
        read_recipe_text(text, "lora.yml")


@pytest.mark.parametrize("value", ["thirty-two", "-1", "0", "1e12", ".nan", "[]", "false", "1_6x"])
def test_an_alpha_that_cannot_be_is_refused_with_its_place(value: str) -> None:
    text = f"base_model: a/b\nadapter: lora\nlora_r: 8\nlora_alpha: {value}\n"
    with pytest.raises(Unusable, match=r"^lora\.yml:4: lora_alpha is not ") as caught:
        read_recipe_text(text, "lora.yml")
    assert "--set lora_alpha=VALUE" in str(caught.value.remedy)


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("a.sh", "trl sft --use_peft --model_name_or_path a/b \\\n --lora_r x", "a.sh:2: --lora_r"),
        ("a.json", '{"peft_type": "LORA",\n"r": -8}', "a.json:2: r"),
        ("a.toml", "[trainer.model.lora]\nrank = nan\n", "a.toml:2: trainer.model.lora.rank"),
        ("a.py", "from peft import *\nLoraConfig(\n  r=-1)", "a.py:3: LoraConfig.r"),
        ("a.yaml", "use_peft: true\nuse_dora: maybe\n", "a.yaml:2: use_dora"),
        ("a.yaml", "use_peft: true\nlora_dropout: 1.5\n", "a.yaml:2: lora_dropout"),
        ("a.yaml", "use_peft: true\nlora_target_modules: [1]\n", "a.yaml:2: lora_target_modules"),
        ("a.json", '{"peft_type": "LORA", "rank_pattern": {"q": 0}}', "a.json:1: rank_pattern"),
        ("a.json", '{"peft_type": "LORA", "layers_to_transform": [-1]}', "layers_to_transform"),
        ("a.json", '{"peft_type": "LORA", "alpha_pattern": 3}', "a.json:1: alpha_pattern"),
        ("a.yaml", "use_peft: true\nmodel_name_or_path: {}\n", "a.yaml:2: model_name_or_path"),
        ("a.yaml", 'use_peft: true\nmodel_name_or_path: "a/\\e[31mb"\n', "cannot be printed"),
        ("a.json", '{"peft_type": "LORA", "revision": "\\ud800"}', "cannot be printed"),
        ("a.json", '{"global_step": -5, "log_history": []}', "a.json:1: global_step"),
    ],
)
def test_what_no_field_can_hold_is_refused_with_its_place(name: str, text: str, place: str) -> None:
    with pytest.raises(Unusable) as caught:
        read_recipe_text(text, name)
    assert place in str(caught.value)


@pytest.mark.parametrize(
    ("written", "read"),
    [("32", 32), ('"32"', 32), ("32.0", 32), ('"3.2e1"', 32), ("0x20", 32)],
)
def test_a_rank_may_be_written_in_several_ways(written: str, read: int) -> None:
    recipe = read_recipe_text(f"use_peft: true\nlora_r: {written}\n", "a.yaml")
    assert values(recipe, "r") == [read]
    assert isinstance(values(recipe, "r")[0], int)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("true", True),
        ('"True"', True),
        ("'false'", False),
        ("no", False),
        ("1", True),
        ("0", False),
    ],
)
def test_a_switch_may_be_written_in_several_ways(written: str, read: bool) -> None:
    recipe = read_recipe_text(f"use_peft: true\nuse_rslora: {written}\n", "a.yaml")
    assert values(recipe, "use_rslora") == [read]


def test_an_alpha_need_not_be_whole() -> None:
    recipe = read_recipe_text("use_peft: true\nlora_alpha: 22.5\n", "a.yaml")
    assert values(recipe, "lora_alpha") == [22.5]


def test_contradictions_of_flags_and_calls_are_all_kept() -> None:
    line = "trl sft --use_peft --model_name_or_path a/b --lora_r 8 --lora_r 16"
    assert values(read_recipe_text(line, "run.sh"), "r") == [8, 16]
    script = "from peft import LoraConfig\nLoraConfig(r=4, lora_alpha=1)\nLoraConfig(r=2)\n"
    recipe = read_recipe_text(script, "a.py")
    assert values(recipe, "r") == [4, 2]
    assert values(recipe, "lora_alpha", Source.STATED) == [1, 8]
    assert values(recipe, "lora_alpha", Source.DEFAULT) == []


def test_a_default_that_depends_on_a_contradicted_rank_is_not_guessed() -> None:
    text = "finetuning_type: lora\nlora_rank: 8\nlora_rank: 16\n"
    recipe = read_recipe_text(text, "a.yaml")
    assert values(recipe, "r") == [8, 16]
    assert values(recipe, "lora_alpha") == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", "trainer: {policy: {model: {path: a/b, lora: {rank: 0, alpha: 16}}}}"),
        ("a.sh", "python -m openrlhf.cli.train_sft --pretrain a/b --lora_rank 0 --lora_alpha 8"),
        ("a.sh", "python -m openrlhf.cli.train_sft --pretrain a/b"),
        ("a.yaml", "use_peft: false\nlora_r: 8\n"),
        ("a.yaml", "policy: {model_name: a/b, dtensor_cfg: {lora_cfg: {enabled: false, dim: 8}}}"),
        ("a.yaml", "model: {_component_: torchtune.models.llama3.llama3_8b}\n"),
        ("a.yaml", "peft: {_target_: megatron.bridge.peft.other.Other, dim: 8, alpha: 8}\n"),
        ("a.toml", '[model]\nname = "a/b"\n[trainer.model]\nname = "a/b"\n[orchestrator]\n'),
        ("a.yaml", "schema-version: 2\ntraining: {backend: slime, options: {}}\n"),
        ("a.yaml", "actor_rollout_ref: {model: {path: a/b}}\n"),
    ],
)
def test_no_default_counts_where_lora_is_off(name: str, text: str) -> None:
    recipe = read_recipe_text(text, name)
    assert {s.field for s in recipe.statements} <= {"base_model_name_or_path"}
    assert any("does not turn LoRA on" in note for note in recipe.notes)


@pytest.mark.parametrize("key", ["q-lora-rank", "kv-lora-rank", "index-lora-rank", "o-lora-rank"])
def test_ranks_of_latent_attention_are_no_adapter(key: str) -> None:
    recipe = read_recipe_text(
        f"schema-version: 2\ntraining: {{backend: slime, options: {{{key}: '512'}}}}\n",
        "serve.yaml",
    )
    assert recipe.statements == ()
    line = f"python train.py --hf-checkpoint a/b --megatron-lora-rank 0 --{key} 512"
    assert values(read_recipe_text(line, "run.sh"), "r") == []
    tuned = f"adapter: lora\nbase_model: a/b\n{key.replace('-', '_')}: 512\n"
    assert values(read_recipe_text(tuned, "a.yml"), "r") == []


def test_defaults_of_another_version_are_not_used() -> None:
    text = "finetuning_type: lora\nmodel_name_or_path: a/b\nlora_rank: 8\n"
    older = read_recipe_text(text, "a.yaml", None, "0.8.1")
    assert values(older, "lora_alpha") == []
    assert older.version == "0.8.1"
    assert any("0.9.5" in note for note in older.notes)
    assert values(read_recipe_text(text, "a.yaml", None, "0.9.5"), "lora_alpha") == [16]


UNSURE = [
    ("a.toml", '[model]\nname = "a/b"\n[model.lora]\n', "prime-rl", 32),
    ("a.sh", "python train.py --pretrain a/b --lora_rank 8", "OpenRLHF", 16),
    ("a.yaml", "stage: sft\nlora_rank: 8\n", "LLaMA-Factory", 16),
    ("a.yaml", "peft: {dim: 8, alpha: 32, lora: 1}\n", "Megatron-Bridge", 32),
    ("a.py", "LoraConfig(r=8)", "PEFT", 8),
]


@pytest.mark.parametrize(("name", "text", "trainer", "alpha"), UNSURE)
def test_keys_that_others_have_too_bring_no_defaults(
    name: str, text: str, trainer: str, alpha: int
) -> None:
    recipe = read_recipe_text(text, name)
    assert recipe.trainer == trainer
    assert [s for s in recipe.statements if s.source is Source.DEFAULT] == []
    assert any("may be another program's" in note for note in recipe.notes)
    assert values(read_recipe_text(text, name, trainer), "lora_alpha") == [alpha]


@pytest.mark.parametrize(
    "line", ["cd /home/swift && trl sft --use_peft --model_name_or_path a/b", "trl sft --use_peft"]
)
def test_a_folder_is_no_trainer(line: str) -> None:
    assert read_recipe_text(line, "run.sh").trainer == "TRL"


def test_a_document_that_no_trainer_knows_is_refused_with_their_names() -> None:
    for name, text in [
        ("a.yaml", "hello: world\n"),
        ("a.txt", "hello"),
        ("a", ""),
        ("a.md", "# x"),
    ]:
        with pytest.raises(Unusable, match=r"Reef, verl.*axolotl.*PEFT") as caught:
            read_recipe_text(text, name)
        assert "--set lora_alpha=ALPHA" in str(caught.value.remedy)


def test_an_unknown_trainer_is_refused_with_the_known_ones() -> None:
    with pytest.raises(Unusable) as caught:
        read_recipe_text("lora_r: 8\n", "a.yaml", trainer="nobody")
    assert "axolotl" in str(caught.value.remedy)


def test_naming_the_trainer_reads_what_would_not_be_recognised() -> None:
    recipe = read_recipe_text("lora_r: 8\nlora_alpha: 4\n", "a.yaml", "axolotl")
    assert (values(recipe, "r"), values(recipe, "lora_alpha")) == ([8], [4])
    assert all(s.source is Source.STATED for s in recipe.statements)


@pytest.mark.parametrize("trainer", ["swift", "MS-Swift", "ms_swift"])
def test_a_trainer_is_found_by_the_names_people_use(trainer: str) -> None:
    assert read_recipe_text("lora_rank: 8\n", "a.yaml", trainer).trainer == "ms-swift"


def test_a_models_config_is_told_from_an_adapters() -> None:
    text = json.dumps({"_name_or_path": "x", "architectures": ["A"], "hidden_size": 8})
    with pytest.raises(Unusable, match="model's config"):
        read_recipe_text(text, "adapter_config.json")


def saved(folder: Path, metadata: dict[str, str]) -> Path:
    path = folder / "adapter.safetensors"
    path.write_bytes(write_header([("a.lora_down.weight", "F32", (4, 4))], metadata) + bytes(64))
    return path


def test_kohyas_metadata_is_read(tmp_path: Path) -> None:
    metadata = {
        "ss_network_dim": "16",
        "ss_network_alpha": "8.0",
        "ss_learning_rate": "0.0001",
        "ss_steps": "1600",
        "ss_optimizer": "None",
        "ss_sd_model_name": "sd_xl_base_1.0.safetensors",
        "ss_network_module": "lycoris.kohya",
    }
    recipe = read_recipe(saved(tmp_path, metadata))
    assert recipe.trainer == "kohya"
    assert {s.field: s.value for s in recipe.statements} == {
        "r": 16,
        "lora_alpha": 8,
        "learning_rate": 0.0001,
        "step": 1600,
        "base_model_name_or_path": "sd_xl_base_1.0.safetensors",
        "use_rslora": False,
        "use_dora": False,
    }
    assert recipe.of("r")[0].origin == "adapter.safetensors:1: __metadata__.ss_network_dim"
    assert any("LyCORIS" in note for note in recipe.notes)


@pytest.mark.parametrize("unset", ["None", "0", "0.0"])
def test_kohyas_unset_alpha_is_the_rank(unset: str, tmp_path: Path) -> None:
    metadata = {"ss_network_dim": "16", "ss_network_alpha": unset}
    recipe = read_recipe(saved(tmp_path, metadata))
    assert values(recipe, "lora_alpha", Source.DEFAULT) == [16]


@pytest.mark.parametrize("nested", [True, False])
def test_diffusers_metadata_is_read(nested: bool, tmp_path: Path) -> None:
    config: dict[str, object] = {"r": 8, "lora_alpha": 4, "target_modules": ["to_q", "to_k"]}
    flat = {f"transformer.{key}": value for key, value in config.items()}
    content = json.dumps({"transformer": config} if nested else flat)
    recipe = read_recipe(saved(tmp_path, {"format": "pt", "lora_adapter_metadata": content}))
    assert recipe.trainer == "diffusers"
    assert {s.field: s.value for s in recipe.statements} == config


def test_a_safetensors_file_without_such_metadata_is_no_recipe(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="no recipe"):
        read_recipe(saved(tmp_path, {"format": "pt"}))


def test_a_launch_line_needs_no_file_ending() -> None:
    for line, name in itertools.product(
        ["nohup python -m trl.scripts.sft --use_peft --lora_r 8 --model_name_or_path a/b &"],
        ["command line", "cmd.txt", "launch"],
    ):
        recipe = read_recipe_text(line, name)
        assert (recipe.trainer, values(recipe, "r")) == ("TRL", [8])


@pytest.mark.parametrize(
    ("path", "read"),
    [
        ("${hub.owner}/Qwen3-8B", ["Qwen/Qwen3-8B"]),
        ("${hub.whole}", ["Qwen/Qwen3-8B"]),
        ("${hub.owner}/Qwen3-${hub.size}B", ["Qwen/Qwen3-8B"]),
        ("${hub.list}/x", []),
        ("${hub.${hub.key}}/x", []),
        ("${oc.env:MODEL}", []),
        ("${hub.owner", []),
        ("???", []),
    ],
)
def test_references_are_put_in_only_where_the_document_decides(path: str, read: list[str]) -> None:
    text = (
        f"actor_rollout_ref: {{model: {{path: '{path}', lora_rank: 8}}}}\n"
        "hub: {owner: Qwen, size: 8, whole: '${hub.owner}/Qwen3-8B', key: owner, list: [a]}\n"
    )
    recipe = read_recipe_text(text, "a.yaml")
    assert values(recipe, "base_model_name_or_path") == read
    assert bool(recipe.notes) is not bool(read)


@pytest.mark.parametrize(("rank", "alpha"), [("8", "???"), ("???", "null")])
def test_a_value_left_open_is_not_replaced_by_a_default(rank: str, alpha: str) -> None:
    text = f"actor_rollout_ref:\n  model:\n    lora_rank: {rank}\n    lora_alpha: {alpha}\n"
    recipe = read_recipe_text(text, "a.yaml")
    assert values(recipe, "lora_alpha") == []
    assert any("left open" in note for note in recipe.notes)


def test_what_follows_a_switch_need_not_be_its_value() -> None:
    line = "python trl/scripts/sft.py --use_dora x --use_peft train.py --lora_r 8 y"
    recipe = read_recipe_text(line, "a.sh")
    assert values(recipe, "use_dora") == [True]
    assert values(recipe, "r") == [8]
    assert values(recipe, "lora_alpha", Source.DEFAULT) == [32]


def test_an_uncertain_switch_brings_no_defaults() -> None:
    for line in ("swift sft --model a/b --tuner_type $T", "trl sft --use_peft=$P --lora_r 8"):
        recipe = read_recipe_text(line, "a.sh")
        assert [s for s in recipe.statements if s.source is Source.DEFAULT] == []


def test_adapters_of_several_components_are_all_read(tmp_path: Path) -> None:
    config = {"unet.r": 8, "unet.lora_alpha": 8, "text_encoder.r": 4, "text_encoder.lora_alpha": 4}
    recipe = read_recipe(saved(tmp_path, {"lora_adapter_metadata": json.dumps(config)}))
    assert values(recipe, "r") == [4, 8]
    assert any("2 components" in note for note in recipe.notes)
    many = json.dumps({f"c{n}.r": 8 for n in range(100)})
    with pytest.raises(Unusable, match="components"):
        read_recipe(saved(tmp_path, {"lora_adapter_metadata": many}))


def test_metadata_that_states_nothing_is_no_statement(tmp_path: Path) -> None:
    unset = dict.fromkeys(["ss_network_dim", "ss_network_alpha", "ss_steps", "ss_learning_rate"])
    recipe = read_recipe(saved(tmp_path, dict.fromkeys(unset, "None")))
    assert not {s.field for s in recipe.statements} & {"r", "lora_alpha", "step", "learning_rate"}
