from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import synthetic

STATED = [
    word
    for said in ("lora_alpha=16", "use_rslora=false", "base_model_name_or_path=Qwen/Qwen3-8B")
    for word in ("--set", said)
]
MODULE = "model.layers.0.self_attn.q_proj"


def renamed(change: Callable[[str], str]) -> dict[str, synthetic.Piece]:
    tensors = synthetic.lora(synthetic.modules(synthetic.QWEN), 8)
    return {change(name): piece for name, piece in tensors.items()}


def method(*parts: str) -> dict[str, synthetic.Piece]:
    return {f"{synthetic.PREFIX}{MODULE}.{part}": synthetic.noise((8, 8), part) for part in parts}


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        (renamed(lambda name: name.removeprefix(synthetic.PREFIX)), "missing"),
        (renamed(lambda name: synthetic.PREFIX + name), "doubled"),
        (renamed(lambda name: name.replace("model.layers", "_orig_mod.model.layers")), "_orig_mod"),
        (renamed(lambda name: name.replace(".weight", ".default.weight")), "default"),
        (
            renamed(lambda name: name.replace("lora_A", "lora_a").replace("lora_B", "lora_b")),
            "torchtune",
        ),
        (renamed(lambda n: n.replace("lora_A", "lora_down").replace("lora_B", "lora_up")), "kohya"),
        (method("hada_w1_a", "hada_w1_b", "hada_w2_a", "hada_w2_b"), "LOHA"),
        (method("ia3_l"), "IA3"),
        (method("vera_lambda_b", "vera_lambda_d"), "seed"),
        (method("lora_A.weight"), "only one of A and B"),
    ],
)
def test_what_is_no_plain_lora_is_named_and_refused(
    tensors: dict[str, synthetic.Piece], said: str, tmp_path: Path, rebuild: Callable[..., Any]
) -> None:
    synthetic.write(tmp_path / "a" / "adapter_model.safetensors", tensors)
    (tmp_path / "base.json").write_text(json.dumps(synthetic.QWEN))

    result = rebuild(tmp_path / "a", "--base", tmp_path / "base.json", *STATED)

    assert result.code == 1, result.document
    assert said in result.document["message"]
    assert result.document["remedy"]
    assert not (tmp_path / "a" / "adapter_config.json").exists()


def test_a_file_that_is_cut_short_gets_no_configuration(
    tmp_path: Path, rebuild: Callable[..., Any]
) -> None:
    path = tmp_path / "adapter_model.safetensors"
    synthetic.write(path, renamed(str))
    path.write_bytes(path.read_bytes()[:-100])

    result = rebuild(path, *STATED)

    assert result.code == 1
    assert "100 bytes short" in result.document["message"]


def test_fused_experts_need_the_base(tmp_path: Path, rebuild: Callable[..., Any]) -> None:
    place = "model.layers.0.mlp.experts"
    tensors = {
        f"{synthetic.PREFIX}{place}.lora_{part}.weight": synthetic.noise(shape, part)
        for part, shape in (("A", (32, 256)), ("B", (512, 32)))
    }
    synthetic.write(tmp_path / "adapter_model.safetensors", tensors)

    result = rebuild(tmp_path, *STATED)

    assert result.code == 2
    assert "--base" in result.document["remedy"]


def test_trainable_tokens_must_be_numbered(tmp_path: Path, rebuild: Callable[..., Any]) -> None:
    tensors = renamed(str)
    delta = f"{synthetic.PREFIX}model.embed_tokens.token_adapter.trainable_tokens_delta"
    tensors[delta] = synthetic.noise((3, 512), delta)
    synthetic.write(tmp_path / "a" / "adapter_model.safetensors", tensors)
    (tmp_path / "base.json").write_text(json.dumps(synthetic.QWEN))
    told = [tmp_path / "a", "--base", tmp_path / "base.json", *STATED]
    field = "trainable_token_indices"

    silent = rebuild(*told)
    wrong = [rebuild(*told, "--set", f"{field}={v}") for v in ("[1,2]", "[1,2,2]", "[1,2,512]")]
    right = rebuild(*told, "--set", f"{field}=1,2,3")

    assert silent.code == 1
    assert [need["field"] for need in silent.document["missing"]] == [field]
    assert [result.code for result in wrong] == [1, 1, 1]
    assert right.code == 0, right.document
    assert json.loads((tmp_path / "a" / "adapter_config.json").read_text())[field] == [1, 2, 3]


@pytest.mark.parametrize(
    "setting",
    [
        "lora_alpha",
        "lora_alpha=",
        "lora_alpha=0",
        "lora_alpha=-1",
        "lora_alpha=NaN",
        "lora_alpha=true",
        "lora_alpha=many",
        "lora_alpah=32",
        "use_rslora=1",
        "r=8.5",
        "bias=some",
        "rank_pattern=[1]",
        "target_modules={}",
        "trainable_token_indices=[-1]",
        'modules_to_save=[""]',
        "layer_replication=[[1]]",
        "r=" + "[" * 4000,
    ],
)
def test_a_setting_that_peft_could_not_use_is_refused(
    setting: str, tmp_path: Path, rebuild: Callable[..., Any]
) -> None:
    synthetic.write(tmp_path / "adapter_model.safetensors", renamed(str))

    result = rebuild(tmp_path, "--set", setting)

    assert result.code == 2
    assert result.document["code"] == "Unusable"


def test_a_field_may_be_set_once(tmp_path: Path, rebuild: Callable[..., Any]) -> None:
    synthetic.write(tmp_path / "adapter_model.safetensors", renamed(str))

    assert rebuild(tmp_path, "--set", "r=8", "--set", "r=8").code == 2


@pytest.mark.parametrize(
    ("version", "code"),
    [("0.21.2", 0), ("0.18", 0), ("0.11.1", 0), ("0.5", 0), ("0.2", 2), ("9.9", 2), ("new", 2)],
)
def test_an_older_peft_gets_only_the_keys_that_it_knows(
    version: str, code: int, tmp_path: Path, rebuild: Callable[..., Any]
) -> None:
    synthetic.write(tmp_path / "adapter_model.safetensors", renamed(str))

    result = rebuild(tmp_path, *STATED, "--for-peft", version)

    assert result.code == code, result.document
    if code == 0:
        config = json.loads((tmp_path / "adapter_config.json").read_text())
        assert ("kasa_config" in config) is (version == "0.21.2")
        assert ("use_rslora" in config) is (version != "0.5")
        assert {"r", "lora_alpha", "target_modules", "peft_type"} <= config.keys()


def test_an_older_peft_is_refused_what_it_cannot_load(
    tmp_path: Path, rebuild: Callable[..., Any]
) -> None:
    tensors = renamed(str)
    for name in synthetic.modules(synthetic.QWEN):
        full = f"{synthetic.PREFIX}{name}.lora_magnitude_vector"
        rows = tensors[f"{synthetic.PREFIX}{name}.lora_B.weight"].shape[0]
        tensors[full] = synthetic.noise((rows,), full)
    synthetic.write(tmp_path / "adapter_model.safetensors", tensors)

    refused = rebuild(tmp_path, *STATED, "--for-peft", "0.8")
    fine = rebuild(tmp_path, *STATED, "--for-peft", "0.9")

    assert refused.code == 1
    assert "use_dora" in refused.document["message"]
    assert fine.code == 0
    assert json.loads((tmp_path / "adapter_config.json").read_text())["use_dora"] is True
