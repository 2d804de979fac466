# torch, peft and transformers leave much untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    GptOssConfig,
    GptOssForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from reefkit.cli import recover, run

TOKENS = torch.tensor([[3, 17, 42, 63, 5, 9]])
_COMMON: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def _make(name: str) -> Any:
    torch.set_num_threads(1)
    torch.manual_seed(7)
    if name == "gpt2":
        config = GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=64)
        return GPT2LMHeadModel(config).eval()
    if name == "qwen2":
        return Qwen2ForCausalLM(Qwen2Config(**_COMMON)).eval()
    if name == "oss":
        oss: dict[str, Any] = {**_COMMON, "num_hidden_layers": 2, "num_local_experts": 4}
        return GptOssForCausalLM(GptOssConfig(**oss, num_experts_per_tok=2)).eval()
    if name == "mixtral":
        few: dict[str, Any] = {**_COMMON, "num_hidden_layers": 2, "num_local_experts": 4}
        return MixtralForCausalLM(MixtralConfig(**few, num_experts_per_tok=2)).eval()
    if name == "moe":
        shallow: dict[str, Any] = {**_COMMON, "num_hidden_layers": 2}
        moe = Qwen3MoeConfig(
            **shallow,
            num_experts=4,
            num_experts_per_tok=2,
            moe_intermediate_size=24,
            decoder_sparse_step=1,
        )
        return Qwen3MoeForCausalLM(moe).eval()
    tied: dict[str, Any] = {"tie_word_embeddings": True} if name == "tied" else {}
    return Qwen3ForCausalLM(Qwen3Config(**_COMMON | tied)).eval()


@dataclass(frozen=True)
class Bases:
    """Tiny random models in folders, each made once a session."""

    root: Path
    made: dict[str, Path] = field(default_factory=dict[str, Path])

    def folder(self, name: str) -> Path:
        if name not in self.made:
            folder = self.root / name
            _make(name).save_pretrained(folder)
            self.made[name] = folder
        return self.made[name]

    def model(self, name: str, rows: int | None = None) -> Any:
        from transformers import AutoModelForCausalLM

        model = AutoModelForCausalLM.from_pretrained(self.folder(name))
        if rows is not None:
            torch.manual_seed(3)
            model.resize_token_embeddings(rows)
        return model.eval()


@dataclass(frozen=True)
class Saved:
    """An adapter as PEFT saved it, without its configuration, which is kept apart."""

    folder: Path
    base_name: str
    base: Path
    config: dict[str, Any]
    logits: torch.Tensor
    rows: int | None = None


@dataclass(frozen=True)
class Result:
    """What a run of the command gave."""

    code: int
    document: dict[str, Any]
    output: str


@pytest.fixture(scope="session")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Bases:
    return Bases(tmp_path_factory.mktemp("bases"))


def logits_of(model: Any) -> torch.Tensor:
    with torch.no_grad():
        logits: torch.Tensor = model(TOKENS).logits
    return logits


@pytest.fixture
def save(bases: Bases, tmp_path: Path) -> Callable[..., Saved]:
    """Train nothing, but save an adapter of random values with PEFT and delete its config."""

    def make(base: str = "qwen3", rows: int | None = None, **options: Any) -> Saved:
        options = {"r": 4, "lora_alpha": 12, "target_modules": ALL, **options}
        folder = tmp_path / "adapter"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = bases.model(base, rows)
            config = LoraConfig(task_type="CAUSAL_LM", init_lora_weights=False, **options)
            tuned = get_peft_model(model, config).eval()
            torch.manual_seed(11)
            for parameter in tuned.parameters():
                if parameter.requires_grad:
                    parameter.data += 0.05 * torch.randn_like(parameter)
            tuned.save_pretrained(str(folder))
            logits = logits_of(tuned)
        stated = json.loads((folder / "adapter_config.json").read_text())
        (folder / "adapter_config.json").rename(tmp_path / "original.json")
        (folder / "README.md").unlink()
        return Saved(folder, base, bases.folder(base), stated, logits, rows)

    return make


@pytest.fixture
def load(bases: Bases) -> Callable[[Saved], torch.Tensor]:
    """Load an adapter with PEFT onto a fresh base and give its logits."""

    def logits(saved: Saved) -> torch.Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = bases.model(saved.base_name, saved.rows)
            return logits_of(PeftModel.from_pretrained(model, saved.folder).eval())

    return logits


@pytest.fixture
def bare(bases: Bases) -> Callable[[Saved], torch.Tensor]:
    """Give the logits of the base alone, which a dead adapter would give, too."""

    def logits(saved: Saved) -> torch.Tensor:
        return logits_of(bases.model(saved.base_name, saved.rows))

    return logits


@pytest.fixture
def rebuild(capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """Run `rebuild-config --json`; options without a value are flags."""

    def call(path: object, *arguments: object) -> Result:
        capsys.readouterr()
        code = run(recover, ["rebuild-config", str(path), *map(str, arguments), "--json"])
        captured = capsys.readouterr()
        return Result(code, json.loads(captured.out), captured.err)

    return call
