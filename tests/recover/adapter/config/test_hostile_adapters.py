from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import synthetic
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reefkit.errors import ReefError
from reefkit.recover.adapter.config.settings import read_settings
from reefkit.recover.base.model import Base
from reefkit.recover.base.open import open_base
from reefkit.recover.open_checkpoint import open_checkpoint
from reefkit.recover.rebuild_config import rebuild

_SETTINGS = read_settings(
    (
        "lora_alpha=16",
        "use_rslora=false",
        "alpha_pattern={}",
        "base_model_name_or_path=a/b",
        "layer_replication=[[0,2],[1,4]]",
    )
)
_MODULES = st.sampled_from(
    [
        "model.layers.0.self_attn.q_proj",
        "model.layers.0.mlp.experts",
        "model.layers.0.mlp.experts.base_layer",
        "model.layers.0.mlp.experts.1.up_proj",
        "model.layers.0.mlp.gate",
        "model.layers.9.mlp.up_proj",
        "model.embed_tokens",
        "lm_head",
        "\u202ex.\x1b",
        "",
        ".",
        "0",
    ]
)
_PARTS = st.sampled_from(
    [
        "lora_A.weight",
        "lora_B.weight",
        "lora_B.bias",
        "lora_embedding_A",
        "lora_embedding_B",
        "lora_magnitude_vector",
        "lora_diag",
        "lora_velora_embed",
        "lora_monteclora_sampler.x",
        "token_adapter.trainable_tokens_delta",
        "base_layer.weight",
        "base_layer.bias",
        "weight",
        "bias",
        "modules_to_save.weight",
    ]
)
_SIZES = st.sampled_from([0, 1, 2, 3, 8, 16])
_SHAPES = st.lists(_SIZES, max_size=3).map(tuple)
_TENSORS = st.dictionaries(st.tuples(_MODULES, _PARTS), _SHAPES, max_size=4)
_WIDTHS = st.sampled_from([64, 256, 512, 768])
_PAIRS = st.lists(
    st.tuples(_MODULES, st.booleans(), st.sampled_from([1, 4, 8]), _WIDTHS, _WIDTHS), max_size=5
)


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> list[Base | None]:
    folder = tmp_path_factory.mktemp("bases")
    found: list[Base | None] = [None]
    configs: list[dict[str, Any]] = [
        synthetic.QWEN,
        synthetic.MOE,
        {**synthetic.QWEN, "tie_word_embeddings": True},
    ]
    for number, config in enumerate(configs):
        path = folder / f"{number}.json"
        path.write_text(json.dumps(config))
        found.append(open_base(str(path)))
    return found


@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(tensors=_TENSORS, pairs=_PAIRS, which=st.integers(0, 3))
def test_any_adapter_is_rebuilt_or_refused(
    tensors: dict[tuple[str, str], tuple[int, ...]],
    pairs: list[tuple[str, bool, int, int, int]],
    which: int,
    bases: list[Base | None],
    tmp_path: Path,
) -> None:
    pieces = {
        f"{synthetic.PREFIX}{module}.{part}": synthetic.noise(shape, module)
        for (module, part), shape in tensors.items()
    }
    for module, embedding, r, inputs, outputs in pairs:
        parts = ("embedding_A", "embedding_B") if embedding else ("A.weight", "B.weight")
        for part, shape in zip(parts, ((r, inputs), (outputs, r)), strict=True):
            pieces[f"{synthetic.PREFIX}{module}.lora_{part}"] = synthetic.noise(shape, module)
    path = tmp_path / "adapter_model.safetensors"
    synthetic.write(path, pieces)
    with open_checkpoint(str(path)) as checkpoint:
        try:
            rebuilt = rebuild(checkpoint, bases[which], (), _SETTINGS)
        except ReefError as error:
            assert error.message.isprintable()
            return
    json.dumps(rebuilt.to_json(), allow_nan=False)
    assert rebuilt.complete == rebuilt.decision.ledger.complete
