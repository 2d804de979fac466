from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import synthetic

LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
STATED: dict[str, Any] = {
    "peft_type": "LORA",
    "r": 8,
    "lora_alpha": 16,
    "use_rslora": False,
    "target_modules": LINEAR,
    "base_model_name_or_path": "Qwen/Qwen3-8B",
}


def prepare(
    folder: Path, tensors: Mapping[str, synthetic.Piece], base: Mapping[str, Any], **stated: Any
) -> list[object]:
    synthetic.write(folder / "a" / "adapter_model.safetensors", tensors)
    (folder / "base.json").write_text(json.dumps(base))
    (folder / "recipe.json").write_text(json.dumps({**STATED, **stated}))
    return [folder / "a", "--recipe", folder / "recipe.json", "--base", folder / "base.json"]


def written(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((folder / "a" / "adapter_config.json").read_text())
    return config


@pytest.mark.parametrize("init", ["pissa", "pissa_niter_16", "olora", "corda", "lora_ga"])
@pytest.mark.parametrize(("rslora", "alpha"), [(False, 32), (True, 16 * math.sqrt(2))])
def test_a_converted_initialisation_doubles_the_rank_and_keeps_the_scale(
    init: str, rslora: bool, alpha: float, tmp_path: Path, rebuild: Callable[..., Any]
) -> None:
    tensors = synthetic.lora(synthetic.modules(synthetic.QWEN), 16)
    told = prepare(tmp_path, tensors, synthetic.QWEN, init_lora_weights=init, use_rslora=rslora)

    result = rebuild(*told)

    assert result.code == 0, result.document
    config = written(tmp_path)
    assert (config["r"], config["init_lora_weights"]) == (16, True)
    assert config["lora_alpha"] == pytest.approx(alpha)
    assert [c["cause"] for c in result.document["explained"]] == ["converted-initialisation"]
    if not rslora:
        assert config["lora_alpha"] / config["r"] == STATED["lora_alpha"] / STATED["r"]


def test_patterns_are_doubled_with_the_conversion(
    tmp_path: Path, rebuild: Callable[..., Any]
) -> None:
    sizes = synthetic.modules(synthetic.QWEN)
    wide = {name: size for name, size in sizes.items() if name.endswith("q_proj")}
    tensors = {**synthetic.lora(sizes, 16), **synthetic.lora(wide, 24)}
    told = prepare(
        tmp_path,
        tensors,
        synthetic.QWEN,
        init_lora_weights="pissa",
        rank_pattern={"q_proj": 12},
        alpha_pattern={"q_proj": 20},
    )

    result = rebuild(*told)

    assert result.code == 0, result.document
    config = written(tmp_path)
    assert config["rank_pattern"] == {"q_proj": 24}
    assert config["alpha_pattern"] == {"q_proj": 40}


def test_twice_the_rank_without_a_cause_is_a_contradiction_and_a_stated_cause_helps(
    tmp_path: Path, rebuild: Callable[..., Any]
) -> None:
    tensors = synthetic.lora(synthetic.modules(synthetic.QWEN), 16)
    told = prepare(tmp_path, tensors, synthetic.QWEN)

    refused = rebuild(*told)
    stated = rebuild(*told, "--set", "converted_initialisation=true")

    assert refused.code == 1
    assert "converted_initialisation" in refused.document["conflicts"][0]["message"]
    assert stated.code == 0, stated.document
    assert written(tmp_path)["lora_alpha"] == 32


def fused(base: Mapping[str, Any], gate: int, down: int) -> dict[str, synthetic.Piece]:
    """Make the two wrappers of every layer's experts."""
    hidden, inner, count = base["hidden_size"], base["moe_intermediate_size"], base["num_experts"]
    tensors: dict[str, synthetic.Piece] = {}
    for layer in range(base["num_hidden_layers"]):
        place = f"{synthetic.PREFIX}model.layers.{layer}.mlp.experts"
        for name, shape in (
            (f"{place}.base_layer.lora_A.weight", (count * gate, hidden)),
            (f"{place}.base_layer.lora_B.weight", (2 * inner, count * gate)),
            (f"{place}.lora_A.weight", (count * down, inner)),
            (f"{place}.lora_B.weight", (hidden, count * down)),
        ):
            tensors[name] = synthetic.noise(shape, name)
    return tensors


def test_fused_gate_and_up_have_twice_the_rank_and_alpha(
    tmp_path: Path, rebuild: Callable[..., Any]
) -> None:
    tensors = {
        **synthetic.lora(synthetic.modules(synthetic.MOE), 8),
        **fused(synthetic.MOE, gate=16, down=8),
    }
    told = prepare(tmp_path, tensors, synthetic.MOE)

    result = rebuild(*told)

    assert result.code == 0, result.document
    config = written(tmp_path)
    assert config["rank_pattern"] == {r".*\.gate_up_proj": 16}
    assert config["alpha_pattern"] == {r".*\.gate_up_proj": 32}
    assert sorted(config["target_parameters"]) == ["down_proj", "gate_up_proj"]
    assert sorted(config["target_modules"]) == ["k_proj", "o_proj", "q_proj", "v_proj"]
    assert [c["cause"] for c in result.document["explained"]] == ["fused-gate-up"]


def test_a_rank_for_the_fused_parameter_itself_is_not_doubled(
    tmp_path: Path, rebuild: Callable[..., Any]
) -> None:
    tensors = {
        **synthetic.lora(synthetic.modules(synthetic.MOE), 8),
        **fused(synthetic.MOE, gate=16, down=8),
    }
    told = prepare(
        tmp_path,
        tensors,
        synthetic.MOE,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj"],
        target_parameters=["experts.gate_up_proj", "experts.down_proj"],
        rank_pattern={},
    )

    assert rebuild(*told).code == 1


def test_normalised_experts_have_the_rank_divided_by_the_routed_number(
    tmp_path: Path, rebuild: Callable[..., Any]
) -> None:
    tensors = {
        **synthetic.lora(synthetic.modules(synthetic.MOE), 8),
        **synthetic.lora(synthetic.experts(synthetic.MOE), 4),
    }
    told = prepare(tmp_path, tensors, synthetic.MOE)

    refused = rebuild(*told, "--set", "alpha_pattern={}", "--set", "rank_pattern={}")
    explained = rebuild(*told, "--set", "normalize_moe_lora=true")

    assert refused.code == 1
    assert explained.code == 0, explained.document
    config = written(tmp_path)
    assert (config["r"], config["rank_pattern"]) == (8, {r".*\.experts\..*": 4})
    assert config["alpha_pattern"] == {}
    assert [c["cause"] for c in explained.document["explained"]] == ["normalised-experts"]


def test_mixed_ranks_need_a_word_on_alpha(tmp_path: Path, rebuild: Callable[..., Any]) -> None:
    sizes = synthetic.modules(synthetic.QWEN)
    narrow = {name: size for name, size in sizes.items() if name.endswith("1.mlp.up_proj")}
    tensors = {**synthetic.lora(sizes, 8), **synthetic.lora(narrow, 2)}
    told = prepare(tmp_path, tensors, synthetic.QWEN)

    silent = rebuild(*told)
    stated = rebuild(*told, "--set", "alpha_pattern={}")

    assert silent.code == 1
    assert [need["field"] for need in silent.document["missing"]] == ["alpha_pattern"]
    assert stated.code == 0
    assert written(tmp_path)["rank_pattern"] == {r"^model\.layers\.1\.mlp\.up_proj": 2}


def test_the_alpha_of_a_recipe_of_another_rank_is_no_source(
    tmp_path: Path, rebuild: Callable[..., Any]
) -> None:
    tensors = synthetic.lora(synthetic.modules(synthetic.QWEN), 16)
    told = prepare(tmp_path, tensors, synthetic.QWEN)

    overruled = rebuild(*told, "--set", "r=16")
    stated = rebuild(*told, "--set", "r=16", "--set", "lora_alpha=16", "--set", "use_rslora=false")

    assert overruled.code == 1
    missing = [need["field"] for need in overruled.document["missing"]]
    assert missing == ["use_rslora", "lora_alpha"]
    assert stated.code == 0, stated.document


def test_a_conversion_counts_although_the_rank_is_stated_anew(
    tmp_path: Path, rebuild: Callable[..., Any]
) -> None:
    tensors = synthetic.lora(synthetic.modules(synthetic.QWEN), 16)
    told = prepare(tmp_path, tensors, synthetic.QWEN, init_lora_weights="pissa")

    result = rebuild(*told, "--set", "r=16")

    assert result.code == 0, result.document
    assert written(tmp_path)["lora_alpha"] == 32
    assert written(tmp_path)["init_lora_weights"] is True


def test_eva_spreads_ranks_and_leaves_alpha_to_be_stated(
    tmp_path: Path, rebuild: Callable[..., Any]
) -> None:
    sizes = synthetic.modules(synthetic.QWEN)
    wide = {name: size for name, size in sizes.items() if name.endswith("q_proj")}
    tensors = {**synthetic.lora(sizes, 6), **synthetic.lora(wide, 14)}
    told = prepare(tmp_path, tensors, synthetic.QWEN, init_lora_weights="eva", alpha_pattern={})

    silent = rebuild(*told)
    stated = rebuild(*told, "--set", 'alpha_pattern={"q_proj": 28, "[kvo]_proj": 12}')

    assert [need["field"] for need in silent.document["missing"]] == ["alpha_pattern"]
    assert stated.code == 0, stated.document


def test_the_recipe_of_a_run_and_its_converted_sibling_agree(
    tmp_path: Path, rebuild: Callable[..., Any]
) -> None:
    tensors = synthetic.lora(synthetic.modules(synthetic.QWEN), 16)
    told = prepare(tmp_path, tensors, synthetic.QWEN, init_lora_weights="pissa")
    sibling = {**STATED, "r": 16, "lora_alpha": 32, "init_lora_weights": True}
    (tmp_path / "sibling.json").write_text(json.dumps(sibling))

    result = rebuild(*told, "--recipe", tmp_path / "sibling.json")

    assert result.code == 0, result.document
    assert written(tmp_path)["lora_alpha"] == 32
