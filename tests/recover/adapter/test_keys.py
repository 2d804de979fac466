from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reefkit.recover.adapter.keys import PREFIX, Key, Part, parse_key, tensor_name
from reefkit.recover.adapter.kinds import expert_of, in_order, kind_of_module, layer_of
from reefkit.recover.adapter.structure import read_adapter
from reefkit.recover.formats.safetensors import Tensor

Q = "model.layers.0.self_attn.q_proj"
EXPERTS = "model.layers.0.mlp.experts"
segments = st.text(st.characters(exclude_characters="."), min_size=1, max_size=8)
modules = st.lists(segments, min_size=1, max_size=5).map(".".join)
BARE = [part for part in Part if part not in (Part.WHOLE, Part.MONTECLORA)]


def tensor(name: str, *shape: int) -> Tensor:
    return Tensor(name, "F32", shape, 0, 0)


@pytest.mark.parametrize(
    ("rest", "key"),
    [
        (f"{Q}.lora_A.weight", Key(Q, Part.A)),
        (f"{Q}.lora_B.bias", Key(Q, Part.B_BIAS)),
        (f"{Q}.lora_magnitude_vector", Key(Q, Part.MAGNITUDE)),
        (f"{Q}.base_layer.bias", Key(Q, Part.BASE_BIAS)),
        (f"{EXPERTS}.lora_A.weight", Key(EXPERTS, Part.A)),
        (f"{EXPERTS}.base_layer.lora_A.weight", Key(EXPERTS, Part.A, 1)),
        (f"{EXPERTS}.base_layer.base_layer.lora_B.weight", Key(EXPERTS, Part.B, 2)),
        ("model.embed_tokens.lora_embedding_B", Key("model.embed_tokens", Part.EMBEDDING_B)),
        ("model.embed_tokens.base_layer.weight", Key("model.embed_tokens", Part.BASE_WEIGHT)),
        (
            "model.embed_tokens.token_adapter.trainable_tokens_delta",
            Key("model.embed_tokens", Part.TOKEN_DELTA),
        ),
        (f"{Q}.lora_monteclora_sampler.std_prior", Key(Q, Part.MONTECLORA)),
        ("lm_head.weight", Key("lm_head", Part.WHOLE, 0, "weight")),
        ("score.modules.lora_A", Key("score.modules", Part.WHOLE, 0, "lora_A")),
    ],
)
def test_a_name_is_taken_apart(rest: str, key: Key) -> None:
    assert parse_key(PREFIX + rest) == key


@pytest.mark.parametrize(
    "name",
    ["", PREFIX, f"{Q}.lora_A.weight", f"{PREFIX}weight", f"{PREFIX}.weight", f"{PREFIX}a.",
     f"{PREFIX}.lora_A.weight", "base_model.vera_A"],
)  # fmt: skip
def test_what_names_no_module_is_no_key(name: str) -> None:
    assert parse_key(name) is None


@given(modules, st.sampled_from(BARE), st.integers(0, 3))
def test_a_name_comes_back_from_its_parts(module: str, part: Part, depth: int) -> None:
    depth = depth if part.is_lora else 0
    if module.split(".")[-1] == "base_layer":
        module += "_"
    assert parse_key(tensor_name(module, part, depth)) == Key(module, part, depth)


@given(st.text(max_size=60))
def test_any_name_is_a_key_or_none(text: str) -> None:
    key = parse_key(PREFIX + text)
    assert key is None or (key.module and (key.part is not Part.WHOLE or key.leaf))


@pytest.mark.parametrize(
    ("name", "kind", "layer", "expert"),
    [
        (Q, "model.layers.*.self_attn.q_proj", "model.layers.0", None),
        ("h.11.mlp.c_fc", "h.*.mlp.c_fc", "h.11", None),
        ("layers.7.mlp.experts.12.up_proj", "layers.*.mlp.experts.*.up_proj", "layers.7", 12),
        ("lm_head", "lm_head", None, None),
        ("conv1d.w2.x", "conv1d.w2.x", None, None),
        ("0.a", "0.a", "0", None),
        ("a.3", "a.*", "a.3", None),
    ],
)
def test_a_module_has_a_kind_a_layer_and_an_expert(
    name: str, kind: str, layer: str | None, expert: int | None
) -> None:
    assert (kind_of_module(name), layer_of(name), expert_of(name)) == (kind, layer, expert)


def test_layer_9_comes_before_layer_10() -> None:
    names = ["a.10.b", "a.9.b", "a.b", "a.9", "a.\u0663.b", "a." + "9" * 30]
    assert sorted(names, key=in_order)[:3] == ["a.9", "a.9.b", "a.10.b"]


def test_the_structure_is_read_off_names_and_shapes() -> None:
    adapter = read_adapter(
        [
            tensor(f"{PREFIX}{Q}.lora_A.weight", 8, 64),
            tensor(f"{PREFIX}{Q}.lora_B.weight", 32, 8),
            tensor(f"{PREFIX}{Q}.lora_magnitude_vector", 32),
            tensor(f"{PREFIX}{EXPERTS}.base_layer.lora_A.weight", 16, 64),
            tensor(f"{PREFIX}e.lora_embedding_A", 8, 100),
            tensor(f"{PREFIX}e.lora_embedding_B", 64, 8),
            tensor(f"{PREFIX}e.token_adapter.trainable_tokens_delta", 3, 64),
            tensor(f"{PREFIX}lm_head.weight", 100, 64),
            tensor("stray", 1),
        ]
    )
    q = adapter.modules[Q, 0]
    assert (q.first, q.inputs, q.outputs, q.whole) == (8, 64, 32, True)
    inner = adapter.modules[EXPERTS, 1]
    assert (inner.first, inner.whole) == (16, False)
    embedding = adapter.modules["e", 0]
    assert (embedding.first, embedding.inputs, embedding.outputs, embedding.whole) == (
        8,
        100,
        64,
        True,
    )
    assert adapter.ranks == {8: 2, 16: 1}
    assert adapter.token_deltas == {"e": (3, 64)}
    assert adapter.whole == {"lm_head": {"weight": (100, 64)}}
    assert adapter.strange == ("stray",)
    assert Part.MAGNITUDE in adapter.parts


@pytest.mark.parametrize("shape", [(), (0,), (8,), (8, 64, 1)])
def test_an_odd_shape_does_no_harm(shape: tuple[int, ...]) -> None:
    adapter = read_adapter([tensor(f"{PREFIX}{Q}.lora_{x}.weight", *shape) for x in "AB"])
    assert adapter.modules[Q, 0].whole


def test_a_lone_b_tells_the_rank() -> None:
    adapter = read_adapter([tensor(f"{PREFIX}{Q}.lora_B.weight", 32, 8)])
    assert (adapter.modules[Q, 0].first, adapter.modules[Q, 0].whole) == (8, False)
