from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reefkit.recover.adapter.naming.foreign import PRODUCERS, recognise

PEFT = "base_model.model.model.layers.0"
MEGATRON = "decoder.layers.0.self_attention.linear_qkv"


@pytest.mark.parametrize(
    ("producer", "names"),
    [
        ("Megatron-Bridge or NeMo 2", [f"{MEGATRON}.adapter.linear_in.weight"]),
        ("Megatron-Bridge or NeMo 2", [f"{MEGATRON}.adapter.adapter_q.linear_out.weight"]),
        ("Megatron-Bridge or NeMo 2", [f"{MEGATRON}.to_wrap.weight"]),
        (
            "NeMo 1",
            ["model.language_model.encoder.layers.0.self_attention.adapter_layer"
             ".lora_kqv_adapter.linear_in.weight"],
        ),
        ("torchtune", ["layers.3.attn.q_proj.lora_a.weight", "layers.3.attn.q_proj.magnitude"]),
        ("kohya", ["lora_unet_down_blocks_0_attentions_1_proj_in.lora_down.weight"]),
        ("kohya", ["lora_te1_text_model_encoder_layers_0_mlp_fc1.alpha"]),
        ("kohya or diffusers", [f"{PEFT}.mlp.up_proj.lora.down.weight"]),
        ("LyCORIS", ["lora_unet_mid_block_attentions_0_proj_in.hada_w1_a"]),
        ("LyCORIS", ["lycoris_transformer_blocks_0_attn.lokr_w2_b"]),
        ("XLabs", ["double_blocks.0.processor.proj_lora1.down.weight"]),
        ("ai-toolkit or ComfyUI", ["diffusion_model.double_blocks.0.img_mlp.0.lora_A.weight"]),
        ("diffusers", ["unet.down_blocks.0.attentions.0.to_k.lora_A.weight"]),
        ("diffusers", ["transformer.transformer_blocks.0.attn.to_q.lora_B.weight"]),
        ("diffusers", ["text_encoder_2.text_model.encoder.layers.0.q_proj.lora.down.weight"]),
        ("diffusers", ["mid_block.attentions.0.processor.to_q_lora.down.weight"]),
        ("Tinker", [f"{PEFT}.mlp.experts.w1.lora_A.weight"]),
        ("Tinker", [f"{PEFT}.mlp.up_proj.lora_A.weight",
                    "base_model.model.model.unembed_tokens.lora_B.weight"]),
        ("llama.cpp (GGUF LoRA)", ["blk.0.attn_q.weight.lora_a"]),
        ("mlx-lm", ["model.layers.0.self_attn.q_proj.lora_b"]),
    ],
)  # fmt: skip
def test_the_producer_of_a_naming_is_named(producer: str, names: list[str]) -> None:
    found = recognise(names)
    assert found is not None and found.producer == producer
    assert found.evidence in names and found.trap and found.remedy


@pytest.mark.parametrize(
    "name",
    [
        f"{PEFT}.self_attn.q_proj.lora_A.weight",
        f"{PEFT}.self_attn.q_proj.lora_A.default.weight",
        f"{PEFT}.self_attn.q_proj.lora_A",  # AdaLoRA
        f"{PEFT}.self_attn.q_proj.hada_w1_a",
        f"{PEFT}.self_attn.q_proj.lokr_w1",
        f"{PEFT}.self_attn.q_proj.lora_magnitude_vector",
        f"{PEFT}.mlp.experts.base_layer.lora_A.weight",
        f"{PEFT}.mlp.experts.3.w1.lora_A.weight",
        f"{PEFT}.block_sparse_moe.experts.0.w2.lora_B.weight",
        "base_model.model.transformer.h.0.attn.c_attn.lora_A.weight",
        "transformer.h.0.attn.c_attn.lora_A.weight",  # GPT-2, its prefix lost
        "model.layers.0.self_attn.q_proj.lora_A.weight",
        "base_model.model.unet.mid_block.to_q.lora_A.weight",
        "model.layers.0.self_attn.q_proj.weight",
        "transformer.h.0.attn.c_attn.weight",
        "h.0.attn.bias",
        "model.layers.0.mlp.experts.w1.weight",
    ],
)
def test_names_of_peft_and_of_full_checkpoints_are_not_foreign(name: str) -> None:
    assert recognise([name]) is None


@pytest.mark.parametrize(
    ("key", "producer"),
    [("ss_network_dim", "kohya"), ("lora_adapter_metadata", "diffusers"), ("format", None)],
)
def test_metadata_tell_where_names_do_not(key: str, producer: str | None) -> None:
    found = recognise(["something"], {key: "x"})
    assert (found and found.producer) == producer
    assert recognise([f"{PEFT}.lora_A.weight"], {key: "x"}) is None


def test_most_of_the_names_decide() -> None:
    mlx = [f"layers.{i}.q_proj.lora_a" for i in range(5)]
    found = recognise(["lora_unet_x.alpha", *mlx])
    assert found is not None and (found.producer, found.tensors) == ("mlx-lm", 5)


@given(st.lists(st.text(max_size=40), max_size=6))
def test_any_names_are_taken(names: list[str]) -> None:
    found = recognise(names)
    assert found is None or found.producer in {producer.name for producer in PRODUCERS}


@pytest.mark.parametrize("start", ["lora_", "transformer.", "unet.", "blk.0."])
def test_a_hostile_name_does_not_take_long(start: str) -> None:
    names = [f"{start}{'a_' * 400}.{'to_q.' * 40}lora_A.x" for _ in range(20)]
    began = time.process_time()
    recognise([*names, start + "a." * 500_000 + "lora_down"])
    assert time.process_time() - began < 2
