from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from reefkit.errors import DoesNotHold, Unusable
from reefkit.recover.adapter.config.older_peft import for_version
from reefkit.recover.adapter.config.schema import FIELDS

RANKS = {
    "model.layers.0.self_attn.q_proj": 8,
    "model.layers.1.self_attn.q_proj": 8,
    "model.layers.0.mlp.up_proj": 2,
    "model.layers.1.mlp.up_proj": 4,
}
CONFIG: dict[str, Any] = {
    **{name: field.neutral for name, field in FIELDS.items()},
    "r": 4,
    "lora_alpha": 12,
    "target_modules": ["q_proj", "up_proj"],
    "rank_pattern": {"q_proj": 8, r"^model\.layers\.0\.mlp\.up_proj": 2},
    "alpha_pattern": {"self_attn.q_proj": 32, r"^model\.layers\.1\.mlp\.up_proj": 5},
}
WANTED = {
    "model.layers.0.self_attn.q_proj": (8, 32),
    "model.layers.1.self_attn.q_proj": (8, 32),
    "model.layers.0.mlp.up_proj": (2, 12),
    "model.layers.1.mlp.up_proj": (4, 5),
}


def after_a_dot(keys: list[str], name: str) -> str:
    return next((key for key in keys if re.match(rf".*\.{key}$", name)), name)


def until_0_13(config: Mapping[str, Any], name: str) -> tuple[int, float]:
    """Look rank and alpha up as PEFT 0.6 to 0.13 do: by one key for both."""
    key = after_a_dot([*config["rank_pattern"], *config["alpha_pattern"]], name)
    return config["rank_pattern"].get(key, config["r"]), config["alpha_pattern"].get(
        key, config["lora_alpha"]
    )


def in_0_14(config: Mapping[str, Any], name: str) -> tuple[int, float]:
    """Look them up as PEFT 0.14 does: each by its own key, after a dot."""
    rank = after_a_dot(list(config["rank_pattern"]), name)
    alpha = after_a_dot(list(config["alpha_pattern"]), name)
    return config["rank_pattern"].get(rank, config["r"]), config["alpha_pattern"].get(
        alpha, config["lora_alpha"]
    )


def today(config: Mapping[str, Any], name: str) -> tuple[int, float]:
    """Look them up as PEFT itself does."""
    from peft.utils.other import get_pattern_key

    rank = get_pattern_key(list(config["rank_pattern"]), name)
    alpha = get_pattern_key(list(config["alpha_pattern"]), name)
    return config["rank_pattern"].get(rank, config["r"]), config["alpha_pattern"].get(
        alpha, config["lora_alpha"]
    )


@pytest.mark.parametrize(
    ("version", "look_up"),
    [
        ("0.6", until_0_13),
        ("0.13.2", until_0_13),
        ("0.14.0", in_0_14),
        ("0.15.2", today),
        ("0.21.2", today),
        ("0.13", today),
    ],
)
def test_every_module_gets_its_rank_and_alpha_under_each_versions_rule(
    version: str, look_up: Callable[[Mapping[str, Any], str], tuple[int, float]]
) -> None:
    config = for_version(CONFIG, version, RANKS, list(RANKS))

    assert {name: look_up(config, name) for name in RANKS} == WANTED


def test_the_rule_of_old_would_not_have_found_them() -> None:
    assert {name: until_0_13(CONFIG, name) for name in RANKS} != WANTED
    assert {name: in_0_14(CONFIG, name) for name in RANKS} != WANTED


def test_patterns_are_refused_where_they_were_not_known() -> None:
    with pytest.raises(DoesNotHold, match="rank_pattern"):
        for_version(CONFIG, "0.5", RANKS, list(RANKS))


@pytest.mark.parametrize("version", ["0.2", "1.0", "", "latest", "0.11.1.2.3", "0.22"])
def test_only_versions_that_are_known_are_accepted(version: str) -> None:
    with pytest.raises(Unusable):
        for_version(CONFIG, version, RANKS, list(RANKS))


@pytest.mark.parametrize(("version", "full"), [("0.4.0", True), ("0.5.0", False)])
def test_endings_that_would_take_other_layers_are_spelled_out(version: str, full: bool) -> None:
    bare: dict[str, Any] = {"rank_pattern": {}, "alpha_pattern": {}}
    plain: dict[str, Any] = {**CONFIG, **bare, "target_modules": ["0.q_proj"]}

    targets = for_version(plain, version, RANKS, list(RANKS))["target_modules"]

    assert targets == (list(RANKS) if full else ["0.q_proj"])
