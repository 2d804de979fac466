"""Which names can be a model's identity on the Hub, and which are paths."""

from __future__ import annotations

from pathlib import Path

import pytest

from reefkit.recover.adapter.recipes.identity import looks_like_hub_id, looks_like_secret


@pytest.mark.parametrize(
    "value",
    [
        "Qwen/Qwen3-8B",
        "meta-llama/Llama-3.1-8B-Instruct",
        "unsloth/Qwen3-14B-unsloth-bnb-4bit",
        "openai-community/gpt2",
        "01-ai/Yi-6B",
        "mistralai/Mistral-7B-v0.1",
        "THUDM/chatglm3-6b_x",
    ],
)
def test_owner_and_name_are_an_identity(value: str) -> None:
    assert looks_like_hub_id(value)


@pytest.mark.parametrize(
    "value",
    [
        "work/model",
        "Work/Model",
        "models/qwen",
        "model/Qwen3-8B",
        "checkpoints/Qwen3-8B",
        "ckpt/base",
        "outputs/checkpoint-10",
        "anything/checkpoint-10",
        "run1/global_step_8",
        "output/x",
        "data/x",
        "runs/x",
        "tmp/x",
        "home/x",
        "mnt/x",
        "root/x",
        "workspace/x",
        "experiments/x",
        "./x",
        "./x/y",
        "../x",
        "/x",
        "/x/y",
        "~/x",
        "~/models/x",
        "a/b/c",
        "gpt2",
        "",
        "/",
        "a/",
        "/b",
        "a//b",
        "a/.b",
        "a/b.",
        "a--b/c",
        "a..b/c",
        "a/b.safetensors",
        "a/b.gguf",
        "a/b.git",
        "a b/c",
        "a/b\n",
        "a\\b",
        "C:/x",
        "hf://a/b",
        "https://huggingface.co/a/b",
        "Qwen/Qwén",
        "a/" + "b" * 97,
        "${MODEL}/x",
        "s3/\u202ex",
    ],
)
def test_paths_and_other_texts_are_none(value: str) -> None:
    assert not looks_like_hub_id(value)


def test_a_folder_that_exists_is_no_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert looks_like_hub_id("acme/thing", near=tmp_path)
    (tmp_path / "acme" / "thing").mkdir(parents=True)
    assert not looks_like_hub_id("acme/thing", near=tmp_path)
    assert looks_like_hub_id("acme/thing")
    monkeypatch.chdir(tmp_path)
    assert not looks_like_hub_id("acme/thing")


@pytest.mark.parametrize(
    "value", ["hf_" + "a1" * 17, "https://u:p@host/x", "sk-" + "a" * 24, "ghp_" + "A1" * 18]
)
def test_tokens_and_credentials_look_secret(value: str) -> None:
    assert looks_like_secret(value)
    assert not looks_like_hub_id(value)


@pytest.mark.parametrize(
    "value", ["Qwen/Qwen3-8B", "q_proj", "s3://bucket/x", "a" * 40, ".*_proj$"]
)
def test_ordinary_values_do_not(value: str) -> None:
    assert not looks_like_secret(value)
