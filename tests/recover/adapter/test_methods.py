from __future__ import annotations

import functools
import warnings
from importlib import import_module
from typing import Any

import pytest
from peft_adapters import MODELS  # the libraries are offline once it is imported

from reefkit.recover.adapter.keys import PREFIX
from reefkit.recover.adapter.naming.methods import method_of

WITHOUT_TARGETS = {"num_virtual_tokens": 4}
# Every method of peft 0.21 by what its config needs on this model; those left out say why below.
SETTINGS: dict[str, dict[str, Any]] = {
    "LORA": {"r": 4},
    "ADALORA": {"total_step": 10},
    "BEFT": {},
    "BOFT": {"boft_block_size": 8},
    "C3A": {"block_size": 16},
    "DEFT": {},
    "DELORA": {"r": 4},
    "FOURIERFT": {"n_frequency": 10},
    "FROD": {},
    "GLORA": {"r": 4},
    "GRALORA": {"r": 4},
    "HIRA": {"r": 4},
    "HRA": {"r": 4},
    "IA3": {"target_modules": ["q_proj", "down_proj"], "feedforward_modules": ["down_proj"]},
    "LILY": {"r": 4},
    "LN_TUNING": {"target_modules": ["input_layernorm"]},
    "LOHA": {"r": 4},
    "LOKR": {"r": 4},
    "MISS": {"r": 4},
    "OFT": {"oft_block_size": 8},
    "OSF": {},
    "PEANUT": {"r": 4},
    "POLY": {"r": 4},
    "PSOFT": {"r": 4},
    "PVERA": {"r": 4},
    "RANDLORA": {"r": 4},
    "ROAD": {"group_size": 16},
    "SHADOW": {},
    "SHIRA": {"r": 4},
    "SUPERTUNING": {},
    "TINYLORA": {"r": 4},
    "TRAINABLE_TOKENS": {"target_modules": ["embed_tokens"], "token_indices": [1, 2]},
    "UNILORA": {"r": 4},
    "VBLORA": {"num_vectors": 8, "vector_length": 16, "r": 2, "topk": 2},
    "VERA": {"r": 4},
    "WAVEFT": {"n_frequency": 10},
    "ADAPTION_PROMPT": {"target_modules": None, "adapter_len": 4, "adapter_layers": 1},
    "MULTITASK_PROMPT_TUNING": {**WITHOUT_TARGETS, "num_tasks": 2},
    "PROMPT_TUNING": WITHOUT_TARGETS,
    "PREFIX_TUNING": WITHOUT_TARGETS,
    "P_TUNING": {**WITHOUT_TARGETS, "encoder_hidden_size": 16},
    "CARTRIDGE": WITHOUT_TARGETS,
    "CPT": {"cpt_token_ids": [1, 2], "cpt_mask": [1, 1], "cpt_tokens_type_mask": [1, 1]},
}
NEED_MORE = {"ADAMSS": "scikit-learn", "XLORA": "saved adapters"}
SEEDED = {"FOURIERFT", "WAVEFT", "UNILORA"}


def library(name: str) -> Any:
    assert MODELS
    return import_module(name)


@functools.cache
def keys(kind: str, **settings: Any) -> list[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peft, torch, transformers = map(library, ("peft", "torch", "transformers"))
        torch.set_num_threads(1)
        config = library("peft.mapping").PEFT_TYPE_TO_CONFIG_MAPPING[peft.PeftType[kind]]
        given: dict[str, Any] = {**SETTINGS[kind], **settings}
        prompts = {"num_virtual_tokens", "cpt_mask", "adapter_len"}
        if not prompts & given.keys():
            given.setdefault("target_modules", ["q_proj", "v_proj"])
        torch.manual_seed(0)
        model = transformers.LlamaForCausalLM(
            transformers.LlamaConfig(
                vocab_size=64,
                hidden_size=64,
                intermediate_size=96,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
            )
        )
        wrapped = peft.get_peft_model(model, config(task_type="CAUSAL_LM", **given))
        return list(peft.get_peft_model_state_dict(wrapped))


@pytest.mark.parametrize("kind", SETTINGS)
def test_what_peft_writes_is_named_by_its_method(kind: str) -> None:
    names = keys(kind)
    found = method_of(names)
    assert found is not None and kind in found.name.replace(" or ", ", ").split(", ")
    assert found.evidence in names
    assert (found.seed is not None) == (kind in SEEDED)
    assert bool(found.refusal) == (kind != "LORA")


def test_every_method_of_peft_is_tried_or_excused() -> None:
    peft = library("peft")
    assert SETTINGS.keys() | NEED_MORE.keys() == {kind.name for kind in peft.PeftType}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (f"{PREFIX}x.q_proj.adamss_A.0", "ADAMSS"),
        (f"{PREFIX}internal_xlora_classifier.layers.0.weight", "XLORA"),
    ],
)
def test_methods_that_need_more_than_a_model_are_named_too(name: str, kind: str) -> None:
    found = method_of([name])
    assert found is not None and found.name == kind


@pytest.mark.parametrize(("kind", "part"), [
    ("VERA", "vera_"), ("PVERA", "pvera_"), ("RANDLORA", "randlora_"), ("SHIRA", "shira_indices"),
    ("TINYLORA", "tinylora_P"), ("FROD", "frod_V"),
])  # fmt: skip
def test_a_seed_matters_once_the_frozen_part_is_not_saved(kind: str, part: str) -> None:
    frozen = [n for n in keys(kind) if part in n and "lambda" not in n and "gamma" not in n]
    found = method_of([name for name in keys(kind) if name not in frozen])
    assert frozen and found is not None
    assert found.name == kind and found.seed is not None
    assert found.seed in found.refusal


@pytest.mark.parametrize(
    ("variant", "settings"),
    [
        ("DoRA", {"use_dora": True}),
        ("KaSA", {"kasa_config": "KasaConfig"}),
        ("VeLoRA", {"velora_config": "VeloraConfig"}),
        ("MonteCLoRA", {"monteclora_config": "MontecloraConfig"}),
    ],
)
def test_a_variant_of_lora_is_named(variant: str, settings: dict[str, Any]) -> None:
    peft = library("peft")
    made = {k: getattr(peft, v)() if isinstance(v, str) else v for k, v in settings.items()}
    found = method_of(keys.__wrapped__("LORA", **made))
    assert found is not None and (found.name, found.variants) == ("LORA", (variant,))


def test_lora_with_trainable_tokens_is_lora() -> None:
    found = method_of(keys.__wrapped__("LORA", trainable_token_indices=[1, 2]))
    assert found is not None and found.name == "LORA"


@pytest.mark.parametrize(
    "names",
    [
        [],
        ["model.layers.0.self_attn.q_proj.weight", "lm_head.weight"],
        ["my_lora_A.weight", "x.lora_ABC.weight", "x.xhra_u"],
        ["layers.0.attn.q_proj.lora_a.weight"],
    ],
)
def test_other_names_have_no_method(names: list[str]) -> None:
    assert method_of(names) is None
