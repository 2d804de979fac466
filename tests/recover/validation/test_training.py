from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any, cast

import pytest
from contents import HIDDEN, RANK, adapter, judged, judged_bytes, serialise, tensor

from reefkit.recover.validation.content.facts import Claims, Judgement
from reefkit.recover.validation.content.training import adamw_bound, step_bound

RATE = 1e-3
STEPS = (0, 1, 2, 5, 20)
STORED = ("F32", "BF16", "F16", "trained in BF16")


def bound_of(found: Judgement) -> dict[str, Any]:
    training = cast("dict[str, Any]", found.evidence["training"])
    return cast("dict[str, Any]", training["adamw_bound"])


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train LoRA on two linear layers with torch's AdamW, and save it at several steps."""
    folder = tmp_path_factory.mktemp("runs")
    import torch

    save_file = import_module("safetensors.torch").save_file
    torch.set_num_threads(1)
    kinds = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
    for own in (torch.float32, torch.bfloat16):
        for step, weights in trained(torch, own):
            for name, kind in kinds.items():
                if own is torch.float32:
                    label = name
                elif kind is own:
                    label = STORED[-1]
                else:
                    continue
                made = {key: value.to(kind).contiguous() for key, value in weights.items()}
                save_file(made, folder / f"{label} {step}.safetensors", {"format": "pt"})
    return folder


def trained(torch: Any, own: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    generator = torch.Generator().manual_seed(0)
    prefix = "base_model.model.model.layers"
    layers: list[tuple[Any, Any, Any]] = []
    weights: dict[str, Any] = {}
    for layer in range(2):
        base = torch.randn(64, 64, generator=generator) / 8
        a = torch.empty(RANK, 64)
        torch.nn.init.kaiming_uniform_(a, a=5**0.5, generator=generator)
        b = torch.zeros(64, RANK)
        a, b = (value.to(own).requires_grad_() for value in (a, b))
        layers.append((base.to(own), a, b))
        weights[f"{prefix}.{layer}.q_proj.lora_A.weight"] = a
        weights[f"{prefix}.{layer}.q_proj.lora_B.weight"] = b
    optimizer = torch.optim.AdamW(weights.values(), lr=RATE, weight_decay=0.1)
    inputs = torch.randn(128, 64, generator=generator).to(own)
    target = torch.randn(128, 64, generator=generator).to(own)
    for step in range(STEPS[-1] + 1):
        if step in STEPS:
            yield step, {name: value.detach().clone() for name, value in weights.items()}
        hidden = inputs
        for base, a, b in layers:
            hidden = torch.tanh(hidden @ (base + b @ a).T)
        optimizer.zero_grad()
        ((hidden - target) ** 2).mean().backward()
        optimizer.step()


def claim(step: int, rate: float = RATE) -> Claims:
    return Claims(step=step, learning_rate=rate, init=True, optimizer="adamw_torch")


@pytest.mark.parametrize(("stored", "step"), [*product(STORED, STEPS)])
def test_what_torch_did_is_not_refuted(stored: str, step: int, runs: Path) -> None:
    found = judged(runs / f"{stored} {step}.safetensors", claims=claim(step))
    assert found.damage == ()
    assert found.evidence["claim_refuted"] is False
    assert bound_of(found)["judged"] is True


@pytest.mark.parametrize(
    ("stored", "step", "said"),
    [
        *product(STORED, [1], [claim(0), claim(1, RATE / 1.1), claim(1, RATE / 10)]),
        *product(STORED, [2], [claim(0), claim(1)]),
        *product(STORED, [20], [claim(1), claim(2), claim(5), claim(20, RATE / 20)]),
    ],
)
def test_a_false_claim_is_refuted(stored: str, step: int, said: Claims, runs: Path) -> None:
    found = judged(runs / f"{stored} {step}.safetensors", claims=said)
    assert found.evidence["claim_refuted"] is True
    assert [caution.kind for caution in found.cautions] == ["claim-refuted"]


@pytest.mark.parametrize("stored", STORED)
def test_step_0_is_told_by_b_and_by_the_reach_of_a(stored: str, runs: Path) -> None:
    evidence = judged(runs / f"{stored} 0.safetensors").evidence["training"]
    training = cast("dict[str, Any]", evidence)
    assert training["start"] == "zero-B"
    assert training["step_0"]["kaiming_consistent"] is True
    assert 0.95 < training["step_0"]["max_abs_A_times_sqrt_inputs"] < 1.01


def test_an_a_that_kaiming_does_not_give_is_told(tmp_path: Path) -> None:
    import numpy as np

    made = adapter(trained=False)
    name = next(n for n in made if "lora_A" in n)
    made[name] = tensor(np.random.default_rng(0), (RANK, HIDDEN), 1.0)
    training = judged_bytes(tmp_path, serialise(made)).evidence["training"]
    assert cast("dict[str, Any]", training)["step_0"]["kaiming_consistent"] is False


@pytest.mark.parametrize(
    "said",
    [
        Claims(step=1, learning_rate=1e-9, optimizer="muon"),
        Claims(step=1, learning_rate=1e-9),
        Claims(step=1, optimizer="adamw"),
        Claims(step=1, learning_rate=float("nan"), optimizer="adamw"),
        Claims(step=-1, learning_rate=1e-9, optimizer="adamw"),
        Claims(step=10**12, learning_rate=1e-9, optimizer="adamw"),
        Claims(step=1, learning_rate=1e-9, optimizer="adamw", init="pissa_niter_16"),
        Claims(step=1, learning_rate=1e-9, optimizer="adamw", init=False),
        Claims(step=1, learning_rate=1e-9, optimizer="adamw_8bit"),
    ],
)
def test_a_claim_that_cannot_be_judged_says_why(said: Claims, tmp_path: Path) -> None:
    found = judged_bytes(tmp_path, serialise(adapter()), said)
    assert found.evidence["claim_refuted"] is False
    assert bound_of(found)["judged"] is False
    assert bound_of(found)["reason"]


@pytest.mark.parametrize("step", [1, 2, 10, 3000])
def test_gradients_that_grow_reach_the_bound_of_a_step(step: int) -> None:
    import torch

    value = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    optimizer: Any = torch.optim.AdamW([value], lr=1.0, weight_decay=0.0, eps=0.0)
    before = 0.0
    for number in range(step):
        before = value.item()
        value.grad = torch.full((1,), (0.999 / 0.9) ** number, dtype=torch.float64)
        optimizer.step()
    assert abs(value.item() - before) == pytest.approx(step_bound(step), rel=1e-9)
    if step == 3000:  # so that the 3.16 of a lone gradient is no bound
        assert abs(value.item() - before) > 5


def test_the_bound_of_one_step_is_the_learning_rate_and_never_falls() -> None:
    assert adamw_bound(1, RATE) == pytest.approx(RATE, rel=1e-4)
    bounds = [adamw_bound(step, RATE) for step in range(1, 200)]
    assert bounds == sorted(bounds)
    assert step_bound(10**6) == pytest.approx(7.27, abs=0.01)
