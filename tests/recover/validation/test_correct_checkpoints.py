"""What PEFT and transformers themselves write is OK, whatever of their features was used."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import peft_adapters
import pytest
from peft_adapters import ADAPTERS, MODELS, save_adapter, save_base, save_full

from reefkit.recover.adapter.statement import Recipe, Source, Statement
from reefkit.recover.base.model import Base
from reefkit.recover.base.open import open_base
from reefkit.recover.open_checkpoint import open_checkpoint
from reefkit.recover.validate import Claims, Request, validate
from reefkit.recover.validation.result import Validation

# These save fewer modules than the base has, or more: only the configuration can tell.
NEED_THE_CONFIG = {"some-layers", "excluded", "layer-replication", "block-diagonal"}


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Base]:
    folder = tmp_path_factory.mktemp("bases")
    return {name: open_base(str(save_base(name, folder / name))) for name in MODELS}


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("adapters")
    return {name: save_adapter(case, folder / name) for name, case in ADAPTERS.items()}


def judged(folder: Path, request: Request, *, config: bool = True) -> Validation:
    with open_checkpoint(str(folder)) as checkpoint:
        if not config:
            checkpoint = replace(checkpoint, adapter_config=None)
        return validate(checkpoint, request)


def faults(result: Validation) -> dict[str, object]:
    names = ("missing", "unexpected", "mismatched", "config_faults", "renames", "damage")
    return {name: found for name in names if (found := getattr(result, name))}


@pytest.mark.parametrize("name", ADAPTERS)
def test_a_correct_adapter_is_ok(
    name: str, adapters: dict[str, Path], bases: dict[str, Base]
) -> None:
    case = ADAPTERS[name]
    claims = Claims() if case.trained else Claims(step=0)
    result = judged(adapters[name], Request(bases[case.model], claims=claims))
    assert faults(result) == {}
    assert result.ok
    assert result.modules.effective == (result.modules.expected if case.trained else 0)


@pytest.mark.parametrize("name", sorted(ADAPTERS.keys() - NEED_THE_CONFIG))
def test_a_correct_adapter_is_ok_without_its_config(
    name: str, adapters: dict[str, Path], bases: dict[str, Base]
) -> None:
    result = judged(adapters[name], Request(bases[ADAPTERS[name].model]), config=False)
    assert faults(result) == {}
    assert result.ok
    assert any("adapter_config.json" in text for text in result.not_checked)


@pytest.mark.parametrize("name", sorted(NEED_THE_CONFIG))
def test_what_only_the_config_can_tell_is_not_ok_without_it(
    name: str, adapters: dict[str, Path], bases: dict[str, Base]
) -> None:
    assert not judged(adapters[name], Request(bases[ADAPTERS[name].model]), config=False).ok


def test_stated_layers_stand_in_for_the_config(
    adapters: dict[str, Path], bases: dict[str, Base]
) -> None:
    stated = {"target_modules": list(peft_adapters.SEVEN), "layers_to_transform": [0, 2]}
    recipe = Recipe(
        "recipe",
        "somebody",
        None,
        tuple(Statement(k, v, Source.STATED, "recipe:1") for k, v in stated.items()),  # type: ignore[arg-type]
    )
    request = Request(bases["qwen3"], recipes=(recipe,))
    assert judged(adapters["some-layers"], request, config=False).ok


def test_the_resized_vocabulary_is_told_with_both_numbers(
    adapters: dict[str, Path], bases: dict[str, Base]
) -> None:
    result = judged(adapters["resized-vocabulary"], Request(bases["qwen3"]))
    (caution,) = (w for w in result.warnings if w.kind == "resized-vocabulary")
    assert "100" in caution.message
    assert "96" in caution.message


def test_a_stated_rank_of_which_the_conversion_is_twice_is_explained(
    adapters: dict[str, Path], bases: dict[str, Base]
) -> None:
    def stated(**fields: object) -> Request:
        statements = tuple(
            Statement(key, value, Source.STATED, "recipe:1")  # type: ignore[arg-type]
            for key, value in {"target_modules": peft_adapters.SEVEN, "r": 4, **fields}.items()
        )
        return Request(bases["qwen3"], recipes=(Recipe("recipe", "x", None, statements),))

    folder = adapters["pissa-converted"]
    explained = judged(folder, stated(init_lora_weights="pissa"), config=False)
    assert explained.ok
    assert "converted-rank" in {warning.kind for warning in explained.warnings}
    contradicted = judged(folder, stated(), config=False)
    assert {fault.field for fault in contradicted.config_faults} == {"r"}
    assert len(contradicted.mismatched) == 42


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("shard_size", ["5GB", "20KB"])
def test_a_correct_full_checkpoint_is_ok(
    name: str, shard_size: str, bases: dict[str, Base], tmp_path: Path
) -> None:
    folder = save_full(name, tmp_path / name, shard_size=shard_size)
    result = judged(folder, Request(bases[name]))
    assert faults(result) == {}
    assert result.ok
    assert result.expected == result.found


def test_a_full_checkpoint_is_ok_against_its_own_headers(tmp_path: Path) -> None:
    folder = save_full("moe", tmp_path / "moe")
    result = judged(folder, Request(open_base(str(folder))))
    assert result.ok
    assert {e.present for e in result.experts} == {4}


@pytest.mark.parametrize("name", ["bf16", "moe-fused", "gpt2"])
def test_only_headers_are_read_when_asked(
    name: str, adapters: dict[str, Path], bases: dict[str, Base], tmp_path: Path
) -> None:
    """Content that would be damage goes unseen, and the result says that it was not looked at."""
    source = adapters[name] / "adapter_model.safetensors"
    data = bytearray(source.read_bytes())
    data[-4096:] = bytes(4096)
    (tmp_path / source.name).write_bytes(data)
    config = (adapters[name] / "adapter_config.json").read_text()
    (tmp_path / "adapter_config.json").write_text(config)
    request = Request(bases[ADAPTERS[name].model], headers_only=True)
    result = judged(tmp_path, request)
    assert result.ok
    assert any(text.startswith("Content") for text in result.not_checked)
    assert json.loads(config)["peft_type"] == "LORA"
