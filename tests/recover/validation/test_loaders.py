from __future__ import annotations

import contextlib
import io
import json
import logging
import warnings
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import peft_adapters
import pytest

from reefkit.recover.adapter.naming.prefixes import diagnose
from reefkit.recover.adapter.structure import read_adapter
from reefkit.recover.base.from_config import base_from_config
from reefkit.recover.base.model import Base
from reefkit.recover.formats.safetensors import Tensor, parse_header
from reefkit.recover.validation.loading.finding import (
    FULL,
    OF_ADAPTERS,
    PEFT,
    RESUME,
    SGLANG,
    TRANSFORMERS,
    VLLM,
    LoaderFinding,
    Outcome,
)
from reefkit.recover.validation.loading.report import loader_report
from reefkit.recover.validation.result import Damage, DamageClass, Kind, Mismatch, Validation

P = "base_model.model."
SEVEN = peft_adapters.SEVEN
LORA: dict[str, Any] = {"target_modules": SEVEN}
RANK = {Outcome.LOADS: 0, Outcome.SILENT: 0, Outcome.WARNS: 1, Outcome.RAISES: 2}
Tensors = dict[str, Any]


def libraries(*names: str) -> list[Any]:
    return [import_module(name) for name in names]


def same(tensors: Tensors) -> Tensors:
    return tensors


def renamed(change: Callable[[str], str]) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {change(name): tensor for name, tensor in tensors.items()}


def kept(condition: Callable[[str], bool]) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {n: t for n, t in tensors.items() if condition(n)}


def with_weight(name: str) -> Callable[[Tensors], Tensors]:
    (torch,) = libraries("torch")
    return lambda tensors: {**tensors, name: torch.zeros(96, 32)}


@dataclass(frozen=True)
class Fault:
    """A correct adapter, and what is done to its tensors, its config and its base."""

    tensors: Callable[[Tensors], Tensors] = same
    config: tuple[tuple[str, Any], ...] = ()
    without: tuple[str, ...] = ()
    lora: tuple[tuple[str, Any], ...] = ()
    layers: int = 3
    model: str = "qwen3"
    wrong_output: bool = True


def config(**values: Any) -> tuple[tuple[str, Any], ...]:
    return tuple(values.items())


FAULTS: dict[str, Fault] = {
    "none": Fault(wrong_output=False),
    "no config": Fault(without=("*",)),
    "no peft_type": Fault(without=("peft_type",)),
    "lower case": Fault(config=config(peft_type="lora")),
    "odd task": Fault(config=config(task_type="X")),
    "alpha null": Fault(config=config(lora_alpha=None)),
    "alpha text": Fault(config=config(lora_alpha="16")),
    "alpha missing": Fault(without=("lora_alpha",), lora=config(lora_alpha=16)),
    "alpha 0": Fault(config=config(lora_alpha=0)),
    "targets missing": Fault(without=("target_modules",)),
    "narrow": Fault(config=config(target_modules=["q_proj"])),
    "misspelt": Fault(config=config(target_modules=[*SEVEN[1:], "q_prj"])),
    "excluded": Fault(config=config(exclude_modules=["up_proj"])),
    "layers too short": Fault(config=config(layers_to_transform=[0, 1])),
    "no target": Fault(config=config(target_modules=["nope"])),
    "broken pattern": Fault(config=config(target_modules="((")),
    "wide": Fault(config=config(target_modules=[*SEVEN, "lm_head"]), wrong_output=False),
    "r wrong": Fault(config=config(r=8)),
    "rank_pattern wrong": Fault(config=config(rank_pattern={"up_proj": 2})),
    "idle rank_pattern": Fault(config=config(rank_pattern={"nope": 2}), wrong_output=False),
    "idle alpha_pattern": Fault(config=config(alpha_pattern={"nope": 2}), wrong_output=False),
    "unknown field": Fault(config=config(future=1), wrong_output=False),
    "saved missing": Fault(config=config(modules_to_save=["lm_head"])),
    "layer missing": Fault(kept(lambda name: ".layers.1." not in name)),
    "lone A": Fault(kept(lambda name: "layers.0.mlp.up_proj.lora_B" not in name)),
    "nothing": Fault(kept(lambda name: False)),
    "no prefix": Fault(renamed(lambda name: name[len(P) :])),
    "doubled": Fault(renamed(lambda name: P + name)),
    "compiled": Fault(renamed(lambda name: name.replace(P, f"{P}_orig_mod."))),
    "in default": Fault(
        renamed(lambda name: name.replace(".weight", ".default.weight")), wrong_output=False
    ),
    "in run7": Fault(renamed(lambda name: name.replace(".weight", ".run7.weight"))),
    "wrong path": Fault(renamed(lambda name: name.replace("model.layers", "text.layers"))),
    "head replaced": Fault(with_weight(f"{P}lm_head.weight")),
    "head named": Fault(  # what was trained is left out, and the rest is right
        with_weight(f"{P}lm_head.modules_to_save.default.weight"), wrong_output=False
    ),
    "whole numbers": Fault(lambda tensors: {n: t.char() for n, t in tensors.items()}),
    "not a number": Fault(lambda tensors: {n: t * float("nan") for n, t in tensors.items()}),
    "dora unsaid": Fault(lora=config(use_dora=True), config=config(use_dora=False)),
    "dora unheld": Fault(config=config(use_dora=True)),
    "bias unsaid": Fault(lora=config(lora_bias=True), config=config(lora_bias=False)),
    "tokens unsaid": Fault(
        lora=config(trainable_token_indices=[1, 2]), config=config(trainable_token_indices=None)
    ),
    "pissa": Fault(config=config(init_lora_weights="pissa")),
    "corda": Fault(config=config(init_lora_weights="corda")),
    "loftq": Fault(config=config(init_lora_weights="loftq")),
    "layers of a pattern": Fault(config=config(target_modules=".*q_proj", layers_to_transform=[0])),
    "pattern of no layers": Fault(config=config(layers_pattern="layers")),
    "layers beyond the last": Fault(config=config(layer_replication=[[0, 9]])),
    "gpt2 replicated": Fault(
        model="gpt2",
        lora=config(target_modules=["c_attn"]),
        config=config(layer_replication=[[0, 1], [0, 2]]),
    ),
    "tokens of nothing": Fault(config=config(trainable_token_indices={"x": [1]})),
    "token beyond the last": Fault(config=config(trainable_token_indices=[5000])),
    "unknown init": Fault(config=config(init_lora_weights="nope")),
    "init of a list": Fault(config=config(init_lora_weights=[1])),
    "odd rank of orthogonal": Fault(config=config(init_lora_weights="orthogonal", r=3)),
    "dora with bias": Fault(config=config(use_dora=True, lora_bias=True)),
    "dropout 2": Fault(config=config(lora_dropout=2.0)),
    "no targets": Fault(config=config(target_modules=[])),
    "eva": Fault(config=config(init_lora_weights="eva"), wrong_output=False),
    "fewer layers": Fault(layers=2),
    "more layers": Fault(layers=4),
    "gpt2": Fault(model="gpt2", lora=config(target_modules=["c_attn"]), wrong_output=False),
    "gpt2 narrow": Fault(
        model="gpt2",
        lora=config(target_modules=["c_attn", "c_fc"]),
        config=config(target_modules=["c_fc"]),
    ),
    "moe parameters unsaid": Fault(
        model="moe",
        lora=config(target_modules=["q_proj"], target_parameters=["mlp.experts.down_proj"]),
        config=config(target_parameters=None),
    ),
    "moe fused": Fault(model="moe", wrong_output=False),
    "moe parameters": Fault(
        model="moe",
        lora=config(target_modules=["q_proj"], target_parameters=["mlp.experts.down_proj"]),
        wrong_output=False,
    ),
}


def model(name: str, layers: int = 3) -> Any:
    if layers == 3:
        return peft_adapters.model(name).float()
    family, settings = peft_adapters.MODELS[name]
    peft_adapters.MODELS["resized"] = (family, {**settings, "num_hidden_layers": layers})
    return peft_adapters.model("resized").float()


def base_of(name: str, layers: int) -> Base:
    made = model(name, layers).config
    return base_from_config({**made.to_dict(), "architectures": made.architectures}, name)


def output(wrapped: Any) -> Any:
    (torch,) = libraries("torch")
    with torch.no_grad():
        return wrapped(torch.arange(8).reshape(1, 8)).logits


def save(fault: Fault, folder: Path) -> tuple[Path, Any]:
    """Write the spoiled adapter, and give what the right one puts out."""
    peft, files = libraries("peft", "safetensors.torch")
    settings = {**LORA, **dict(fault.lora)}
    case = peft_adapters.Case(fault.model, settings, "float32")
    settings.pop("lora_alpha", None)
    peft_adapters.save_adapter(replace(case, lora=settings), folder)
    path = folder / "adapter_model.safetensors"
    document = json.loads((folder / "adapter_config.json").read_text())
    trained = {  # peft_adapters leaves them as they are in the base
        n: t + 1 if "trainable_tokens" in n else t for n, t in files.load_file(path).items()
    }
    files.save_file(trained, path, {"format": "pt"})
    document["lora_alpha"] = dict(fault.lora).get("lora_alpha", 64)
    (folder / "adapter_config.json").write_text(json.dumps(document))
    with quiet():
        right = output(peft.PeftModel.from_pretrained(model(fault.model), str(folder)))
    files.save_file(fault.tensors(files.load_file(path)), path, {"format": "pt"})
    document.update(fault.config)
    for key in fault.without:
        document.pop(key, None)
    (folder / "adapter_config.json").write_text(json.dumps(document))
    if "*" in fault.without:
        (folder / "adapter_config.json").unlink()
    return folder, right


@contextlib.contextmanager
def quiet() -> Generator[None, None, None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def load(loader: str, fault: Fault, folder: Path) -> tuple[Outcome, Any]:
    """Load for real: what the loader does about it, and the model where there is one."""
    (peft,) = libraries("peft")
    said = io.StringIO()
    handler = logging.StreamHandler(said)
    handler.setLevel(logging.WARNING)
    log = logging.getLogger("transformers")
    level = log.level
    bare = model(fault.model, fault.layers)
    if loader == RESUME:
        with quiet():
            names = ["c_attn" if fault.model == "gpt2" else "q_proj"]
            first = peft.LoraConfig(r=4, target_modules=names, task_type="CAUSAL_LM")
            bare = peft.get_peft_model(bare, first)
    with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("always")
        log.addHandler(handler)
        log.setLevel(logging.WARNING)
        try:
            if loader == PEFT:
                loaded = peft.PeftModel.from_pretrained(bare, str(folder))
            elif loader == TRANSFORMERS:
                bare.load_adapter(str(folder))
                loaded = bare
            else:
                loaded = bare
                loaded.load_adapter(str(folder), "other")
                loaded.set_adapter("other")
        except Exception:
            return Outcome.RAISES, None
        finally:
            log.removeHandler(handler)
            log.setLevel(level)
    about = [w for w in caught if w.category in (UserWarning, RuntimeWarning)]
    about = [w for w in about if "PiSSA changes the base weights" not in str(w.message)]
    return (Outcome.WARNS if about or "REPORT" in said.getvalue() else Outcome.SILENT), loaded


def described(fault: Fault, folder: Path) -> tuple[LoaderFinding, ...]:
    """Give the report as `validate` asks for it."""
    tensors = parse_header((folder / "adapter_model.safetensors").read_bytes()).tensors
    base = base_of(fault.model, fault.layers)
    mended = diagnose([t.name for t in tensors], base)
    adapter = read_adapter(replace(t, name=mended.new_name(t.name)) for t in tensors)
    path = folder / "adapter_config.json"
    written = json.loads(path.read_text()) if path.exists() else None
    nan = Damage(DamageClass.NOT_FINITE, "NaN") if fault is FAULTS["not a number"] else None
    validation = judged(tensors=len(tensors), renames=mended.renames, damage=(nan,) if nan else ())
    return loader_report(validation, adapter, written, base)


def judged(kind: Kind = Kind.ADAPTER, tensors: int = 6, **found: Any) -> Validation:
    return Validation("x", kind, "b", "config", tensors, tensors, **found)


def worst(report: tuple[LoaderFinding, ...], loader: str) -> Outcome:
    return max((f.outcome for f in report if f.loader == loader), key=RANK.__getitem__)


@pytest.mark.parametrize("name", FAULTS)
def test_peft_and_transformers_do_what_the_report_says(name: str, tmp_path: Path) -> None:
    (torch,) = libraries("torch")
    fault = FAULTS[name]
    folder, right = save(fault, tmp_path)
    report = described(fault, folder)
    assert all(f.message.endswith(".") for f in report if f.effect)
    for loader in (PEFT, RESUME, TRANSFORMERS):
        outcome, loaded = load(loader, fault, folder)
        assert RANK[worst(report, loader)] == RANK[outcome], (loader, report)
        if outcome is not Outcome.SILENT or fault.layers != 3:
            continue
        objected = worst(report, loader) is not Outcome.LOADS
        differs = not torch.allclose(output(loaded), right, atol=1e-5)
        assert differs <= objected, (loader, "swallows what the report does not tell")
        if objected and loader == PEFT:
            assert differs == fault.wrong_output, (loader, report)


BASE = base_from_config(
    {
        **peft_adapters.MODELS["qwen3"][1],
        "model_type": "qwen3",
        "architectures": ["Qwen3ForCausalLM"],
        "num_hidden_layers": 1,
    },
    "qwen3",
)
CONFIG: dict[str, Any] = {
    "peft_type": "LORA",
    "r": 8,
    "lora_alpha": 16,
    "target_modules": ["q_proj", "k_proj", "v_proj"],
}


def tensors(*kinds: str, rank: int = 8) -> list[Tensor]:
    chosen = [m for m in BASE.modules.values() if m.name.rpartition(".")[2] in kinds]
    return [
        Tensor(f"{P}{m.name}.lora_{x}.weight", "BF16", shape, 0, 0)
        for m in chosen
        for x, shape in (("A", (rank, m.inputs)), ("B", (m.outputs, rank)))
    ]


QKV = tensors("q_proj", "k_proj", "v_proj")


def report(
    changes: dict[str, Any] | None = None,
    found: list[Tensor] | None = None,
    base: Base | None = BASE,
    **more: Any,
) -> dict[str, list[LoaderFinding]]:
    config = {k: v for k, v in {**CONFIG, **(changes or {})}.items() if v is not ...}
    findings = loader_report(judged(**more), read_adapter(found or QKV), config, base)
    return {loader: [f for f in findings if f.loader == loader] for loader in OF_ADAPTERS}


def test_a_right_adapter_loads_everywhere() -> None:
    for findings in report().values():
        assert [f.outcome for f in findings] == [Outcome.LOADS]


@pytest.mark.parametrize(
    ("loader", "changes", "found", "outcome", "message"),
    [
        (VLLM, {"lora_alpha": ...}, None, Outcome.RAISES, "Missing required configuration fields"),
        (VLLM, {"modules_to_save": ["lm_head"]}, None, Outcome.RAISES, "supports modules_to_save"),
        (VLLM, {"use_dora": True}, None, Outcome.RAISES, "vLLM does not yet support DoRA."),
        (VLLM, {"r": 32}, None, Outcome.RAISES, "LoRA rank 32 is greater than max_lora_rank 16."),
        (VLLM, {"rank_pattern": {"q_proj": 4}}, None, Outcome.SILENT, "rank_pattern is not read"),
        (
            VLLM,
            {},
            [*QKV, Tensor(f"{P}lm_head.weight", "BF16", (96, 32), 0, 0)],
            Outcome.RAISES,
            "lm_head.weight is unsupported LoRA weight",
        ),
        (SGLANG, {"use_rslora": True}, None, Outcome.SILENT, "use_rslora is not read"),
        (SGLANG, {"alpha_pattern": {"q_proj": 4}}, None, Outcome.SILENT, "is not read"),
        (SGLANG, {}, tensors("q_proj", "k_proj"), Outcome.RAISES, "KeyError: "),
        (SGLANG, {}, tensors("gate_proj"), Outcome.RAISES, "up_proj.lora_A.weight"),
        (SGLANG, {"target_modules": ...}, None, Outcome.RAISES, "KeyError: 'target_modules'"),
    ],
)  # fmt: skip
def test_servers_do_what_their_sources_say(
    loader: str,
    changes: dict[str, Any],
    found: list[Tensor] | None,
    outcome: Outcome,
    message: str,
) -> None:
    findings = report(changes, found)[loader]
    assert (outcome, True) in [(f.outcome, message in f.message) for f in findings]


@pytest.mark.parametrize(
    ("before", "after", "outcome"),
    [
        (P, "", Outcome.LOADS),
        (P, P + P, Outcome.LOADS),
        (P, f"{P}_orig_mod.", Outcome.SILENT),
        ("model.layers", "text.layers", Outcome.SILENT),
        (".weight", ".default.weight", Outcome.RAISES),
    ],
)
def test_vllm_takes_prefixes_in_its_own_way(before: str, after: str, outcome: Outcome) -> None:
    renames = diagnose([t.name.replace(before, after, 1) for t in QKV], BASE).renames
    assert renames
    assert [f.outcome for f in report(renames=renames)[VLLM]] == [outcome]


def test_without_a_base_nothing_is_said_about_targets() -> None:
    findings = report({"target_modules": ["nope"]}, base=None)
    assert [f.outcome for f in findings[PEFT]] == [Outcome.LOADS]


def test_a_wrong_shape_raises() -> None:
    wrong = (Mismatch(QKV[0].name, "shape", "[8, 32]", "[8, 64]"),)
    findings = report(mismatched=wrong)
    assert "size mismatch" in findings[PEFT][0].message and QKV[0].name in findings[PEFT][0].message
    dtype = (Mismatch(QKV[0].name, "dtype", "BF16", "F32"),)
    assert report(mismatched=dtype)[PEFT][0].outcome is Outcome.LOADS


def test_nothing_that_loads_means_the_output_of_the_base() -> None:
    findings = report({"target_modules": ["o_proj"]})
    effects = {f.effect for f in findings[PEFT]}
    assert "the output equals the base model's" in effects


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [(DamageClass.TRUNCATED, Outcome.RAISES), (DamageClass.ZERO_TAIL, Outcome.SILENT)],
)
def test_damage_is_noticed_by_all_or_by_none(kind: DamageClass, outcome: Outcome) -> None:
    for findings in report(damage=(Damage(kind, "So it is."),)).values():
        assert [(f.outcome, f.effect) for f in findings] == [(outcome, "So it is.")]


@pytest.mark.parametrize(
    ("found", "outcomes"),
    [
        ({}, [Outcome.LOADS]),
        ({"missing": ("a",), "unexpected": ("b",)}, [Outcome.WARNS, Outcome.WARNS]),
        ({"mismatched": (Mismatch("a", "shape", "", ""),)}, [Outcome.RAISES]),
        ({"mismatched": (Mismatch("a", "dtype", "", ""),)}, [Outcome.SILENT]),
        ({"damage": (Damage(DamageClass.NOT_FINITE, "NaN."),)}, [Outcome.SILENT]),
    ],
)
def test_transformers_takes_full_checkpoints(
    found: dict[str, Any], outcomes: list[Outcome]
) -> None:
    findings = loader_report(judged(Kind.FULL, **found))
    assert [f.outcome for f in findings] == outcomes
    assert {f.loader for f in findings} == {FULL}


def test_a_foreign_naming_fits_nothing() -> None:
    findings = loader_report(judged(naming="torchtune"), None, CONFIG, BASE)
    said = {(f.loader, f.outcome) for f in findings}
    assert said >= {(PEFT, Outcome.WARNS), (RESUME, Outcome.SILENT), (VLLM, Outcome.RAISES)}
    assert not any(f.outcome is Outcome.LOADS for f in findings)


def test_servers_take_no_method_but_lora() -> None:
    findings = loader_report(judged(method="IA3"), None, {"peft_type": "IA3"}, BASE)
    assert [(f.loader, f.outcome) for f in findings] == [
        (VLLM, Outcome.RAISES),
        (SGLANG, Outcome.RAISES),
    ]


def test_what_is_unknown_gets_no_report() -> None:
    assert loader_report(judged(Kind.UNKNOWN)) == ()


@pytest.mark.parametrize(
    "changes",
    [
        {"r": "many", "lora_alpha": [], "target_modules": {"a": 1}, "rank_pattern": [1]},
        {"modules_to_save": 7, "task_type": ["x"], "peft_type": {"a": 1}},
        {"target_parameters": 3, "init_lora_weights": [1], "rank_pattern": {"((": 1}},
        {"rank_pattern": {"(a|a)*" * 9: 1, "q_proj": "x"}, "bias": {}},
        {"alpha_pattern": {"((": 1}},
        {"layers_to_transform": {}, "exclude_modules": 9, "trainable_token_indices": "x"},
    ],
)
def test_a_hostile_config_is_reported_and_raises_nothing(changes: dict[str, Any]) -> None:
    findings = [f for each in report(changes).values() for f in each]
    assert findings and all(json.dumps(f.to_json()) for f in findings)


def test_names_from_outside_are_printable() -> None:
    odd = Tensor(f"{P}model.layers.0.\x1b[2J.lora_A.weight", "BF16", (8, 8), 0, 0)
    findings = [f for each in report({"\x1b[2J": 1}, [*QKV, odd]).values() for f in each]
    assert all((f.message + f.effect).isprintable() for f in findings)


# Their bases are not what `load` makes: one has more rows, one a classifier's head.
OTHER_BASES = {"resized-vocabulary", "classifier"}


@pytest.mark.parametrize("name", sorted(peft_adapters.ADAPTERS.keys() - OTHER_BASES))
def test_no_right_adapter_is_accused(name: str, tmp_path: Path) -> None:
    case = peft_adapters.ADAPTERS[name]
    fault = Fault(model=case.model)
    peft_adapters.save_adapter(case, tmp_path)
    said = described(fault, tmp_path)
    for loader in (PEFT, TRANSFORMERS):
        assert RANK[worst(said, loader)] == RANK[load(loader, fault, tmp_path)[0]], (loader, said)
    swallowed = [f.message for f in said if f.loader == PEFT and f.outcome is Outcome.SILENT]
    assert not swallowed or (name == "olora" and "init_lora_weights" in swallowed[0])


@pytest.mark.parametrize("name", sorted(OTHER_BASES))
def test_nor_is_one_of_an_unusual_base(name: str, tmp_path: Path) -> None:
    case = peft_adapters.ADAPTERS[name]
    peft_adapters.save_adapter(case, tmp_path)
    said = described(Fault(model=case.model), tmp_path)
    assert [f.outcome for f in said if f.loader == PEFT] == [Outcome.LOADS]
