from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reefkit.errors import Unusable
from reefkit.recover.adapter.config.schema import FIELDS
from reefkit.recover.adapter.config.settings import read_settings
from reefkit.recover.adapter.statement import Source


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("lora_alpha=32", 32),
        ("lora_alpha=22.6", 22.6),
        ("use_rslora=false", False),
        ("use_rslora=True", True),
        ("target_modules=q_proj,v_proj", ["q_proj", "v_proj"]),
        ("target_modules=q_proj", ["q_proj"]),
        ("target_modules=all-linear", "all-linear"),
        (r"target_modules=.*\.(q|v)_proj", r".*\.(q|v)_proj"),
        ('target_modules=["q_proj"]', ["q_proj"]),
        ("modules_to_save=null", None),
        ("trainable_token_indices=7", [7]),
        ("trainable_token_indices=7, 8", [7, 8]),
        ('trainable_token_indices={"embed_tokens": [1]}', {"embed_tokens": [1]}),
        ("layers_to_transform=1,2", [1, 2]),
        ("init_lora_weights=pissa", "pissa"),
        ("init_lora_weights=true", True),
        ("base_model_name_or_path=Qwen/Qwen3-8B", "Qwen/Qwen3-8B"),
        ('base_model_name_or_path="gpt2"', "gpt2"),
        ("revision=12", "12"),
        ("alpha_pattern={}", {}),
        ("normalize_moe_lora=true", True),
        ("layer_replication=[[0,16],[8,24]]", [[0, 16], [8, 24]]),
        ("base_model_name_or_path=a=b", "a=b"),
    ],
)
def test_a_setting_is_read_as_it_is_meant(setting: str, value: Any) -> None:
    (statement,) = read_settings((setting,)).statements

    assert statement.value == value
    assert type(statement.value) is type(value)
    assert statement.source is Source.STATED
    assert statement.origin == f"--set {setting}".replace("\\", "\\\\")


@given(st.sampled_from(sorted(FIELDS)), st.text())
def test_whatever_is_typed_is_read_or_refused(field: str, text: str) -> None:
    try:
        (statement,) = read_settings((f"{field}={text}",)).statements
    except Unusable:
        return
    assert FIELDS[field].shape.fits(statement.value)
    json.dumps(statement.value, allow_nan=False)


def test_the_field_that_was_meant_is_named() -> None:
    with pytest.raises(Unusable) as error:
        read_settings(("lora_aplha=3",))

    assert "lora_alpha" in str(error.value.remedy)
