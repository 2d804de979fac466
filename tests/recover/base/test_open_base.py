"""Bases as people name them on this machine: files, folders, indexes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reefkit.errors import ReefError, Unusable
from reefkit.recover.base.model import BaseSource
from reefkit.recover.base.open import open_base
from reefkit.recover.formats.safetensors import parse_header, write_header

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "num_hidden_layers": 1,
    "vocab_size": 32,
    "tie_word_embeddings": True,
}
Entry = tuple[str, str, tuple[int, ...]]
TENSORS: list[Entry] = [
    ("model.embed_tokens.weight", "F16", (32, 8)),
    *(
        (f"model.layers.0.{name}.weight", "F16", shape)
        for name, shape in {
            "self_attn.q_proj": (8, 8),
            "self_attn.k_proj": (8, 8),
            "self_attn.v_proj": (8, 8),
            "self_attn.o_proj": (8, 8),
            "mlp.gate_proj": (16, 8),
            "mlp.up_proj": (16, 8),
            "mlp.down_proj": (8, 16),
            "input_layernorm": (8,),
            "post_attention_layernorm": (8,),
        }.items()
    ),
    ("model.norm.weight", "F16", (8,)),
]
ONE, TWO = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def put(path: Path, tensors: list[Entry], cut: int = 0) -> Path:
    header = write_header(tensors, {"format": "pt"})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(header)
    with path.open("rb+") as file:
        file.truncate(parse_header(header).file_size - cut)
    return path


def put_json(path: Path, document: object) -> Path:
    path.write_text(json.dumps(document))
    return path


def put_shards(folder: Path) -> None:
    put(folder / ONE, TENSORS[:6])
    put(folder / TWO, TENSORS[6:])
    names = [entry[0] for entry in TENSORS]
    weight_map = dict.fromkeys(names[:6], ONE) | dict.fromkeys(names[6:], TWO)
    put_json(folder / "model.safetensors.index.json", {"weight_map": weight_map})


def found(operand: Path) -> set[Entry]:
    return {(t.name, t.dtype or "", t.shape) for t in open_base(str(operand)).tensors.values()}


def test_a_config_alone_is_known_by_its_rules(tmp_path: Path) -> None:
    path = put_json(tmp_path / "config.json", CONFIG)
    base = open_base(str(path))
    assert base.source is BaseSource.CONFIG
    assert {(name, t.shape) for name, t in base.tensors.items()} == {
        (name, shape) for name, _, shape in TENSORS
    }
    assert base.notes == ()
    folder = open_base(str(tmp_path))
    assert folder.tensors == base.tensors
    assert "no safetensors file" in folder.notes[0]


def test_headers_win_over_the_config_beside_them(tmp_path: Path) -> None:
    path = put(tmp_path / "model.safetensors", TENSORS)
    put_json(tmp_path / "config.json", CONFIG)
    for operand in (path, tmp_path):
        base = open_base(str(operand))
        assert (base.source, base.model_type, base.notes) == (BaseSource.HEADERS, "llama", ())
        assert base.tied == {"lm_head.weight": "model.embed_tokens.weight"}
        assert found(operand) == set(TENSORS)


def test_shards_are_read_by_folder_and_by_index(tmp_path: Path) -> None:
    put_shards(tmp_path)
    assert found(tmp_path) == found(tmp_path / "model.safetensors.index.json") == set(TENSORS)


@pytest.mark.parametrize("fault", ["missing", "broken"])
@pytest.mark.parametrize("with_config", [True, False])
def test_a_shard_that_cannot_be_read_takes_nothing_from_what_is_expected(
    tmp_path: Path, fault: str, with_config: bool
) -> None:
    put_shards(tmp_path)
    if with_config:
        put_json(tmp_path / "config.json", CONFIG)
    if fault == "missing":
        (tmp_path / TWO).unlink()
    else:
        (tmp_path / TWO).write_bytes(bytes(100))
    base = open_base(str(tmp_path))
    assert base.tensors.keys() == {entry[0] for entry in TENSORS}
    assert len(base.unsized) == (0 if with_config else 5)
    assert any(TWO in note for note in base.notes)


def test_a_short_shard_is_noted_and_expected_whole(tmp_path: Path) -> None:
    put(tmp_path / "model.safetensors", TENSORS, cut=100)
    put_json(tmp_path / "config.json", CONFIG)
    assert found(tmp_path) == set(TENSORS)
    assert open_base(str(tmp_path)).notes == (
        "model.safetensors of the base is 100 bytes short: 2 tensors are not whole.",
    )


def test_one_shard_of_several_says_that_others_are_missing(tmp_path: Path) -> None:
    put_shards(tmp_path)
    assert "of 2 shards, these are missing: 2" in open_base(str(tmp_path / ONE)).notes[0]


def test_an_unknown_architecture_is_derived_and_says_so(tmp_path: Path) -> None:
    put(tmp_path / "model.safetensors", TENSORS)
    put_json(tmp_path / "config.json", {**CONFIG, "model_type": "novel"})
    base = open_base(str(tmp_path))
    assert base.model_type == "novel"
    assert len(base.all_linear) == 7
    assert base.tied == {"lm_head.weight": "model.embed_tokens.weight"}
    assert "derived from the base's headers" in base.notes[0]


def test_an_unknown_architecture_without_headers_is_refused(tmp_path: Path) -> None:
    path = put_json(tmp_path / "config.json", {**CONFIG, "model_type": "novel"})
    with pytest.raises(Unusable, match="novel"):
        open_base(str(path))


@pytest.mark.parametrize("name", ["org/name", "/home/me/org/name", "work/model/deep", 7])
def test_a_local_path_is_no_identity_and_the_config_only_hints(
    tmp_path: Path, name: object
) -> None:
    folder = tmp_path / "org" / "name"
    put(folder / "model.safetensors", TENSORS)
    put_json(folder / "config.json", {**CONFIG, "_name_or_path": name})
    for operand in (folder, folder / "config.json"):
        base = open_base(str(operand))
        assert base.identity is None
        assert base.identity_hint == (name if name == "org/name" else None)


def test_weights_below_a_config_are_left_alone_and_noted(tmp_path: Path) -> None:
    put(tmp_path / "checkpoint-5" / "model.safetensors", TENSORS[:3])
    put_json(tmp_path / "config.json", CONFIG)
    base = open_base(str(tmp_path))
    assert base.source is BaseSource.CONFIG
    assert "checkpoint-5 were not looked at" in base.notes[0]


@pytest.mark.parametrize("named", ["adapter_config.json", ".", "adapter_model.safetensors"])
def test_an_adapter_is_not_taken_for_a_base(tmp_path: Path, named: str) -> None:
    put(tmp_path / "adapter_model.safetensors", [("x.lora_A.weight", "F16", (2, 8))])
    put_json(tmp_path / "adapter_config.json", {"peft_type": "LORA"})
    with pytest.raises(Unusable, match="is an adapter"):
        open_base(str(tmp_path / named))


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("config.json", b"[]", "not a JSON object"),
        ("model.safetensors", b"", "no header that can be read"),
        ("pytorch_model.bin", b"PK\x03\x04" * 20, "no header that can be read"),
        ("x.safetensors", write_header([]), "holds no tensors"),
    ],
)
def test_a_file_that_is_no_base_is_refused(
    tmp_path: Path, name: str, data: bytes, words: str
) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(Unusable, match=words) as caught:
        open_base(str(tmp_path / name))
    assert caught.value.remedy


values = st.none() | st.booleans() | st.integers(-2, 1 << 70) | st.text(max_size=5) | st.floats()


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    changes=st.dictionaries(st.sampled_from([*CONFIG, "quantization_config"]), values, max_size=3)
)
def test_a_hostile_config_beside_headers_never_breaks(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    put(tmp_path / "model.safetensors", TENSORS)
    put_json(tmp_path / "config.json", {**CONFIG, **changes})
    try:
        base = open_base(str(tmp_path))
    except ReefError as error:
        assert error.message.isprintable()
    else:
        assert base.tensors.keys() == {entry[0] for entry in TENSORS}
        assert all(note.isprintable() for note in base.notes)
