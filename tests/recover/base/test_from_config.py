"""config.json in: facts of published models, names that belong, and whatever a file may hold."""

from __future__ import annotations

import copy
import math
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reefkit.errors import Unusable
from reefkit.records.names import printable
from reefkit.recover.base.extras import is_known_extra
from reefkit.recover.base.from_config import (
    UnknownArchitecture,
    architecture_of,
    base_from_config,
    supported,
    with_tensors,
)
from reefkit.recover.base.model import Base, BaseSource, BaseTensor, ModuleKind
from reefkit.recover.base.spellings import expected_name, in_memory, on_disk

QWEN3_8B: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "attention_bias": False,
    "head_dim": 128,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "max_window_layers": 36,
    "model_type": "qwen3",
    "num_attention_heads": 32,
    "num_hidden_layers": 36,
    "num_key_value_heads": 8,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 151936,
}
QWEN3_30B: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "decoder_sparse_step": 1,
    "head_dim": 128,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "mlp_only_layers": [],
    "model_type": "qwen3_moe",
    "moe_intermediate_size": 768,
    "num_attention_heads": 32,
    "num_experts": 128,
    "num_hidden_layers": 48,
    "num_key_value_heads": 4,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 151936,
}
QWEN3_NEXT: dict[str, Any] = {
    "architectures": ["Qwen3NextForCausalLM"],
    "full_attention_interval": 4,
    "head_dim": 256,
    "hidden_size": 2048,
    "intermediate_size": 5120,
    "model_type": "qwen3_next",
    "num_attention_heads": 16,
    "num_experts": 512,
    "num_hidden_layers": 48,
    "num_key_value_heads": 2,
    "torch_dtype": "bfloat16",
    "vocab_size": 151936,
}
DEEPSEEK_V3: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "first_k_dense_replace": 3,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "kv_lora_rank": 512,
    "model_type": "deepseek_v3",
    "moe_intermediate_size": 2048,
    "moe_layer_freq": 1,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_attention_heads": 128,
    "num_hidden_layers": 61,
    "num_key_value_heads": 128,
    "num_nextn_predict_layers": 1,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "v_head_dim": 128,
    "vocab_size": 129280,
}
LLAMA_3_70B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "model_type": "llama",
    "num_attention_heads": 64,
    "num_hidden_layers": 80,
    "num_key_value_heads": 8,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 128256,
}
GPT_OSS_120B: dict[str, Any] = {
    "architectures": ["GptOssForCausalLM"],
    "head_dim": 64,
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "model_type": "gpt_oss",
    "num_attention_heads": 64,
    "num_hidden_layers": 36,
    "num_key_value_heads": 8,
    "num_local_experts": 128,
    "torch_dtype": "bfloat16",
    "vocab_size": 201088,
}
GPT_OSS_MXFP4 = {**GPT_OSS_120B, "quantization_config": {"quant_method": "mxfp4"}}
GEMMA_3_4B: dict[str, Any] = {
    "architectures": ["Gemma3ForConditionalGeneration"],
    "model_type": "gemma3",
    "text_config": {
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "model_type": "gemma3_text",
        "num_hidden_layers": 34,
    },
    "torch_dtype": "bfloat16",
    "vision_config": {
        "hidden_size": 1152,
        "image_size": 896,
        "intermediate_size": 4304,
        "model_type": "siglip_vision_model",
        "num_attention_heads": 16,
        "num_hidden_layers": 27,
        "patch_size": 14,
        "vision_use_head": False,
    },
}
GPT2: dict[str, Any] = {
    "architectures": ["GPT2LMHeadModel"],
    "model_type": "gpt2",
    "n_ctx": 1024,
    "n_embd": 768,
    "n_head": 12,
    "n_layer": 12,
    "n_positions": 1024,
    "vocab_size": 50257,
}
MIXTRAL: dict[str, Any] = {
    "architectures": ["MixtralForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "model_type": "mixtral",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "num_local_experts": 8,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 32000,
}

# Tensors, parameters (from the model cards and the sizes on the Hub), modules of "all-linear".
FACTS: dict[str, tuple[dict[str, Any], int, int, int]] = {
    "Qwen3-8B": (QWEN3_8B, 399, 8_190_735_360, 252),
    "Qwen3-30B-A3B": (QWEN3_30B, 18_867, 30_532_122_624, 192),
    "Qwen3-Next-80B-A3B": (QWEN3_NEXT, 74_391, 79_674_391_296, 204),
    "DeepSeek-V3": (DEEPSEEK_V3, 45_395, 671_026_419_200, 305),
    "Llama-3-70B": (LLAMA_3_70B, 723, 70_553_706_496, 560),
    "gpt-oss-120b": (GPT_OSS_120B, 615, 116_829_156_672, 144),
    "Mixtral-8x7B": (MIXTRAL, 995, 46_702_792_704, 128),
    "gemma-3-4b": (GEMMA_3_4B, 883, 4_300_079_472, 400),
    "gpt2": (GPT2, 148, 124_439_808, 48),
    "Mistral-7B-v0.1": ({"model_type": "mistral"}, 291, 7_241_732_096, 224),
    "gemma-2-2b": ({"model_type": "gemma2"}, 288, 2_614_341_888, 182),
    "Phi-3-mini": ({"model_type": "phi3"}, 195, 3_821_079_552, 128),
    "GLM-4-9B-0414": ({"model_type": "glm4"}, 523, 9_400_279_040, 240),
}


def base_of(config: dict[str, Any], **changes: Any) -> Base:
    return base_from_config({**config, **changes}, "a base")


@pytest.mark.parametrize("name", FACTS)
def test_published_models_have_their_known_sizes(name: str) -> None:
    config, tensors, parameters, modules = FACTS[name]
    base = base_of(config)
    assert len(base.tensors) == tensors
    assert sum(math.prod(tensor.shape) for tensor in base.tensors.values()) == parameters
    assert len(base.all_linear) == modules


def test_qwen3_8b_takes_less_than_five_milliseconds() -> None:
    def seconds() -> float:
        start = time.perf_counter()
        base_of(QWEN3_8B)
        return time.perf_counter() - start

    assert min(seconds() for _ in range(5)) < 0.005


def test_what_a_base_says_of_itself() -> None:
    base = base_from_config(QWEN3_8B, "label", identity="Qwen/Qwen3-8B", revision="main")
    assert (base.label, base.identity, base.revision) == ("label", "Qwen/Qwen3-8B", "main")
    assert (base.source, base.model_type) == (BaseSource.CONFIG, "qwen3")
    assert (base.vocab_size, base.layers, base.experts) == (151936, 36, None)
    assert {tensor.dtype for tensor in base.tensors.values()} == {"BF16"}
    assert base.tied == {}
    tied = base_of(QWEN3_8B, tie_word_embeddings=True, torch_dtype="float32")
    assert tied.tied == {"lm_head.weight": "model.embed_tokens.weight"}
    assert "lm_head.weight" not in tied.tensors
    assert tied.tensors["model.norm.weight"].dtype == "F32"


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ({"dtype": "float16", "torch_dtype": "bfloat16"}, "F16"),
        ({"torch_dtype": "torch.bfloat16"}, "BF16"),
        ({"torch_dtype": "auto"}, None),
        ({"torch_dtype": None}, None),
        ({"torch_dtype": {"": "float16"}}, None),
    ],
)
def test_the_dtype_is_what_the_config_says(said: dict[str, Any], meant: str | None) -> None:
    base = base_from_config({"model_type": "mistral", **said}, "a base")
    assert base.tensors["model.norm.weight"].dtype == meant


def test_single_experts_and_routers_are_former_modules() -> None:
    base = base_of(MIXTRAL)
    expert = base.modules["model.layers.3.block_sparse_moe.experts.7.w2"]
    assert (expert.kind, expert.inputs, expert.outputs) == (ModuleKind.LINEAR, 14336, 4096)
    assert expert.former and base.modules["model.layers.3.block_sparse_moe.gate"].former
    assert len(base.all_linear_former) == 32 * (4 + 1 + 8 * 3)
    assert base.experts == 8
    assert base.converted_targets["w3"] == "gate_up_proj"


def test_mxfp4_lies_in_blocks_and_scales() -> None:
    base = base_of(GPT_OSS_MXFP4)
    assert len(base.tensors) == 687
    path = "model.layers.35.mlp.experts."
    assert base.tensors[f"{path}gate_up_proj_blocks"][1:] == ((128, 5760, 90, 16), "U8")
    assert base.tensors[f"{path}down_proj_scales"][1:] == ((128, 2880, 90), "U8")
    assert base.tensors[f"{path}down_proj_bias"][1:] == ((128, 2880), "BF16")
    assert base.parameters.keys() == base_of(GPT_OSS_120B).parameters.keys()
    assert base.all_linear_parameters == ()


def test_fp8_keeps_names_and_shapes_but_not_dtypes() -> None:
    base = base_of(DEEPSEEK_V3)
    layers = "model.layers.9."
    assert base.tensors[f"{layers}mlp.experts.4.up_proj.weight"][1:] == ((2048, 7168), None)
    assert base.tensors[f"{layers}self_attn.o_proj.weight"].dtype is None
    assert base.tensors[f"{layers}input_layernorm.weight"].dtype == "BF16"
    assert base.tensors["lm_head.weight"].dtype == "BF16"
    assert len(base.notes) == 1


@pytest.mark.parametrize("method", ["gptq", "awq", "bitsandbytes", "compressed-tensors", "new"])
def test_other_quantisers_leave_the_weights_of_linear_layers_open(method: str) -> None:
    base = base_of(QWEN3_8B, quantization_config={"quant_method": method})
    assert len(base.tensors) == 399 - 252
    assert "headers" in base.notes[0]
    assert base.modules == base_of(QWEN3_8B).modules
    weight = "model.layers.0.mlp.up_proj.weight"
    assert is_known_extra(base, weight) == "weight of a layer that may be quantised"


EXTRAS = [
    (DEEPSEEK_V3, "model.layers.61.eh_proj.weight", "multi-token"),
    (DEEPSEEK_V3, "model.layers.62.eh_proj.weight", None),
    (DEEPSEEK_V3, "model.layers.60.eh_proj.weight", None),
    (DEEPSEEK_V3, "model.layers.61.mlp.experts.0.up_proj.weight_scale_inv", "multi-token"),
    (DEEPSEEK_V3, "model.layers.60.mlp.experts.0.up_proj.weight_scale_inv", "(fp8)"),
    (DEEPSEEK_V3, "model.layers.60.mlp.experts.256.up_proj.weight_scale_inv", None),
    (QWEN3_NEXT, "mtp.layers.0.mlp.experts.0.up_proj.weight", "multi-token"),
    (QWEN3_8B, "mtp.layers.0.mlp.up_proj.weight", None),
    (LLAMA_3_70B, "model.layers.0.self_attn.rotary_emb.inv_freq", "rotary"),
    (LLAMA_3_70B, "model.layers.0.self_attn.q_proj.qweight", "GPTQ"),
    (LLAMA_3_70B, "model.layers.0.self_attn.q_proj.g_idx", "GPTQ"),
    (LLAMA_3_70B, "model.layers.0.self_attn.z_proj.qweight", None),
    (LLAMA_3_70B, "model.layers.0.mlp.up_proj.weight.absmax", "bitsandbytes"),
    (LLAMA_3_70B, "model.layers.0.mlp.up_proj.weight.quant_state.bitsandbytes__nf4", "bitsandb"),
    (LLAMA_3_70B, "model.layers.0.mlp.up_proj.weight_packed", "compressed-tensors"),
    (LLAMA_3_70B, "model.layers.0.self_attn.k_scale", "key cache"),
    (LLAMA_3_70B, "model.layers.0.mlp.up_proj.weight", None),
    (LLAMA_3_70B, "model.layers.80.mlp.up_proj.weight", None),
    (GPT2, "h.3.attn.bias", "mask"),
    (GPT2, "transformer.h.3.attn.masked_bias", "mask"),
    (GPT2, "h.3.mlp.bias", None),
    (GEMMA_3_4B, "vision_tower.vision_model.embeddings.position_ids", "position ids"),
    (GEMMA_3_4B, "language_model.model.layers.0.mlp.up_proj.weight.absmax", "bitsandbytes"),
    (QWEN3_8B, "lm_head.weight_scale", "quantiser"),
    (QWEN3_8B, "", None),
]


@pytest.mark.parametrize(("config", "name", "reason"), EXTRAS)
def test_extras_have_a_reason_or_none(
    config: dict[str, Any], name: str, reason: str | None
) -> None:
    found = is_known_extra(base_of(config), name)
    assert (found is None) if reason is None else (reason in (found or ""))


@pytest.mark.parametrize(
    ("config", "name", "expected"),
    [
        (GPT2, "transformer.h.0.ln_1.bias", "transformer.h.0.ln_1.bias"),
        (GPT2, "h.0.ln_1.bias", "transformer.h.0.ln_1.bias"),
        (QWEN3_8B, "layers.0.mlp.up_proj.weight", "model.layers.0.mlp.up_proj.weight"),
        ({**QWEN3_8B, "architectures": ["Qwen3Model"]}, "model.norm.weight", "norm.weight"),
        (QWEN3_8B, "model.model.norm.weight", None),
        (
            GEMMA_3_4B,
            "vision_tower.post_layernorm.bias",
            "vision_tower.vision_model.post_layernorm.bias",
        ),
    ],
)
def test_a_tensor_goes_by_the_names_that_repositories_use(
    config: dict[str, Any], name: str, expected: str | None
) -> None:
    assert expected_name(base_of(config), name) == expected


@pytest.mark.parametrize("config", [config for config, *_ in FACTS.values()])
def test_modules_and_tensors_find_each_other(config: dict[str, Any]) -> None:
    base = base_of(config)
    for name, module in base.modules.items():
        if module.former:
            continue
        disk = on_disk(base, name)
        assert in_memory(base, disk) == name
        assert f"{disk}.weight" in base.tensors or f"{disk}.weight" in base.tied


def test_headers_win_for_tensors() -> None:
    rules = base_of(QWEN3_8B)
    found = {"x": BaseTensor("x", (1,), "F32")}
    base = with_tensors(rules, found)
    assert (base.source, base.tensors) == (BaseSource.HEADERS, found)
    assert base.modules == rules.modules


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "mamba"},
        {"model_type": "a\x1b[31m\u202e"},
        {"model_type": "qwen3", "architectures": ["Qwen3ForRewardModel"]},
        {"model_type": "llama", "architectures": ["LlamaForQuestionAnswering"]},
        {"model_type": "gpt2", "architectures": ["GPT2DoubleHeadsModel"]},
        {"model_type": "gpt2", "add_cross_attention": True},
        {"model_type": "gemma3", "architectures": ["Gemma3ForSequenceClassification"]},
    ],
)
def test_what_is_not_known_is_said_and_not_guessed(config: dict[str, Any]) -> None:
    with pytest.raises(UnknownArchitecture) as caught:
        base_from_config(config, "a base")
    assert printable(config["model_type"]) in caught.value.message
    assert caught.value.message.isprintable()
    assert "headers" in (caught.value.remedy or "") and "[peft]" in (caught.value.remedy or "")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"num_hidden_layers": 10**9}, "num_hidden_layers"),
        ({"num_hidden_layers": 90_000}, "num_hidden_layers"),
        ({"num_hidden_layers": -1}, "num_hidden_layers"),
        ({"num_hidden_layers": None}, "num_hidden_layers"),
        ({"hidden_size": "4096"}, "hidden_size"),
        ({"hidden_size": True}, "hidden_size"),
        ({"hidden_size": 4096.0}, "hidden_size"),
        ({"hidden_size": math.nan}, "hidden_size"),
        ({"hidden_size": 10**5000}, "hidden_size"),
        ({"num_attention_heads": 0}, "num_attention_heads"),
        ({"vocab_size": [1]}, "vocab_size"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings"),
        ({"attention_bias": 1}, "attention_bias"),
        ({"architectures": "Qwen3ForCausalLM"}, "architectures"),
        ({"architectures": [7]}, "architectures"),
        ({"quantization_config": []}, "quantization_config"),
        ({"quantization_config": {"quant_method": {}}}, "quantization_config"),
        ({"architectures": ["XForSequenceClassification"], "id2label": 3}, "id2label"),
        ({"model_type": "qwen3_moe", "num_experts": 10**7}, "num_experts"),
        ({"model_type": "qwen3_moe", "mlp_only_layers": [0.5]}, "mlp_only_layers"),
        ({"model_type": "qwen3_moe", "decoder_sparse_step": 0}, "decoder_sparse_step"),
        ({"model_type": "qwen3_next", "layer_types": ["full_attention"]}, "layer_types"),
        ({"model_type": "qwen3_next", "layer_types": 36}, "layer_types"),
        ({"model_type": "deepseek_v3", "moe_layer_freq": 2}, "moe_layer_freq"),
        (
            {"model_type": "gpt_oss", "quantization_config": {"quant_method": "mxfp4"}}
            | {"intermediate_size": 100},
            "intermediate_size",
        ),
        ({"model_type": "gemma3", "text_config": 3}, "text_config"),
        ({"model_type": "gemma3", "text_config": {"head_dim": -1}}, "text_config.head_dim"),
        ({"model_type": "gemma3", "vision_config": {"model_type": "clip"}}, "vision_config"),
        ({"model_type": "gemma3", "architectures": None, "vision_config": []}, "vision_config"),
        ({"model_type": None}, "model_type"),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_its_key(change: dict[str, Any], named: str) -> None:
    config = {**QWEN3_8B, **change}
    if config["model_type"] == "gemma3":
        config["architectures"] = None
    with pytest.raises(Unusable, match=named) as caught:
        base_from_config(config, "a base")
    assert caught.value.remedy


def test_the_configuration_of_an_adapter_is_recognised() -> None:
    with pytest.raises(Unusable, match="adapter_config"):
        architecture_of({"peft_type": "LORA", "r": 32})


KEYS = sorted({key for config, *_ in FACTS.values() for key in config} | {"n_inner", "id2label"})
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([-1, 0, 1, 2, 3, 100, 10**6, 10**9, 2**63, 10**40]),
    st.floats(),
    st.text(max_size=8),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)
    ),
    max_leaves=6,
)
SMALL: dict[str, Any] = {
    "num_hidden_layers": 2,
    "num_experts": 3,
    "num_local_experts": 3,
    "n_routed_experts": 3,
}


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(supported()), st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=5))
def test_any_config_gives_a_base_or_an_unusable(model_type: str, change: dict[str, Any]) -> None:
    config = {**SMALL, **copy.deepcopy(change), "model_type": model_type}
    try:
        base = base_from_config(config, "a base")
    except Unusable as error:
        assert error.message.isprintable()
        return
    assert base.tensors and base.modules
    assert all(type(size) is int for tensor in base.tensors.values() for size in tensor.shape)
    is_known_extra(base, "model.layers.2.mlp.up_proj.weight_scale")


@given(VALUES)
def test_any_document_gives_a_base_or_an_unusable(value: object) -> None:
    try:
        base_from_config({"model_type": value}, "a base")
    except Unusable:
        return
    assert value in supported()
