"""Documents that mean harm: secrets in them, bombs, and what breaks a format's rules."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from reefkit.errors import Unusable
from reefkit.records.strict_json import Json
from reefkit.recover.adapter.recipes.read import read_recipe, read_recipe_text
from reefkit.recover.adapter.statement import Recipe

TOKEN = "hf_" + "Zq9" * 12


def values(recipe: Recipe, field: str) -> list[Json]:
    return [statement.value for statement in recipe.of(field)]


SECRETS = [
    ("serve.yaml", "schema-version: 2\ninference: {model-path: a/b, token: %s}\n"
     "training: {backend: slime, options: {megatron-lora-rank: '${inference.token}', lr: %s}}\n"),
    ("serve.yaml", "reef: {model_path: '${token}', token: %s}\nREEF_TOKEN: %s\ntoken: %s\n"
     "services: [{name: a, command: 'x --hf-checkpoint=%s --megatron-lora-rank ${reef.token}'}]\n"),
    ("a.sh", "export HF_TOKEN=%s\ntrl sft --use_peft --model_name_or_path $HF_TOKEN --lora_r 8\n"),
    ("a.sh", "TOKEN=%s trl sft --use_peft --lora_r %s --model_name_or_path a/b\n"),
    ("a.yaml", "use_peft: true\nmodel_name_or_path: https://user:%s@huggingface.co/a/b\n"),
    ("a.yaml", "use_peft: true\nlora_target_modules: [q_proj, %s]\nlora_dropout: %s\n"),
    ("a.yaml", "use_peft: true\nlora_r: 8\n%s: 8\nhub_token: %s\n"),
    ("a.json", '{"peft_type": "LORA", "base_model_name_or_path": "%s", "rank_pattern": {"%s": 1}}'),
    ("a.json", '{"peft_type": "LORA", "r": "%s"}'),
    ("a.json", '{"peft_type": "LORA", "%s": '),
    ("a.py", "from peft import LoraConfig\nTOKEN = '%s'\nLoraConfig(r=TOKEN)\n"),
    ("a.py", "from peft import LoraConfig\nLoraConfig(target_modules=['%s'], r=f'{%s}')\n"),
    ("a.toml", 'token = "%s"\n[trainer.model.lora]\nrank = 8\n[model]\nname = "%s"\n'),
    ("README.md", "---\nbase_model: %s\ntags: ['base_model:adapter:%s']\n---\n%s\n"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text"), SECRETS)
def test_a_secret_is_never_repeated(name: str, text: str) -> None:
    try:
        said = repr(read_recipe_text(text.replace("%s", TOKEN), name))
    except Unusable as error:
        said = f"{error} {error.remedy}"
    assert TOKEN not in said


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.sh", "REEF_TOKEN=reef-local\npython train.py --megatron-lora-rank 8 "
         "--hf-checkpoint=$REEF_TOKEN\n"),
        ("a.py", "from peft import LoraConfig\nHUB_TOKEN = 'reef-local'\n"
         "LoraConfig(r=8, base_model_name_or_path=HUB_TOKEN)\n"),
        ("a.yaml", "hub: {token: reef-local}\n"
         "trainer: {policy: {model: {path: 'x/${hub.token}'}}}\n"),
        ("a.yaml", "reef: {token: reef-local}\nservices:\n- command: x --megatron-lora-rank 8 "
         "--hf-checkpoint ${reef.token}\n"),
    ],
)  # fmt: skip
def test_what_a_name_calls_secret_is_not_put_in(name: str, text: str) -> None:
    recipe = read_recipe_text(text, name)
    assert values(recipe, "base_model_name_or_path") == []
    assert "reef-local" not in repr(recipe)
    assert recipe.notes


def test_what_looks_like_a_secret_is_noted_and_no_statement() -> None:
    text = f"use_peft: true\nmodel_name_or_path: https://me:{TOKEN}@huggingface.co/a/b\n"
    recipe = read_recipe_text(text, "a.yaml")
    assert values(recipe, "base_model_name_or_path") == []
    assert (
        "a.yaml:2: model_name_or_path: it looks like a secret and is not repeated" in recipe.notes
    )


def test_references_that_run_in_circles_are_left_open() -> None:
    text = (
        "schema-version: 2\na: ${b}\nb: ${a}\n"
        "training: {backend: slime, options: {megatron-lora-rank: '${a}', hf-checkpoint: '${a}'}}\n"
    )
    recipe = read_recipe_text(text, "serve.yaml")
    assert recipe.statements == ()
    assert any("leads in a circle" in note for note in recipe.notes)


def test_references_that_double_do_not_take_long() -> None:
    doubling = "".join(f"k{n}: '${{k{n + 1}}}${{k{n + 1}}}'\n" for n in range(40))
    text = f"actor_rollout_ref: {{model: {{path: '${{k0}}', lora_rank: 8}}}}\n{doubling}k40: ''\n"
    started = time.monotonic()
    recipe = read_recipe_text(text, "a.yaml")
    assert time.monotonic() - started < 2
    assert values(recipe, "base_model_name_or_path") == []


def laughs() -> str:
    lines = ["use_peft: true", "a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    return "\n".join(lines)


HOSTILE = [
    ("a.yaml", laughs()),
    ("a.yaml", "[" * 100_000),
    ("a.yaml", "a: " + "{b: " * 70 + "1" + "}" * 70),
    ("a.yaml", "a: &a [*a]\n"),
    ("a.yaml", "a: &a {<<: *a}\n"),
    ("a.yaml", "a: !!python/object/apply:os.system [id]\n"),
    ("a.yaml", "a: !include b.yaml\n"),
    ("a.yaml", "? [a, b]\n: 1\n"),
    ("a.yaml", "a: 'open"),
    ("a.yaml", "\x01: 1"),
    ("a.yaml", "a: &x 1\n" + "b: *x\n" * 5_000),
    ("a.json", "[" * 100_000),
    ("a.json", '{"a": NaN}'),
    ("a.json", '{"a": 1,}'),
    ("a.json", '{"a": 01}'),
    ("a.json", '{"a": ' + "9" * 5_000 + "}"),
    ("a.json", '{"a": 1} {"b": 2}'),
    ("a.json", ""),
    ("a.toml", "a = " + "[" * 50_000),
    ("a.toml", "a = 1\na = 2\n"),
    ("a.toml", ".".join(["a"] * 5_000) + " = 1"),
    ("a.py", "(" * 10_000),
    ("a.py", "x = " + "-" * 50_000 + "1"),
    ("a.py", "x = " + "1+" * 50_000 + "1"),
    ("a.py", "def f(:\n"),
    ("a.py", "LoraConfig(r=1)\n" * 5_000),
    ("a.py", "x = 1\n" * 400_000),
    ("a.sh", "A=(x)\n" + 'A+=("${A[@]}")\n' * 60),
    ("a.sh", "a" * (5 << 20)),
    ("a.yaml", "a: \0\n"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text"), HOSTILE, ids=[f"{n}-{name}" for n, (name, _) in enumerate(HOSTILE)]
)
def test_a_hostile_document_is_refused_soon_and_in_one_sentence(name: str, text: str) -> None:
    started = time.monotonic()
    with pytest.raises(Unusable) as caught:
        read_recipe_text(text, name)
    assert time.monotonic() - started < 10
    assert len(str(caught.value)) < 600


def test_a_card_of_many_lines_is_read_soon() -> None:
    started = time.monotonic()
    text = "---\nbase_model: a/b\n---\n" + "```\n" * 200_000 + "- PEFT" + " " * 200_000
    assert values(read_recipe_text(text, "README.md"), "base_model_name_or_path") == ["a/b"]
    assert time.monotonic() - started < 10


def test_a_variable_that_doubles_is_left_open() -> None:
    script = "A=Qwen/Qwen3\n" + "A=$A$A\n" * 40 + "trl sft --use_peft --model_name_or_path $A\n"
    assert values(read_recipe_text(script, "a.sh"), "base_model_name_or_path") == []


@pytest.mark.parametrize("suffix", [".yaml", ".json", ".toml", ".py", ".sh", ".md", ".txt"])
def test_bytes_that_are_no_text_are_refused(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"recipe{suffix}"
    path.write_bytes(b"lora_r: \xff\xfe 8")
    with pytest.raises(Unusable, match="not text"):
        read_recipe(path)


def test_only_regular_files_of_reasonable_size_are_read(tmp_path: Path) -> None:
    big = tmp_path / "big.yaml"
    big.write_bytes(b"#" * ((4 << 20) + 1))
    os.mkfifo(tmp_path / "pipe.yaml")
    for name in ("big.yaml", "pipe.yaml", "absent.yaml", "."):
        with pytest.raises(Unusable):
            read_recipe(tmp_path / name)
