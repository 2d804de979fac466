"""The rules of every architecture against transformers' own models, and facts of published ones."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from reefkit.recover.base.architectures.registry import FAMILIES
from reefkit.recover.base.architectures.settings import Settings
from reefkit.recover.base.from_config import base_from_config, supported
from reefkit.recover.base.model import Base
from reefkit.recover.formats.safetensors import parse_header

torch = pytest.importorskip("torch")
peft = pytest.importorskip("peft")
transformers = pytest.importorskip("transformers")
Conv1D = pytest.importorskip("transformers.pytorch_utils").Conv1D
core_model_loading = pytest.importorskip("transformers.core_model_loading")
safetensors_torch = pytest.importorskip("safetensors.torch")

pytestmark = [
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The following (rank|alpha)_pattern keys:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:fan_in_fan_out is set:UserWarning"),
]

DECODER: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
}
WIDE = {**DECODER, "head_dim": 12}
ROUTED = {"moe_intermediate_size": 24, "num_experts": 5, "num_experts_per_tok": 2}
SHARED = {**ROUTED, "shared_expert_intermediate_size": 40}
LATENT = {
    **DECODER,
    "num_key_value_heads": 6,
    "moe_intermediate_size": 24,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_shared_experts": 2,
    "kv_lora_rank": 16,
    "q_lora_rank": 20,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 10,
    "v_head_dim": 14,
}
GROUPED = {"n_group": 2, "topk_group": 1}
NEXT = {
    **WIDE,
    **SHARED,
    "num_hidden_layers": 5,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 6,
}
VISION = {
    "model_type": "siglip_vision_model",
    "hidden_size": 24,
    "intermediate_size": 36,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "image_size": 28,
    "patch_size": 7,
}
BIASED = {"attention_bias": True, "mlp_bias": True}
TIED = {"tie_word_embeddings": True}
LOOSE = {"tie_word_embeddings": False}
SEQUENCE = "ForSequenceClassification"
TOKEN = "ForTokenClassification"
THREE = {"id2label": {"0": "a", "1": "b", "2": "c"}, "label2id": {"a": 0, "b": 1, "c": 2}}

COMPUTED = {"full_attention_interval"}  # a key of config.json that the class turns into another
LATENT_TYPES = {"deepseek_v2", "deepseek_v3"}  # their head_dim means something else

# One name, or a name and what tells the case from another of its model_type.
CASES: dict[str, dict[str, Any]] = {
    "llama": DECODER,
    "llama biased tied": {**WIDE, **BIASED, **TIED},
    "llama one key": {**DECODER, "num_key_value_heads": None, "num_hidden_layers": 1},
    "llama " + SEQUENCE: {**DECODER, **THREE},
    "llama " + TOKEN: DECODER,
    "llama Model": DECODER,
    "mistral": DECODER,
    "mistral tied": {**WIDE, **TIED},
    "qwen2": DECODER,
    "qwen2 tied head_dim": {**WIDE, **TIED},
    "qwen2 " + SEQUENCE: {**DECODER, "num_labels": 1},
    "qwen3": WIDE,
    "qwen3 biased tied": {**WIDE, **TIED, "attention_bias": True},
    "qwen3 default head_dim": DECODER,
    "qwen3 Model": WIDE,
    "qwen2_moe": {**DECODER, **SHARED, "mlp_only_layers": [0]},
    "qwen2_moe step": {
        **DECODER,
        **SHARED,
        "qkv_bias": False,
        "decoder_sparse_step": 2,
        "num_hidden_layers": 5,
        **TIED,
    },
    "qwen3_moe": {**WIDE, **ROUTED, "mlp_only_layers": [1]},
    "qwen3_moe step": {**DECODER, **ROUTED, "decoder_sparse_step": 2, "attention_bias": True},
    "qwen3_moe " + SEQUENCE: {**WIDE, **ROUTED, **TIED},
    "qwen3_next": {**NEXT, "mlp_only_layers": [0]},
    "qwen3_next types": {
        **NEXT,
        "layer_types": ["full_attention", "linear_attention"] * 2 + ["full_attention"],
        "attention_bias": True,
        "linear_conv_kernel_dim": 3,
        **TIED,
    },
    "qwen3_next interval": {**NEXT, "full_attention_interval": 2},
    "mixtral": {**DECODER, "num_local_experts": 5},
    "mixtral tied": {**WIDE, **TIED},
    "mixtral " + SEQUENCE: {**DECODER, "num_local_experts": 3},
    "olmoe": {**DECODER, "num_experts": 5},
    "olmoe biased": {**DECODER, "num_experts": 3, "attention_bias": True, **TIED},
    "gemma": WIDE,
    "gemma loose": {**WIDE, **LOOSE, "attention_bias": True},
    "gemma2": WIDE,
    "gemma2 loose": {**DECODER, **LOOSE, "attention_bias": True},
    "gemma2 " + SEQUENCE: WIDE,
    "gemma3_text": WIDE,
    "gemma3_text loose": {**WIDE, **LOOSE, "attention_bias": True},
    "gemma3": {"text_config": WIDE, "vision_config": VISION, "mm_tokens_per_image": 4},
    "gemma3 loose headless": {
        "text_config": WIDE,
        "vision_config": {**VISION, "vision_use_head": False},
        "mm_tokens_per_image": 4,
        **LOOSE,
    },
    "phi": DECODER,
    "phi normed tied": {**DECODER, **TIED, "qk_layernorm": True},
    "phi " + TOKEN: DECODER,
    "phi3": DECODER,
    "phi3 tied": {**DECODER, **TIED, "num_key_value_heads": None},
    "deepseek_v2": {**LATENT, "mlp_bias": True, "first_k_dense_replace": 1},
    "deepseek_v2 plain": {**LATENT, "q_lora_rank": None, "attention_bias": True, **TIED},
    "deepseek_v3": {**LATENT, **GROUPED, "first_k_dense_replace": 1},
    "deepseek_v3 plain": {
        **LATENT,
        **GROUPED,
        "q_lora_rank": None,
        "attention_bias": True,
        "first_k_dense_replace": 0,
        **TIED,
    },
    "deepseek_v3 " + SEQUENCE: {**LATENT, **GROUPED, "first_k_dense_replace": 2},
    "glm4_moe": {**WIDE, **ROUTED, "n_routed_experts": 4, **GROUPED},
    "glm4_moe normed": {
        **WIDE,
        **ROUTED,
        "n_routed_experts": 4,
        **GROUPED,
        "use_qk_norm": True,
        "attention_bias": True,
        "first_k_dense_replace": 2,
        **TIED,
    },
    "gpt_oss": {**WIDE, "num_local_experts": 5},
    "gpt_oss unbiased": {**WIDE, "num_local_experts": 3, "attention_bias": False, **TIED},
    "gpt_oss " + SEQUENCE: {**WIDE, "num_local_experts": 3},
    "gpt2": {"vocab_size": 97, "n_embd": 48, "n_layer": 3, "n_head": 6, "n_positions": 32},
    "gpt2 loose inner": {
        "vocab_size": 97,
        "hidden_size": 36,
        "num_hidden_layers": 1,
        "num_attention_heads": 6,
        "n_inner": 50,
        **LOOSE,
    },
    "gpt2 " + SEQUENCE: {"vocab_size": 97, "n_embd": 48, "n_layer": 1, "n_head": 6},
    "gpt2 Model": {"vocab_size": 97, "n_embd": 48, "n_layer": 1, "n_head": 6},
    "glm": WIDE,
    "glm unbiased tied": {**DECODER, "attention_bias": False, **TIED},
    "glm4": WIDE,
    "glm4 unbiased tied": {**DECODER, "attention_bias": False, **TIED},
    "granite": DECODER,
    "granite biased tied": {**DECODER, **BIASED, **TIED},
    "olmo2": DECODER,
    "olmo2 biased tied": {**DECODER, "attention_bias": True, **TIED},
    "olmo3": DECODER,
    "starcoder2": DECODER,
    "starcoder2 unbiased loose": {**DECODER, "use_bias": False, **LOOSE},
    "smollm3": DECODER,
    "smollm3 biased loose": {**DECODER, **BIASED, **LOOSE},
}


def document(case: str) -> dict[str, Any]:
    """The config.json of a case."""
    model_type = case.split()[0]
    last = case.split()[-1]
    config: dict[str, Any] = {"model_type": model_type, **copy.deepcopy(CASES[case])}
    if last in (SEQUENCE, TOKEN, "Model"):
        config["architectures"] = [f"Some{last}"]
    return config


def model_of(config: Mapping[str, Any], device: str = "meta") -> Any:
    """Transformers' own model of a config."""
    known = dict(config)
    model_type = known.pop("model_type")
    named = known.pop("architectures", ["ForCausalLM"])[0]
    auto = {
        "SomeModel": transformers.AutoModel,
        "Some" + SEQUENCE: transformers.AutoModelForSequenceClassification,
        "Some" + TOKEN: transformers.AutoModelForTokenClassification,
    }.get(named, transformers.AutoModelForCausalLM)
    if model_type == "gemma3":
        auto = transformers.AutoModelForImageTextToText
    with torch.device(device):
        return auto.from_config(transformers.CONFIG_MAPPING[model_type](**known))


def shapes_on_disk(model: Any) -> dict[str, tuple[int, ...]]:
    state = dict(model.state_dict())
    for copied in model.all_tied_weights_keys:
        del state[copied]
    return {
        published(name): tuple(tensor.shape)
        for name, tensor in core_model_loading.revert_weight_conversion(model, state).items()
    }


def published(name: str) -> str:
    """Transformers 5 saves gemma3 without the `vision_model.` that transformers 4 had."""
    return name.replace("vision_tower.", "vision_tower.vision_model.", 1)


def targets(model: Any) -> dict[str, tuple[str, int, int, bool]]:
    found: dict[str, tuple[str, int, int, bool]] = {}
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear):
            biased = module.bias is not None
            found[name] = ("linear", module.in_features, module.out_features, biased)
        elif isinstance(module, Conv1D):
            found[name] = ("conv1d", module.weight.shape[0], module.weight.shape[1], True)
        elif isinstance(module, torch.nn.Embedding):
            shape = (module.num_embeddings, module.embedding_dim)
            found[name] = ("embedding", *shape, False)
    return found


def fused(model: Any) -> dict[str, tuple[int, ...]]:
    return {
        name: tuple(parameter.shape)
        for name, parameter in model.named_parameters()
        if parameter.dim() == 3 and ".experts." in name
    }


def declared_shapes(base: Base) -> dict[str, tuple[int, ...]]:
    return {name: tensor.shape for name, tensor in base.tensors.items()}


@pytest.mark.parametrize("model_type", supported())
def test_defaults_are_those_of_the_config_class(model_type: str) -> None:
    keys = FAMILIES[model_type].keys
    settings = Settings({}, keys)
    own = transformers.CONFIG_MAPPING[model_type]()
    for name in keys.defaults.keys() - COMPUTED:
        assert settings.value(name) == getattr(own, name) or (
            settings.number(name) == getattr(own, name)
        )
    if hasattr(own, "head_dim") and model_type not in LATENT_TYPES:
        derived = own.head_dim or own.hidden_size // own.num_attention_heads
        assert settings.number("head_dim") == derived


@pytest.mark.parametrize("part", ["text_config", "vision_config"])
def test_defaults_of_nested_configs_are_those_of_their_classes(part: str) -> None:
    own = getattr(transformers.Gemma3Config(), part)
    defaults = FAMILIES["gemma3"].keys.parts[part].defaults
    assert defaults == {name: getattr(own, name) for name in defaults}


def test_every_architecture_has_a_case() -> None:
    assert {case.split()[0] for case in CASES} == set(supported())


@pytest.mark.parametrize("case", CASES)
def test_a_rule_gives_what_transformers_builds(case: str) -> None:
    config = document(case)
    model = model_of(config)
    base = base_from_config(config, "tiny")

    assert declared_shapes(base) == shapes_on_disk(model)
    assert {
        name: (module.kind.value, module.inputs, module.outputs, module.bias)
        for name, module in base.modules.items()
        if not module.former
    } == targets(model)
    assert {
        name: (p.experts, p.inputs, p.outputs) if p.transposed else (p.experts, p.outputs, p.inputs)
        for name, p in base.parameters.items()
    } == fused(model)
    weights = dict(model.named_parameters())
    assert {name: (router.outputs, router.inputs) for name, router in base.routers.items()} == {
        name: weights[f"{name}.weight"].shape
        for name, module in model.named_modules()
        if "Router" in type(module).__name__
    }
    embeddings = model.get_input_embeddings(), model.get_output_embeddings()
    names = {module: name for name, module in model.named_modules()}
    assert (base.input_embedding, base.output_embedding) == tuple(map(names.get, embeddings))
    assert (base.vocab_size, base.layers) == (
        model.config.get_text_config().vocab_size,
        model.config.get_text_config().num_hidden_layers,
    )
    assert all(name == tensor.name for name, tensor in base.tensors.items())
    assert all(name == module.name for name, module in base.modules.items())


@pytest.mark.parametrize("case", [case for case in CASES if len(case.split()) == 1])
def test_all_linear_is_what_peft_targets(case: str) -> None:
    config = document(case)
    wrapped = peft.get_peft_model(
        model_of(config), peft.LoraConfig(target_modules="all-linear", r=2)
    )
    base = base_from_config(config, "tiny")
    assert set(base.all_linear) == set(wrapped.base_model.targeted_module_names)
    assert set(base.all_linear_parameters) == set(wrapped.base_model.targeted_parameter_names)


@pytest.mark.parametrize("case", ["qwen2 " + SEQUENCE, "gpt2 " + SEQUENCE])
def test_all_linear_leaves_a_classifier_out_as_peft_does(case: str) -> None:
    config = document(case)
    lora = peft.LoraConfig(target_modules="all-linear", r=2, task_type="SEQ_CLS")
    wrapped = peft.get_peft_model(model_of(config), lora)
    base = base_from_config(config, "tiny")
    assert set(base.all_linear) == set(wrapped.base_model.targeted_module_names)
    assert base.classifier == "score"


@pytest.mark.parametrize(
    "case", ["llama", "mixtral tied", "qwen3_moe", "gemma3", "gpt2", "deepseek_v3", "gpt_oss"]
)
def test_saved_files_hold_the_declared_tensors(case: str, tmp_path: Path) -> None:
    config = {**document(case), "dtype": "bfloat16"}
    model_of(config, "cpu").save_pretrained(tmp_path)
    header = parse_header((tmp_path / "model.safetensors").read_bytes())
    base = base_from_config(config, "tiny")
    assert {published(t.name): t.shape for t in header.tensors} == declared_shapes(base)
    dtypes = {t.name: t.dtype for t in base.tensors.values() if t.dtype is not None}
    assert {published(t.name): t.dtype for t in header.tensors}.items() >= dtypes.items()


@pytest.mark.parametrize(
    ("case", "dropped"), [("gemma3", ""), ("mixtral", ""), ("gpt2", "transformer."), ("gpt2", "")]
)
def test_transformers_loads_a_file_of_the_declared_tensors(
    case: str, dropped: str, tmp_path: Path
) -> None:
    model = model_of(document(case))
    model.config.save_pretrained(tmp_path)
    zeros = {
        name.removeprefix(dropped): torch.zeros(shape)
        for name, shape in declared_shapes(base_from_config(document(case), "tiny")).items()
    }
    safetensors_torch.save_file(zeros, tmp_path / "model.safetensors", metadata={"format": "pt"})
    _, found = cast(Any, type(model)).from_pretrained(tmp_path, output_loading_info=True)
    assert not any(found.values()), found
