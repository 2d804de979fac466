"""Bases from headers: held against the rules of their architecture, or derived without any."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import pytest

from reefkit.recover.base.from_config import base_from_config
from reefkit.recover.base.from_headers import Gathering, OnDisk, base_from_headers
from reefkit.recover.base.model import Base, BaseTensor, Module, ModuleKind

SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_hidden_layers": 2,
    "vocab_size": 1000,
    "tie_word_embeddings": False,
    "dtype": "bfloat16",
}
GPT2: dict[str, Any] = {
    "model_type": "gpt2",
    "architectures": ["GPT2LMHeadModel"],
    "n_embd": 64,
    "n_head": 4,
    "n_layer": 2,
    "vocab_size": 1000,
    "n_positions": 32,
}
MOE: dict[str, Any] = {
    **SIZES,
    "model_type": "qwen3_moe",
    "architectures": ["Qwen3MoeForCausalLM"],
    "moe_intermediate_size": 32,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}


def config(model_type: str, **changes: Any) -> dict[str, Any]:
    known = {"gpt2": GPT2, "qwen3_moe": MOE}.get(model_type)
    if known is None:
        class_name = f"{model_type.capitalize()}ForCausalLM"
        known = {**SIZES, "model_type": model_type, "architectures": [class_name]}
    return {**known, **changes}


def on_disk(tensors: Iterable[BaseTensor], index: Iterable[str] = ()) -> OnDisk:
    gathering = Gathering()
    gathering.add((t.name, t.dtype or "BF16", t.shape) for t in tensors)
    return gathering.on_disk(index, ())


def held(
    settings: dict[str, Any], tensors: Iterable[BaseTensor], index: Iterable[str] = ()
) -> Base:
    rules = base_from_config(settings, "it")
    return base_from_headers(on_disk(tensors, index), label="it", config=settings, rules=rules)


def derived(*tensors: tuple[str, tuple[int, ...]], dtype: str = "BF16", **settings: Any) -> Base:
    disk = on_disk(BaseTensor(name, shape, dtype) for name, shape in tensors)
    return base_from_headers(disk, label="it", config=settings or None)


@pytest.mark.parametrize("model_type", ["llama", "qwen2", "qwen3", "qwen3_moe", "gpt2"])
def test_headers_that_agree_leave_the_modules_to_the_rules(model_type: str) -> None:
    settings = config(model_type)
    rules = base_from_config(settings, "it")
    base = held(settings, rules.tensors.values())
    assert (base.modules, base.parameters) == (rules.modules, rules.parameters)
    assert (base.tied, base.vocab_size, base.layers) == (rules.tied, 1000, 2)
    assert base.notes == ()


@pytest.mark.parametrize("model_type", ["llama", "qwen2", "qwen3", "gpt2"])
def test_what_is_derived_equals_the_rules_of_a_dense_model(model_type: str) -> None:
    settings = config(model_type)
    rules = base_from_config(settings, "it")
    base = base_from_headers(on_disk(rules.tensors.values()), label="it", config=settings)
    heads = {rules.output_embedding} if rules.tied else set[str | None]()
    assert base.modules.items() == {
        (name, module) for name, module in rules.modules.items() if name not in heads
    }
    assert base.input_embedding == rules.input_embedding
    assert (base.vocab_size, base.layers) == (1000, 2)


def test_names_without_the_prefix_of_the_model_agree_too() -> None:
    rules = base_from_config(GPT2, "it")
    stored = [t._replace(name=t.name.removeprefix("transformer.")) for t in rules.tensors.values()]
    base = held(GPT2, stored)
    assert base.notes == ()
    assert base.modules == rules.modules
    assert base.tied == {"lm_head.weight": "wte.weight"}


def test_a_resized_vocabulary_has_the_rows_on_disk() -> None:
    settings = config("llama")
    tensors = dict(base_from_config(settings, "it").tensors)
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        tensors[name] = BaseTensor(name, (1024, 64), "BF16")
    base = held(settings, tensors.values())
    assert base.vocab_size == 1024
    assert base.modules["model.embed_tokens"].inputs == base.modules["lm_head"].outputs == 1024
    assert base.notes[0] == "model.embed_tokens of the base has 1,024 rows; config.json says 1,000."


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_hidden_layers": 3}, r"model\.layers\.2\.\S+ is missing"),
        ({"num_hidden_layers": 1}, r"it does not describe model\.layers\.1\."),
        ({"intermediate_size": 96}, r"has shape \[128, 64\], not \[96, 64\]"),
        ({"attention_bias": True}, r"q_proj\.bias is missing"),
    ],
)
def test_headers_that_contradict_the_config_win(changes: dict[str, Any], words: str) -> None:
    tensors = base_from_config(config("llama"), "it").tensors
    base = held(config("llama", **changes), tensors.values())
    assert base.tensors == tensors
    assert base.layers == 2
    assert len(base.all_linear) == 14
    (note,) = base.notes
    assert re.search(words, note)
    assert note.endswith("its modules are derived from the headers.")


def test_a_module_that_the_rules_do_not_know_is_a_contradiction() -> None:
    settings = config("llama")
    extra = BaseTensor("model.layers.0.adapter_gate.weight", (64, 64), "BF16")
    base = held(settings, [*base_from_config(settings, "it").tensors.values(), extra])
    assert "model.layers.0.adapter_gate" in base.modules
    assert "does not describe model.layers.0.adapter_gate.weight" in base.notes[0]


def test_shapes_of_tensors_in_a_missing_shard_come_from_the_rules() -> None:
    settings = config("llama")
    tensors = base_from_config(settings, "it").tensors
    present = [t for t in tensors.values() if ".layers.1." not in t.name]
    base = held(settings, present, tensors)
    assert base.tensors == tensors
    assert base.unsized == frozenset()
    assert base.notes == (
        "9 tensors of the base lie in shards that cannot be read; config.json tells.",
    )


def test_without_rules_the_shapes_of_a_missing_shard_stay_unknown() -> None:
    disk = on_disk(
        [BaseTensor("layers.0.up.weight", (8, 4), "F32")], ["layers.0.up.weight", "x.weight"]
    )
    base = base_from_headers(disk, label="it")
    assert base.tensors.keys() == {"layers.0.up.weight", "x.weight"}
    assert base.unsized == {"x.weight"}
    assert base.modules.keys() == {"layers.0.up"}
    assert "the shapes of 1 are unknown" in base.notes[0]


def test_a_tensor_that_stands_twice_or_outside_the_index_is_noted() -> None:
    gathering = Gathering()
    gathering.add([("a", "F32", (1,)), ("b", "F32", (1,))])
    gathering.add([("a", "F32", (2,))])
    twice, outside = gathering.on_disk(["a"], ()).notes
    assert twice == "a stand in more than one shard of the base."
    assert "does not name b" in outside


def test_quantised_weights_leave_the_modules_to_the_config() -> None:
    settings = config("llama")
    rules = base_from_config(settings, "it")
    packed = [
        t._replace(name=t.name.removesuffix("weight") + "qweight", shape=(8, 8), dtype="I32")
        if "_proj." in t.name
        else t
        for t in rules.tensors.values()
    ]
    base = held(settings, packed)
    assert base.modules == rules.modules
    assert "quantised" in base.notes[0]
    alone = base_from_headers(on_disk(packed), label="it")
    assert alone.all_linear == ()
    assert alone.notes == (
        "14 quantised weights of the base do not tell the shapes of their modules.",
    )


def test_two_dimensions_are_linear_and_known_names_are_embeddings() -> None:
    base = derived(
        ("model.embed_tokens.weight", (100, 8)),
        ("model.layers.0.attn.qkv.weight", (24, 8)),
        ("model.layers.0.attn.qkv.bias", (24,)),
        ("model.layers.0.norm.weight", (8,)),
        ("model.conv.weight", (8, 1, 4)),
        ("lm_head.weight", (100, 8)),
    )
    linear, embedding = ModuleKind.LINEAR, ModuleKind.EMBEDDING
    assert list(base.modules.values()) == [
        Module("model.embed_tokens", embedding, 100, 8),
        Module("model.layers.0.attn.qkv", linear, 8, 24, bias=True),
        Module("lm_head", linear, 8, 100),
    ]
    assert (base.input_embedding, base.output_embedding) == ("model.embed_tokens", "lm_head")
    assert base.all_linear == ("model.layers.0.attn.qkv",)
    assert (base.vocab_size, base.layers, base.tied) == (100, 1, {})


@pytest.mark.parametrize("tie", [True, False])
def test_a_head_that_is_not_there_is_tied_if_the_config_says_so(tie: bool) -> None:
    base = derived(("model.embed_tokens.weight", (100, 8)), tie_word_embeddings=tie)
    assert base.tied == ({"lm_head.weight": "model.embed_tokens.weight"} if tie else {})
    assert base.modules.get("lm_head") == (
        Module("lm_head", ModuleKind.LINEAR, 8, 100) if tie else None
    )


@pytest.mark.parametrize("transposed", [True, False])
def test_the_hidden_size_tells_how_fused_experts_lie(transposed: bool) -> None:
    up, down = ((4, 8, 20), (4, 10, 8)) if transposed else ((4, 20, 8), (4, 8, 10))
    base = derived(
        ("embed_tokens.weight", (100, 8)),
        ("layers.0.mlp.experts.gate_up_proj", up),
        ("layers.0.mlp.experts.down_proj", down),
    )
    found = [parameter[1:] for parameter in base.parameters.values()]
    assert found == [(4, 8, 20, transposed), (4, 10, 8, transposed)]
    assert base.experts == 4


def test_square_experts_are_not_guessed() -> None:
    base = derived(("embed_tokens.weight", (9, 8)), ("layers.0.experts.gate_up_proj", (4, 8, 8)))
    assert base.parameters == {}
    assert "do not tell which way 1 fused experts" in base.notes[0]


def test_single_experts_are_modules_and_are_counted() -> None:
    base = derived(*((f"layers.0.mlp.experts.{i}.up_proj.weight", (20, 8)) for i in range(6)))
    assert base.experts == len(base.modules) == 6
