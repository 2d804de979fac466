"""What an adapter must consist of, by its configuration or by its own closure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import CONFIG, MOE, PREFIX, QWEN, Piece, experts, lora, modules

from reefkit.errors import ReefError
from reefkit.recover.adapter.config.faults import config_faults
from reefkit.recover.adapter.expected.by_closure import expected_by_closure
from reefkit.recover.adapter.expected.by_config import Said, expected_by_config
from reefkit.recover.adapter.expected.whole import parameters_in_memory, resize
from reefkit.recover.adapter.structure import Adapter, read_adapter
from reefkit.recover.base.from_config import base_from_config
from reefkit.recover.formats.safetensors import Tensor

BASE = base_from_config(QWEN, "base")
EXPERTS = base_from_config(MOE, "moe")
SMALL = {"model.layers.0.self_attn.q_proj": (512, 512)}
FIELDS = (
    "peft_type r lora_alpha rank_pattern target_modules target_parameters exclude_modules bias "
    "modules_to_save layers_to_transform layers_pattern layer_replication trainable_token_indices "
    "use_dora lora_bias ensure_weight_tying kasa_config use_bdlora velora_config task_type "
    "init_lora_weights"
).split()
QWEN3_8B = {
    **QWEN,
    "vocab_size": 151936,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
}


def adapter(tensors: Mapping[str, Piece | tuple[int, ...]]) -> Adapter:
    def shape(piece: Piece | tuple[int, ...]) -> tuple[int, ...]:
        return piece.shape if isinstance(piece, Piece) else piece

    return read_adapter(Tensor(n, "BF16", shape(p), 0, 2 * math.prod(shape(p)))
                        for n, p in tensors.items())  # fmt: skip


NONE = adapter({})


def shapes(config: dict[str, Any], base: Any = BASE) -> dict[str, Any]:
    return dict(expected_by_config(NONE, base, {**CONFIG, **config}).tensors)


def test_the_measured_adapter_of_qwen3_8b_is_derived_to_the_byte() -> None:
    found = shapes({"r": 32}, base_from_config(QWEN3_8B, "Qwen3-8B"))
    assert len(found) == 504
    assert sum(math.prod(shape) for shape in found.values()) == 87_293_952


@pytest.mark.parametrize("targets", ["all-linear", CONFIG["target_modules"]])
def test_all_linear_is_everything_but_the_head(targets: object) -> None:
    found = shapes({"target_modules": targets})
    assert found == {name: piece.shape for name, piece in lora(modules(QWEN)).items()}


@pytest.mark.parametrize(
    ("config", "name", "shape"),
    [
        ({"use_dora": True}, "model.layers.0.self_attn.k_proj.lora_magnitude_vector", (256,)),
        ({"lora_bias": True}, "model.layers.0.mlp.up_proj.lora_B.bias", (768,)),
        ({"modules_to_save": ["lm_head"]}, "lm_head.weight", (512, 512)),
        ({"trainable_token_indices": [1, 2, 2]},
         "model.embed_tokens.token_adapter.trainable_tokens_delta", (2, 512)),
        ({"trainable_token_indices": {"lm_head": [7]}},
         "lm_head.token_adapter.trainable_tokens_delta", (1, 512)),
        ({"target_modules": ["embed_tokens"]}, "model.embed_tokens.lora_embedding_A", (8, 512)),
        ({"rank_pattern": {"k_proj": 3}},
         "model.layers.3.self_attn.k_proj.lora_A.weight", (3, 512)),
        ({"layer_replication": [[0, 4], [2, 4]]},
         "model.layers.5.mlp.down_proj.lora_A.weight", (8, 768)),
    ],
)  # fmt: skip
def test_a_field_adds_its_tensors(
    config: dict[str, Any], name: str, shape: tuple[int, ...]
) -> None:
    assert shapes(config)[PREFIX + name] == shape


def test_modules_to_save_go_by_the_ends_of_names_as_in_peft() -> None:
    whole = shapes({"modules_to_save": ["norm"]}).keys() - shapes({}).keys()
    assert f"{PREFIX}model.norm.weight" in whole
    assert f"{PREFIX}model.layers.0.self_attn.k_norm.weight" in whole
    assert f"{PREFIX}model.layers.0.input_layernorm.weight" in whole


def test_two_fused_parameters_nest_and_one_does_not() -> None:
    both = {"target_modules": ["q_proj"], "target_parameters": ["gate_up_proj", "down_proj"]}
    place = f"{PREFIX}model.layers.0.mlp.experts"
    found = shapes(both, EXPERTS)
    assert found[f"{place}.base_layer.lora_A.weight"] == (4 * 8, 512)
    assert found[f"{place}.base_layer.lora_B.weight"] == (512, 4 * 8)
    assert found[f"{place}.lora_A.weight"] == (4 * 8, 256)
    alone = shapes({**both, "target_parameters": ["mlp.experts.gate_up_proj"]}, EXPERTS)
    assert alone[f"{place}.lora_A.weight"] == (4 * 8, 512)
    assert f"{place}.base_layer.lora_A.weight" not in alone


def test_a_configuration_of_single_experts_fits_fused_ones_at_twice_the_rank() -> None:
    fused = {f"{PREFIX}model.layers.0.mlp.experts.lora_A.weight": (32, 256)}
    found = expected_by_config(adapter(fused), EXPERTS, CONFIG).tensors
    place = f"{PREFIX}model.layers.1.mlp.experts"
    assert found[f"{place}.base_layer.lora_A.weight"] == (4 * 16, 512)
    assert found[f"{place}.lora_A.weight"] == (4 * 8, 256)


def test_normalised_experts_have_the_rank_divided_by_the_routed_number() -> None:
    single = adapter(lora(experts(MOE), 4))
    found = expected_by_config(single, EXPERTS, CONFIG, Said(normalised=True)).tensors
    assert found[f"{PREFIX}model.layers.0.mlp.experts.1.up_proj.lora_A.weight"] == (4, 512)
    assert found[f"{PREFIX}model.layers.0.self_attn.q_proj.lora_A.weight"] == (8, 512)


def test_closure_expects_of_every_layer_what_one_has() -> None:
    one = {n: p for n, p in lora(modules(QWEN)).items() if ".layers.2.mlp" in n}
    found = expected_by_closure(adapter(one), BASE)
    assert found.inferred
    assert len(found.tensors) == 4 * 3 * 2


def test_closure_takes_the_rank_that_most_have_and_tells_of_the_others() -> None:
    tensors: dict[str, Any] = dict(lora(modules(QWEN)))
    place = f"{PREFIX}model.layers.1.mlp.up_proj"
    tensors |= {f"{place}.lora_A.weight": (4, 512), f"{place}.lora_B.weight": (768, 4)}
    found = expected_by_closure(adapter(tensors), BASE)
    assert found.tensors[f"{place}.lora_A.weight"] == (4, 512)
    assert [caution.kind for caution in found.cautions] == ["mixed-ranks"]


def test_closure_of_single_experts_expects_all_of_them() -> None:
    some = {n: p for n, p in lora(experts(MOE)).items() if ".experts.3." in n and ".0.mlp" in n}
    found = expected_by_closure(adapter(some), EXPERTS)
    assert len(found.tensors) == 2 * 4 * 3 * 2


def test_names_in_memory_have_the_prefix_that_those_on_disk_lack() -> None:
    config = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 1,
              "n_embd": 8, "n_head": 2, "vocab_size": 16, "n_positions": 4}  # fmt: skip
    names = parameters_in_memory(base_from_config(config, "gpt2"))
    assert names["transformer.h.0.ln_1.bias"] == (8,)
    assert names["transformer.h.0.attn.c_attn.weight"] == (8, 24)


def test_a_resized_base_has_other_rows_in_both_embeddings() -> None:
    resized = resize(BASE, 600)
    assert resized.modules["model.embed_tokens"].inputs == 600
    assert resized.modules["lm_head"].outputs == 600
    assert resized.tensors["lm_head.weight"].shape == (600, 512)


@pytest.mark.parametrize("field", ["peft_type", "r", "lora_alpha", "target_modules"])
def test_a_document_without_a_field_that_peft_would_guess_is_at_fault(field: str) -> None:
    config = {key: value for key, value in CONFIG.items() if key != field}
    assert [found.fault.field for found in config_faults(config, document=True)] == [field]
    assert config_faults(config, document=False) == ()


def test_a_correct_document_has_no_fault() -> None:
    assert config_faults(CONFIG, document=True) == ()


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 1 << 70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["q_proj", "all-linear", "(", ".*", "lora_only", "none", "", "a\n\x1b"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(config=st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=6))
def test_a_hostile_configuration_never_ends_in_a_traceback(config: dict[str, object]) -> None:
    merged = {**CONFIG, **config}
    try:
        faults = config_faults(merged, document=True)
        if not any(found.fatal for found in faults):
            _ = expected_by_config(adapter(lora(SMALL)), BASE, merged).tensors
    except ReefError as error:
        assert "\x1b" not in error.message
