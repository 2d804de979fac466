# torch, peft and transformers leave much untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import synthetic

from reefkit.cli import recover, run

LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
REEF = """
run_dir: runs/1
reef:
  model_path: {base}
  recipe: tttd
services:
- name: slime-driver
  command: >-
    python -m reef.train --hf-checkpoint=${{reef.model_path}} --megatron-lora-rank=8
    --megatron-lora-alpha=16 --megatron-lora-dropout=0
    --megatron-lora-target-modules linear_qkv linear_proj linear_fc1 linear_fc2
"""
SIBLING = {
    "peft_type": "LORA",
    "r": 8,
    "lora_alpha": 24,
    "use_rslora": False,
    "target_modules": LINEAR[::-1],
    "base_model_name_or_path": "Qwen/Qwen3-8B",
    "init_lora_weights": True,
}
STATED = ["--set", "lora_alpha=16", "--set", "use_rslora=false"]
BASE = ["--set", "base_model_name_or_path=Qwen/Qwen3-8B"]


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    folder = tmp_path / "adapter"
    sizes = synthetic.modules(synthetic.QWEN)
    synthetic.write(folder / "adapter_model.safetensors", synthetic.lora(sizes, 8))
    return folder


@pytest.fixture
def base(tmp_path: Path) -> Path:
    path = tmp_path / "base.json"
    path.write_text(json.dumps(synthetic.QWEN))
    return path


def recipe(tmp_path: Path, name: str, text: object) -> Path:
    path = tmp_path / name
    path.write_text(text if isinstance(text, str) else json.dumps(text))
    return path


def test_a_sibling_configuration_states_what_no_tensor_tells(
    adapter: Path, base: Path, tmp_path: Path, rebuild: Callable[..., Any]
) -> None:
    sibling = recipe(tmp_path, "adapter_config.json", SIBLING)

    result = rebuild(adapter, "--recipe", sibling, "--base", base)

    fields = result.document["fields"]
    assert result.code == 0 and result.document["complete"] is True
    assert fields["r"] == {"value": 8, "source": "proven", "from": fields["r"]["from"]}
    assert fields["lora_alpha"]["source"] == "stated"
    assert fields["lora_alpha"]["from"].startswith("adapter_config.json:1")
    assert fields["base_model_name_or_path"]["value"] == "Qwen/Qwen3-8B"
    written = json.loads((adapter / "adapter_config.json").read_text())
    assert written["lora_alpha"] == 24
    assert written["target_modules"] == LINEAR[::-1]
    evidence = json.loads((adapter / "adapter_config.evidence.json").read_text())
    assert evidence["schema"] == "reefkit.config-evidence/1"
    assert evidence["fields"] == fields


def test_what_the_command_line_states_wins_over_a_recipe_and_says_so(
    adapter: Path, base: Path, tmp_path: Path, rebuild: Callable[..., Any]
) -> None:
    sibling = recipe(tmp_path, "adapter_config.json", SIBLING)

    result = rebuild(adapter, "--recipe", sibling, "--base", base, "--set", "lora_alpha=48")

    alpha = result.document["fields"]["lora_alpha"]
    assert result.code == 0
    assert (alpha["value"], alpha["source"]) == (48, "stated")
    assert alpha["from"] == "--set lora_alpha=48"
    assert "24" in alpha["overruled"][0]


def test_without_any_source_nothing_is_written_and_the_flags_are_named(
    adapter: Path, base: Path, rebuild: Callable[..., Any]
) -> None:
    result = rebuild(adapter, "--base", base)

    assert result.code == 1
    assert result.document["complete"] is False
    missing = {need["field"] for need in result.document["missing"]}
    assert missing == {"lora_alpha", "use_rslora", "base_model_name_or_path"}
    for flag in ("lora_alpha=", "use_rslora=", "base_model_name_or_path="):
        assert f"--set {flag}" in result.output
    assert [path.name for path in adapter.iterdir()] == ["adapter_model.safetensors"]


@pytest.mark.parametrize("known", [STATED[:2], STATED[2:], BASE])
def test_one_of_three_is_not_enough(
    known: list[str], adapter: Path, base: Path, rebuild: Callable[..., Any]
) -> None:
    result = rebuild(adapter, "--base", base, *known)

    assert result.code == 1
    assert len(result.document["missing"]) == 2
    assert not (adapter / "adapter_config.json").exists()


def test_a_trainer_without_rslora_is_a_source_for_it(
    adapter: Path, base: Path, tmp_path: Path, rebuild: Callable[..., Any]
) -> None:
    serve = recipe(tmp_path, "serve.yaml", REEF.format(base="Qwen/Qwen3-8B"))

    result = rebuild(adapter, "--recipe", serve, "--base", base)

    fields = result.document["fields"]
    assert result.code == 0, result.document
    assert (fields["use_rslora"]["value"], fields["use_rslora"]["source"]) == (False, "default")
    assert (fields["lora_alpha"]["value"], fields["lora_alpha"]["source"]) == (16, "stated")
    written = json.loads((adapter / "adapter_config.json").read_text())
    assert sorted(written["target_modules"]) == sorted(LINEAR)


def test_a_local_path_is_no_identity_and_is_kept_as_evidence(
    adapter: Path, base: Path, tmp_path: Path, rebuild: Callable[..., Any]
) -> None:
    serve = recipe(tmp_path, "serve.yaml", REEF.format(base="work/model"))

    refused = rebuild(adapter, "--recipe", serve, "--base", base)
    stated = rebuild(adapter, "--recipe", serve, "--base", base, *BASE)

    assert refused.code == 1
    assert [need["field"] for need in refused.document["missing"]] == ["base_model_name_or_path"]
    assert stated.code == 0
    identity = stated.document["fields"]["base_model_name_or_path"]
    assert identity["value"] == "Qwen/Qwen3-8B"
    assert any("work/model" in said for said in identity["overruled"])


def test_the_cache_entry_of_a_base_is_an_identity(
    adapter: Path, tmp_path: Path, rebuild: Callable[..., Any]
) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    snapshot = tmp_path / "hub" / "models--Qwen--Qwen3-8B" / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps(synthetic.QWEN))

    result = rebuild(adapter, "--base", snapshot, *STATED)

    assert result.code == 0
    assert result.document["fields"]["base_model_name_or_path"]["value"] == "Qwen/Qwen3-8B"
    assert result.document["base"]["revision"] == commit


def test_what_is_unknown_and_harmless_is_written_and_not_claimed(
    adapter: Path, base: Path, rebuild: Callable[..., Any]
) -> None:
    result = rebuild(adapter, "--base", base, *STATED, *BASE)

    dropout = result.document["fields"]["lora_dropout"]
    assert (dropout["value"], dropout["source"], dropout["written"]) == (None, "unknown", 0.0)
    assert json.loads((adapter / "adapter_config.json").read_text())["lora_dropout"] == 0.0
    assert result.document["fields"]["init_lora_weights"]["assumed"] is True


def test_without_a_base_every_module_is_named_in_full(
    adapter: Path, rebuild: Callable[..., Any]
) -> None:
    result = rebuild(adapter, *STATED, *BASE)

    assert result.code == 0
    assert result.document["checked"]["against"] is None
    written = json.loads((adapter / "adapter_config.json").read_text())
    assert sorted(written["target_modules"]) == sorted(synthetic.modules(synthetic.QWEN))


def test_all_linear_of_a_recipe_is_expanded(
    adapter: Path, base: Path, tmp_path: Path, rebuild: Callable[..., Any]
) -> None:
    sibling = recipe(tmp_path, "adapter_config.json", {**SIBLING, "target_modules": "all-linear"})

    result = rebuild(adapter, "--recipe", sibling, "--base", base)

    assert result.code == 0
    written = json.loads((adapter / "adapter_config.json").read_text())
    assert sorted(written["target_modules"]) == sorted(LINEAR)


def test_an_alpha_of_zero_is_a_placeholder_and_no_source(
    adapter: Path, base: Path, tmp_path: Path, rebuild: Callable[..., Any]
) -> None:
    sibling = recipe(tmp_path, "adapter_config.json", {**SIBLING, "lora_alpha": 0})

    result = rebuild(adapter, "--recipe", sibling, "--base", base)

    assert result.code == 1
    assert [need["field"] for need in result.document["missing"]] == ["lora_alpha"]


def test_what_exists_is_not_overwritten_without_force(
    adapter: Path, base: Path, rebuild: Callable[..., Any]
) -> None:
    (adapter / "adapter_config.json").write_text("{}")

    refused = rebuild(adapter, "--base", base, *STATED, *BASE)
    elsewhere = rebuild(adapter, "--base", base, *STATED, *BASE, "--out", adapter / "new")
    forced = rebuild(adapter, "--base", base, *STATED, *BASE, "--force")

    assert refused.code == 2
    assert refused.document["code"] == "DestinationExists"
    assert elsewhere.code == forced.code == 0
    assert (adapter / "new" / "adapter_config.json").read_bytes() == (
        adapter / "adapter_config.json"
    ).read_bytes()
    assert json.loads((adapter / "adapter_config.json").read_text())["r"] == 8


def test_the_output_may_be_named_as_a_file(
    adapter: Path, base: Path, tmp_path: Path, rebuild: Callable[..., Any]
) -> None:
    out = tmp_path / "elsewhere" / "step_8.json"

    result = rebuild(adapter, "--base", base, *STATED, *BASE, "-o", out)

    assert result.code == 0
    assert json.loads(out.read_text())["r"] == 8
    assert out.with_name("step_8.evidence.json").is_file()


def test_every_key_of_peft_is_written_in_its_layout(
    adapter: Path, base: Path, rebuild: Callable[..., Any]
) -> None:
    from peft import LoraConfig

    rebuild(adapter, "--base", base, *STATED, *BASE)

    text = (adapter / "adapter_config.json").read_text()
    original: dict[str, Any] = LoraConfig(target_modules=LINEAR).to_dict()
    assert set(json.loads(text)) == set(original) - {"runtime_config"}
    assert text == json.dumps(json.loads(text), indent=2, sort_keys=True)


CARD = """---
base_model: Qwen/Qwen3-8B
library_name: peft
tags:
- base_model:adapter:Qwen/Qwen3-8B
- lora
---
### Framework versions

- PEFT 0.17.1
"""


def test_the_card_of_an_adapter_states_its_base(
    adapter: Path, base: Path, tmp_path: Path, rebuild: Callable[..., Any]
) -> None:
    card = recipe(tmp_path, "README.md", CARD)

    result = rebuild(adapter, "--recipe", card, "--base", base, *STATED)

    fields = result.document["fields"]
    assert result.code == 0, result.document
    assert fields["base_model_name_or_path"]["source"] == "stated"
    assert fields["peft_version"]["value"] == "0.17.1"


def test_a_recipe_that_names_parameters_says_nothing_of_modules(
    tmp_path: Path, base: Path, adapter: Path, rebuild: Callable[..., Any]
) -> None:
    stated = {**SIBLING, "target_parameters": ["lm_head.weight"]}
    del stated["target_modules"]
    sibling = recipe(tmp_path, "adapter_config.json", stated)

    assert rebuild(adapter, "--recipe", sibling, "--base", base).code == 1


def test_what_is_printed_names_every_source(
    adapter: Path, base: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = ["rebuild-config", str(adapter), "--base", str(base), *STATED, *BASE]

    assert run(recover, told) == 0

    printed = capsys.readouterr()
    assert "lora_alpha" in printed.out and "--set lora_alpha=16" in printed.out
    assert "proven" in printed.out and "Wrote" in printed.out
