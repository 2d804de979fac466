from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import peft_adapters
import pytest
from peft_adapters import ADAPTERS

from reefkit.errors import Unusable
from reefkit.recover.base.from_config import base_from_config
from reefkit.recover.base.model import Base, BaseSource
from reefkit.recover.formats.safetensors import Tensor, parse_header
from reefkit.recover.rehearsal import write_adapter, write_base_and_recipe
from reefkit.recover.validation.loading import load_check as module
from reefkit.recover.validation.loading.load_child import check

P = "base_model.model."


def load_check(
    tensors: Iterable[Tensor], config: dict[str, Any] | None, base: Base
) -> dict[str, Any]:
    return module.load_check(tensors, config, base)


QWEN3: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": 96,
    "hidden_size": 32,
    "num_hidden_layers": 2,
}
SEVEN = peft_adapters.SEVEN


def asked_here(request: dict[str, Any]) -> dict[str, object]:
    return check(json.loads(json.dumps(request)))


@pytest.fixture(autouse=True)
def in_process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spare each test the 3 seconds of a new process; three tests at the end have real ones."""
    if "real_process" not in request.fixturenames:
        monkeypatch.setattr(module, "_ask", asked_here)


@pytest.fixture
def real_process() -> None:
    """Let the libraries run in the process of their own."""


def tensors_of(folder: Path, name: str = "adapter_model.safetensors") -> tuple[Tensor, ...]:
    return parse_header((folder / name).read_bytes()).tensors


def base_of(name: str, folder: Path) -> Base:
    return base_from_config(json.loads(peft_adapters.save_base(name, folder).read_text()), name)


def saved(name: str, tmp_path: Path) -> tuple[tuple[Tensor, ...], dict[str, Any], Base]:
    case = ADAPTERS[name]
    folder = peft_adapters.save_adapter(case, tmp_path / "adapter")
    config = json.loads((folder / "adapter_config.json").read_text())
    return tensors_of(folder), config, base_of(case.model, tmp_path / "base")


@pytest.mark.parametrize("name", ADAPTERS)
def test_what_peft_saved_loads_without_a_key_too_many_or_too_few(name: str, tmp_path: Path) -> None:
    result = load_check(*saved(name, tmp_path))
    assert (result["missing"], result["unexpected"], result["errors"]) == ([], [], [])
    assert result["ok"] is True


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, Any]:
    return saved("bf16", tmp_path_factory.mktemp("plain"))


def test_a_missing_layer_is_listed_by_the_names_on_disk(plain: tuple[Any, Any, Any]) -> None:
    tensors, config, base = plain
    result = load_check([t for t in tensors if ".layers.2." not in t.name], config, base)
    assert result["missing"] == sorted(t.name for t in tensors if ".layers.2." in t.name)
    assert (result["ok"], result["unexpected"], result["errors"]) == (False, [], [])


@pytest.mark.parametrize(
    ("before", "after"),
    [(P, ""), (P, P + P), (P, f"{P}_orig_mod."), ("lora_A.", "lora_A.default.")],
)
def test_no_prefix_fault_loads(before: str, after: str, plain: tuple[Any, Any, Any]) -> None:
    tensors, config, base = plain
    spoiled = [replace(t, name=t.name.replace(before, after)) for t in tensors]
    result = load_check(spoiled, config, base)
    wrong = sorted(t.name for t in spoiled if t.name not in {good.name for good in tensors})
    assert result["unexpected"] == wrong and len(result["missing"]) == len(wrong)


def test_narrower_targets_leave_tensors_over(plain: tuple[Any, Any, Any]) -> None:
    tensors, config, base = plain
    result = load_check(tensors, {**config, "target_modules": ["q_proj"]}, base)
    assert len(result["unexpected"]) == len(tensors) * 6 // 7
    assert (result["ok"], result["missing"]) == (False, [])


def test_every_wrong_shape_is_collected(plain: tuple[Any, Any, Any]) -> None:
    tensors, config, base = plain
    result = load_check(tensors, {**config, "r": 8}, base)
    assert len(result["errors"]) == len(tensors)
    assert all("size mismatch" in e and "reefkit" not in e for e in result["errors"])
    assert (result["ok"], result["missing"]) == (False, [])


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"lora_alpha": None}, "TypeError: unsupported operand"),
        ({"peft_type": "lora"}, "'lora'"),
        ({"target_modules": ["nope"]}, "NoMatchingPeftModuleError"),
        ({"target_modules": "(("}, "error: "),
        ({"modules_to_save": ["lm_head"]}, "KeyError: 'base_model.model.lm_head.weight'"),
        ({"task_type": "X"}, "ValueError: Invalid task type"),
        ({"r": 10**12}, "Error"),
        ({"r": "many"}, "TypeError"),
        ({"target_modules": {"a": {}}}, "Error"),
    ],
)
def test_what_peft_refuses_is_an_answer(
    change: dict[str, Any], error: str, plain: tuple[Any, Any, Any]
) -> None:
    tensors, config, base = plain
    result = load_check(tensors, {**config, **change}, base)
    assert result["ok"] is False
    assert error in " ".join(result["errors"])


@pytest.mark.parametrize("init", ["pissa", "olora", "corda", "loftq", "eva", "lora_ga"])
def test_inits_that_need_weights_do_not_hinder(init: str, plain: tuple[Any, Any, Any]) -> None:
    tensors, config, base = plain
    assert load_check(tensors, {**config, "init_lora_weights": init}, base)["ok"] is True


def test_a_weight_of_the_base_that_would_be_replaced_is_named(plain: tuple[Any, Any, Any]) -> None:
    tensors, config, base = plain
    head = Tensor(f"{P}lm_head.weight", "F32", (96, 32), 0, 0)
    result = load_check([*tensors, head], config, base)
    assert (result["ok"], result["overwrites"]) == (True, [head.name])


def test_samplers_are_not_checked_and_only_a_config_allows_them(tmp_path: Path) -> None:
    tensors, config, base = saved("monteclora", tmp_path)
    samplers = sorted(t.name for t in tensors if "sampler" in t.name)
    result = load_check(tensors, config, base)
    assert samplers and (result["not_checked"], result["unexpected"]) == (samplers, [])
    result = load_check(tensors, {**config, "monteclora_config": None}, base)
    assert (result["not_checked"], result["unexpected"]) == ([], samplers)


@pytest.mark.parametrize("name", peft_adapters.MODELS)
def test_a_full_checkpoint_of_transformers_holds(name: str, tmp_path: Path) -> None:
    folder = peft_adapters.save_full(name, tmp_path / "full")
    base = base_of(name, tmp_path / "base")
    tensors = tensors_of(folder, "model.safetensors")
    assert load_check(tensors, None, base)["ok"] is True
    first = tensors[0]
    spoiled = [*tensors[1:], Tensor("more.weight", "F32", (1,), 0, 0)]
    result = load_check(spoiled, None, base)
    assert (result["missing"], result["unexpected"]) == ([first.name], ["more.weight"])
    result = load_check([replace(first, shape=(3, 3)), *tensors[1:]], None, base)
    assert [first.name in error for error in result["errors"]] == [True]


def test_gpt2_without_its_prefix_loads_too(tmp_path: Path) -> None:
    folder = peft_adapters.save_full("gpt2", tmp_path / "full")
    tensors = tensors_of(folder, "model.safetensors")
    spelled = [replace(t, name=t.name.removeprefix("transformer.")) for t in tensors]
    assert spelled[0].name != tensors[0].name
    assert load_check(spelled, None, base_of("gpt2", tmp_path / "base"))["ok"] is True


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "of-my-own", "auto_map": {"AutoModel": "evil.Model"}},
        {"model_type": 7},
        {},
        {**QWEN3, "hidden_size": "x"},
        {**QWEN3, "architectures": ["os.system"], "num_hidden_layers": -1},
    ],
)
def test_a_model_that_cannot_be_built_is_an_answer(config: dict[str, Any]) -> None:
    base = Base("odd", BaseSource.CONFIG, None, {}, {}, config=config)
    result = load_check([Tensor("a.weight", "F32", (1,), 0, 0)], None, base)
    assert result["ok"] is False


def test_a_base_without_a_config_is_unusable() -> None:
    with pytest.raises(Unusable, match=r"no config\.json"):
        load_check([], {}, Base("bare", BaseSource.HEADERS, None, {}, {}))


def test_absent_libraries_are_named_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def spec(name: str) -> ModuleSpec | None:
        return None if name == "peft" else find_spec(name)

    monkeypatch.setattr(module, "find_spec", spec)
    with pytest.raises(Unusable, match="needs peft") as caught:
        load_check([], {}, Base("b", BaseSource.CONFIG, None, {}, {}, config={}))
    assert caught.value.remedy == "pip install 'reefkit[peft]'"


# The largest process below a small one: a fork of the tests' own process would count as large.
MEASURED = """
import resource, subprocess, sys
code = subprocess.call([sys.executable, "-m", "reefkit.cli", *sys.argv[1:]])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
sys.exit(code)
"""


def test_qwen3_8b_needs_neither_its_weights_nor_the_network(tmp_path: Path) -> None:
    write_adapter(tmp_path / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": 32, "lora_alpha": 32, "target_modules": SEVEN}
    config["base_model_name_or_path"] = "Qwen/Qwen3-8B"
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    base, _ = write_base_and_recipe(tmp_path)
    asked = ["validate", str(tmp_path / "adapter_model.safetensors"), "--base", str(base)]
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *asked, "--headers-only", "--load-check", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    document = json.loads(done.stdout)
    assert (done.returncode, document["load_check"]["ok"]) == (0, True), document
    kib = int(done.stderr.split()[-1])
    assert kib < 1 << 20


def test_the_working_folder_is_not_imported_from(
    real_process: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    plain: tuple[Any, Any, Any],
) -> None:
    (tmp_path / "torch.py").write_text("raise SystemExit('the working folder was imported')")
    monkeypatch.chdir(tmp_path)
    assert load_check(*plain)["ok"]


def test_a_process_that_hangs_is_given_up(
    real_process: None, monkeypatch: pytest.MonkeyPatch, plain: tuple[Any, Any, Any]
) -> None:
    tensors, config, base = plain
    monkeypatch.setattr(module, "_SECONDS", 0.2)
    with pytest.raises(Unusable, match="took longer"):
        load_check(tensors, config, base)


def test_a_process_that_dies_is_unusable_and_no_traceback(
    real_process: None, monkeypatch: pytest.MonkeyPatch, plain: tuple[Any, Any, Any]
) -> None:
    tensors, config, base = plain
    monkeypatch.setattr(module, "_ENVIRONMENT", {"PYTHONHOME": "/nowhere"})
    with pytest.raises(Unusable, match="ended with"):
        load_check(tensors, config, base)
