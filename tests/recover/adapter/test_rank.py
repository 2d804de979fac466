"""Ranks come from the shapes of the A matrices, in every naming that adapters use."""

from __future__ import annotations

import pytest

from reefkit.recover.adapter.rank import lora_ranks
from reefkit.recover.formats.safetensors import parse_header, write_header


def ranks(*tensors: tuple[str, tuple[int, ...]]) -> tuple[int, ...]:
    return lora_ranks(
        parse_header(write_header([(name, "BF16", shape) for name, shape in tensors]))
    )


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight", (32, 4096)),
        ("model.layers.0.self_attn.q_proj.lora_A.default.weight", (32, 64)),
        ("base_model.model.conv.lora_A.weight", (32, 8, 3, 3)),
        ("base_model.model.model.embed_tokens.lora_embedding_A", (32, 1000)),
        ("base_model.model.model.embed_tokens.lora_embedding_A.default", (32, 1000)),
        ("lora_unet_down_blocks_0_attentions_0_proj_in.lora_down.weight", (32, 320, 1, 1)),
        ("unet.down_blocks.0.attn1.to_q.lora.down.weight", (32, 320)),
        ("unet.down_blocks.0.attn1.processor.to_q_lora.down.weight", (32, 320)),
        ("lora_A.weight", (32, 64)),
    ],
)
def test_each_naming_gives_its_rank(name: str, shape: tuple[int, ...]) -> None:
    assert ranks((name, shape)) == (32,)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("model.layers.0.self_attn.q_proj.weight", (4096, 4096)),
        ("base_model.model.q_proj.lora_B.weight", (4096, 32)),
        ("base_model.model.q_proj.lora_B.bias", (4096,)),
        ("base_model.model.q_proj.lora_magnitude_vector", (4096,)),
        ("base_model.model.embed_tokens.lora_embedding_B", (64, 32)),
        ("lora_unet_proj_in.lora_up.weight", (320, 32)),
        ("lora_unet_proj_in.alpha", ()),
        ("my_lora_A.weight", (32, 64)),
        ("q_proj.lora_A.weight.absmax", (32, 64)),
        ("q_proj.lora_A.weight\n", (32, 64)),
        ("q_proj.lora_A.weight", (0,)),
        ("q_proj.lora_A.weight", (0, 4096)),
    ],
)
def test_other_tensors_give_none(name: str, shape: tuple[int, ...]) -> None:
    assert ranks((name, shape)) == ()


def test_different_ranks_are_distinct_and_sorted() -> None:
    names = zip("abc", (64, 8, 64), strict=True)
    assert ranks(*((f"{name}.lora_A.weight", (rank, 128)) for name, rank in names)) == (8, 64)


def test_an_empty_file_has_no_rank() -> None:
    assert ranks() == ()
