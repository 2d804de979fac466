from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import synthetic

LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
STATED = {
    "peft_type": "LORA",
    "r": 8,
    "lora_alpha": 16,
    "use_rslora": False,
    "target_modules": LINEAR,
    "base_model_name_or_path": "Qwen/Qwen3-8B",
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    sizes = synthetic.modules(synthetic.QWEN)
    synthetic.write(tmp_path / "a" / "adapter_model.safetensors", synthetic.lora(sizes, 8))
    (tmp_path / "base.json").write_text(json.dumps(synthetic.QWEN))
    return tmp_path


def write(folder: Path, name: str, **changes: object) -> Path:
    path = folder / name
    path.write_text(json.dumps({**STATED, **changes}))
    return path


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("r", 16),
        ("r", 4),
        ("target_modules", ["q_proj", "v_proj"]),
        ("target_modules", [*LINEAR, "lm_head"]),
        ("target_modules", ["q_proj", "misspelt"]),
        ("target_modules", r".*\.(q|k)_proj"),
        ("exclude_modules", ["q_proj"]),
        ("layers_to_transform", [0, 1]),
        ("rank_pattern", {"q_proj": 16}),
        ("use_dora", True),
        ("lora_bias", True),
        ("modules_to_save", ["lm_head"]),
        ("trainable_token_indices", [1, 2]),
        ("target_parameters", ["lm_head.weight"]),
    ],
)
@pytest.mark.parametrize("by", ["recipe", "command line"])
def test_what_contradicts_the_tensors_is_an_error_and_nothing_is_written(
    field: str, value: object, by: str, place: Path, rebuild: Callable[..., Any]
) -> None:
    said = {field: value} if by == "recipe" else {}
    setting = [] if by == "recipe" else ["--set", f"{field}={json.dumps(value)}"]
    sibling = write(place, "sibling.json", **said)

    result = rebuild(place / "a", "--recipe", sibling, "--base", place / "base.json", *setting)

    assert result.code == 1, result.document
    assert result.document["conflicts"]
    assert result.document["complete"] is False
    assert [path.name for path in (place / "a").iterdir()] == ["adapter_model.safetensors"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("lora_alpha", 32),
        ("use_rslora", True),
        ("base_model_name_or_path", "Qwen/Qwen3-8B-Base"),
        ("alpha_pattern", {"q_proj": 32}),
        ("init_lora_weights", "pissa"),
        ("r", 16),
    ],
)
def test_recipes_that_differ_are_an_error_until_the_command_line_decides(
    field: str, value: object, place: Path, rebuild: Callable[..., Any]
) -> None:
    before: dict[str, Any] = {"alpha_pattern": {}, "init_lora_weights": True}
    one = write(place, "one.json", **before)
    other = write(place, "other.json", **{**before, field: value})
    told = [place / "a", "--recipe", one, "--recipe", other, "--base", place / "base.json"]
    right = {**STATED, **before}[field]

    differing = rebuild(*told)
    decided = rebuild(
        *told, "--set", f"{field}={right if isinstance(right, str) else json.dumps(right)}"
    )

    assert differing.code == 1
    assert [conflict["field"] for conflict in differing.document["conflicts"]] == [field]
    assert decided.code == 0, decided.document
    assert decided.document["fields"][field]["value"] == right


def test_a_base_that_does_not_fit_is_no_base_of_this_adapter(
    place: Path, rebuild: Callable[..., Any]
) -> None:
    other = {**synthetic.QWEN, "hidden_size": 640}
    (place / "base.json").write_text(json.dumps(other))
    sibling = write(place, "sibling.json")

    result = rebuild(place / "a", "--recipe", sibling, "--base", place / "base.json")

    assert result.code == 1
    assert "not its base" in result.document["message"]


def test_a_recipe_tells_that_a_layer_is_missing(place: Path, rebuild: Callable[..., Any]) -> None:
    sizes = synthetic.modules(synthetic.QWEN)
    kept = {name: size for name, size in sizes.items() if ".3." not in name}
    synthetic.write(place / "a" / "adapter_model.safetensors", synthetic.lora(kept, 8))
    sibling = write(place, "sibling.json")
    told = ["--base", place / "base.json"]

    with_recipe = rebuild(place / "a", "--recipe", sibling, *told)

    assert with_recipe.code == 1
    assert "no tensors for 7 of them" in with_recipe.document["conflicts"][0]["message"]


def test_names_are_shown_safely(place: Path, rebuild: Callable[..., Any]) -> None:
    result = rebuild(place / "a", "--set", "r=8\u001b[31m")

    assert result.code == 2
    assert "\u001b" not in result.document["message"]


def test_a_base_with_biases_would_have_saved_them(place: Path, rebuild: Callable[..., Any]) -> None:
    qwen2 = {**synthetic.QWEN, "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}
    sibling = write(place, "sibling.json", bias="lora_only")
    told = [place / "a", "--recipe", sibling, "--base", place / "base.json"]

    without = rebuild(*told)
    (place / "base.json").write_text(json.dumps(qwen2))
    with_biases = rebuild(*told, "--force")

    assert without.code == 0, without.document
    assert with_biases.code == 1
    assert with_biases.document["conflicts"][0]["field"] == "bias"


def test_layers_beyond_those_of_the_base_need_their_replication(
    place: Path, rebuild: Callable[..., Any]
) -> None:
    sizes = synthetic.modules({**synthetic.QWEN, "num_hidden_layers": 6})
    synthetic.write(place / "a" / "adapter_model.safetensors", synthetic.lora(sizes, 8))
    sibling = write(place, "sibling.json")
    told = [place / "a", "--recipe", sibling, "--base", place / "base.json"]

    silent = rebuild(*told)
    stated = rebuild(*told, "--set", "layer_replication=[[0,4],[2,4]]")
    wrong = rebuild(*told, "--set", "layer_replication=[[0,4],[2,3]]", "--force")

    assert [need["field"] for need in silent.document["missing"]] == ["layer_replication"]
    assert stated.code == 0, stated.document
    assert wrong.code == 1
