"""Recipes in their trainers' own forms, one a file, with every statement that they make."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reefkit.recover.adapter.recipes.read import read_recipe, read_recipe_text
from reefkit.recover.adapter.statement import TRAINER_FIELDS, Recipe

CASES = sorted((Path(__file__).parent / "cases").glob("*.txt"))
TOKEN = "hf_" + "Ab3" * 12
PEFT_FIELDS = set(
    "r lora_alpha lora_dropout target_modules exclude_modules target_parameters modules_to_save "
    "bias use_rslora use_dora lora_bias init_lora_weights rank_pattern alpha_pattern "
    "layers_to_transform layers_pattern trainable_token_indices ensure_weight_tying "
    "fan_in_fan_out task_type peft_type base_model_name_or_path revision peft_version "
    "inference_mode megatron_core use_qalora qalora_group_size loftq_config".split()
)


def parts(case: Path) -> tuple[str, str, list[str]]:
    """Give a case's file name, its text, and the trainer, statements and notes expected of it."""
    name, rest = case.read_text("utf-8").split("\n=== document\n")
    text, expected = rest.split("=== statements\n")
    return name, text.replace("SECRET_TOKEN", TOKEN), expected.splitlines()


def said(recipe: Recipe) -> list[str]:
    statements = [
        f"{each.source.value} {each.field} = {json.dumps(each.value)} ({each.origin})"
        for each in recipe.statements
    ]
    trainer = f"{recipe.trainer} {recipe.version or ''}".strip()
    return [trainer, *statements, *(f"note {note}" for note in recipe.notes)]


def test_there_are_more_than_forty_cases() -> None:
    assert len(CASES) > 40


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_a_recipe_states_exactly_what_stands_in_it(case: Path) -> None:
    name, text, expected = parts(case)
    recipe = read_recipe_text(text, name)
    assert said(recipe) == expected
    assert TOKEN not in str(recipe)
    assert {each.field for each in recipe.statements} <= PEFT_FIELDS | TRAINER_FIELDS.keys()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_a_file_states_what_its_text_does(case: Path, tmp_path: Path) -> None:
    name, text, expected = parts(case)
    path = tmp_path / name
    path.write_text(text, "utf-8")
    recipe = read_recipe(path)
    assert said(recipe) == expected
    assert recipe.label == str(path)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_the_trainer_can_be_named(case: Path) -> None:
    name, text, expected = parts(case)
    trainer = read_recipe_text(text, name).trainer
    assert said(read_recipe_text(text, name, trainer.upper())) == expected
