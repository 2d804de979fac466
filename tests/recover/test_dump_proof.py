"""`dump --base --recipe`: saved, validated and made loadable by one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from victims import Checkpoint, lost, mapping, reef, write_checkpoint

from reefkit.errors import Unusable
from reefkit.recover.prove import Knowledge, checkpoints_of
from reefkit.recover.prove import prove as prove_saved
from reefkit.recover.rehearsal import write_base_and_recipe

LAYERS, HIDDEN, RANK = 3, 64, 4
SHAPES = (
    ("self_attn.q_proj", HIDDEN, 64),
    ("self_attn.k_proj", HIDDEN, 32),
    ("self_attn.v_proj", HIDDEN, 32),
    ("self_attn.o_proj", 64, HIDDEN),
)
CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "head_dim": 16,
    "hidden_size": HIDDEN,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_hidden_layers": LAYERS,
    "num_key_value_heads": 2,
    "tie_word_embeddings": False,
    "vocab_size": 128,
}
STATED = ("--set", "use_rslora=false", "--set", "base_model_name_or_path=Qwen/Qwen3-8B")


def tensors(layers: int = LAYERS) -> list[tuple[str, str, tuple[int, ...]]]:
    return [
        (f"base_model.model.model.layers.{layer}.{module}.lora_{side}.weight", "U16", shape)
        for layer in range(layers)
        for module, inputs, outputs in SHAPES
        for side, shape in (("A", (RANK, inputs)), ("B", (outputs, RANK)))
    ]


def adapter(folder: Path, layers: int = LAYERS) -> Checkpoint:
    """Write random weights whose bits are small BF16 numbers."""
    made = write_checkpoint(folder / "step_8" / "adapter_model.safetensors", tensors(layers))
    start = 8 + int.from_bytes(made.data[:8], "little")
    header = made.data[:start].replace(b'"U16"', b'"BF16"')
    header = (len(header) - 8 + -len(header) % 8).to_bytes(8, "little") + header[8:]
    header += b" " * (-len(header) % 8)
    body = bytearray(made.data[start:])
    body[1::2] = bytes(0x3C | (byte & 0x80) for byte in body[1::2])
    made.path.write_bytes(header + body)
    return Checkpoint(made.path, header + bytes(body))


@pytest.fixture
def base(tmp_path: Path) -> Path:
    path = tmp_path / "base" / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps(CONFIG))
    return path


def prove(pid: int, out: Path, *arguments: str | Path) -> tuple[int, dict[str, Any]]:
    answer = reef("dump", "--pid", pid, "--out", out, "--json", *arguments)
    return answer.code, answer.json


def test_one_line_saves_validates_and_rebuilds(tmp_path: Path, base: Path) -> None:
    original = adapter(tmp_path / "run")
    _, recipe = write_base_and_recipe(tmp_path)
    recipe.write_text(
        recipe.read_text().replace('"32"', f'"{RANK}"').replace(", linear_fc1, linear_fc2", "")
    )
    with lost(original) as victim:
        code, document = prove(victim["pid"], tmp_path / "out", "--base", base, "--recipe", recipe)
    (proof,) = document["proofs"]
    saved = Path(proof["path"])
    config = json.loads(saved.with_name("adapter_config.json").read_text())
    assert (code, proof["errors"]) == (0, [])
    assert saved.read_bytes() == original.data
    assert proof["validation"]["ok"] and proof["validation"]["expected"] == 24
    assert (config["r"], config["lora_alpha"], config["use_rslora"]) == (RANK, RANK, False)
    assert config["base_model_name_or_path"] == "Qwen/Qwen3-8B"
    assert sorted(config["target_modules"]) == ["k_proj", "o_proj", "q_proj", "v_proj"]


def test_what_is_not_whole_or_not_stated_is_saved_and_not_called_good(
    tmp_path: Path, base: Path
) -> None:
    original = adapter(tmp_path / "run", LAYERS - 1)
    with lost(original) as victim:
        code, document = prove(victim["pid"], tmp_path / "out", "--base", base, *STATED)
    (proof,) = document["proofs"]
    assert code == 1
    assert document["verdict"] == "FILE_EXACT"
    assert len(proof["validation"]["missing"]) == 8
    assert not proof["config"]["complete"]
    assert not Path(proof["path"]).with_name("adapter_config.json").exists()


def test_an_unusable_base_costs_no_byte(tmp_path: Path) -> None:
    original = adapter(tmp_path / "run")
    with lost(original) as victim:
        code, document = prove(victim["pid"], tmp_path / "out", "--base", tmp_path / "nowhere")
    (proof,) = document["proofs"]
    assert code == 2
    assert Path(proof["path"]).read_bytes() == original.data
    assert len(proof["errors"]) == 1


def test_with_force_the_configuration_is_written_anew_too(tmp_path: Path, base: Path) -> None:
    original = adapter(tmp_path / "run")
    told = ("--base", base, *STATED, "--set", "lora_alpha=8")
    with lost(original) as victim:
        first, _ = prove(victim["pid"], tmp_path / "out", *told)
        second, document = prove(victim["pid"], tmp_path / "out", *told, "--force")
    assert (first, second) == (0, 0), document
    assert document["proofs"][0]["errors"] == []


def test_a_configuration_that_somebody_else_put_there_is_not_overwritten(
    tmp_path: Path, base: Path
) -> None:
    original = adapter(tmp_path / "run")
    told = ("--base", base, *STATED, "--set", "lora_alpha=8")
    with lost(original) as victim:
        foreign = tmp_path / "out" / "run" / "step_8" / "adapter_config.json"
        foreign.parent.mkdir(parents=True)
        foreign.write_text("{}")
        code, document = prove(victim["pid"], tmp_path / "out", *told)
    assert code == 2
    assert foreign.read_text() == "{}"
    assert [e["code"] for e in document["proofs"][0]["errors"]] == ["DestinationExists"]


def test_shards_are_proven_together(tmp_path: Path, base: Path) -> None:
    parts = [
        write_checkpoint(
            tmp_path / "run" / f"model-0000{i + 1}-of-00002.safetensors",
            [("model.norm.weight", "BF16", (HIDDEN,))]
            if i
            else [("lm_head.weight", "BF16", (128, HIDDEN))],
        )
        for i in range(2)
    ]
    plans = [{"path": part.path, "kind": "private"} for part in parts]
    with mapping(*plans) as victim:
        for part in parts:
            part.path.unlink()
        code, document = prove(victim["pid"], tmp_path / "out", "--base", base)
    (proof,) = document["proofs"]
    assert code == 1
    assert proof["validation"]["kind"] == "full"
    assert proof["validation"]["found"] == 2
    assert proof["config"] is None


def test_a_stream_is_not_proven_and_says_so(tmp_path: Path, base: Path) -> None:
    original = adapter(tmp_path / "run")
    with lost(original) as victim:
        answer = reef("dump", "--pid", victim["pid"], "--out", "-", "--base", base)
    assert answer.code == 2
    assert "--out -" in answer.err


def test_a_person_reads_verdict_validation_and_sources(tmp_path: Path, base: Path) -> None:
    original = adapter(tmp_path / "run")
    with lost(original) as victim:
        answer = reef(
            "dump", "--pid", victim["pid"], "--out", tmp_path / "out", "--base", base, *STATED,
            "--set", "lora_alpha=8",
        )  # fmt: skip
    assert answer.code == 0
    assert "FILE_EXACT" in answer.out
    assert "\nOK: adapter " in answer.out
    assert "lora_alpha" in answer.out and "stated" in answer.out


def test_an_adapter_and_the_shards_beside_it_are_proven_apart(tmp_path: Path, base: Path) -> None:
    original = adapter(tmp_path / "run")
    parts = [
        write_checkpoint(
            original.path.with_name(f"model-0000{i + 1}-of-00002.safetensors"),
            [("model.norm.weight", "BF16", (HIDDEN,))],
        )
        for i in range(2)
    ]
    files = (original, *parts)
    with mapping(*({"path": file.path, "kind": "private"} for file in files)) as victim:
        for file in files:
            file.path.unlink()
        told = ("--base", base, *STATED, "--set", "lora_alpha=8")
        _, document = prove(victim["pid"], tmp_path / "out", *told)
    proofs = {proof["validation"]["kind"]: proof for proof in document["proofs"]}
    assert set(proofs) == {"adapter", "full"}, document
    assert proofs["adapter"]["config"]["complete"]
    assert Path(proofs["adapter"]["path"]).with_name("adapter_config.json").exists()
    assert proofs["full"]["config"] is None
    assert len(proofs["full"]["validation"]["files"]) == 2
    assert proofs["full"]["path"].endswith("model-*-of-00002.safetensors")


def test_a_model_that_cannot_be_validated_gets_no_configuration(
    tmp_path: Path, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise Unusable("This base cannot be used.")

    monkeypatch.setattr("reefkit.recover.prove.validate", fails)
    made = write_checkpoint(tmp_path / "m.safetensors", [("model.norm.weight", "BF16", (HIDDEN,))])

    (proof,) = prove_saved(checkpoints_of([str(made.path)]), Knowledge(base=str(base)))

    assert proof.rebuilt is None
    assert [error.message for error in proof.errors] == ["This base cannot be used."]


@pytest.mark.parametrize("force", [False, True])
def test_two_adapters_of_one_folder_do_not_share_a_configuration(
    force: bool, tmp_path: Path, base: Path
) -> None:
    first = adapter(tmp_path)
    second = first.path.with_name("second.safetensors")
    second.write_bytes(first.data)
    known = Knowledge(base=str(base), settings=(*STATED[1::2], "lora_alpha=8"), force=force)

    proofs = prove_saved(checkpoints_of([str(first.path), str(second)]), known)

    assert [proof.rebuilt is not None for proof in proofs] == [True, False]
    assert [error.code for error in proofs[1].errors] == ["DestinationExists"]
