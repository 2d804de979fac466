"""Every correct checkpoint is OK, every damaged or wrong one is not, and the verdict says why."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from faults import ADAPTER_FAULTS, FULL_FAULTS, MOE_FAULTS, Due, spoil
from synthetic import CONFIG, MOE, PREFIX, Work, experts, lora, model, modules, noise, write
from victims import mapping

from reefkit import cli
from reefkit.records.strict_json import Json
from reefkit.recover.adapter.config.settings import read_settings
from reefkit.recover.adapter.statement import Recipe, Source, Statement
from reefkit.recover.base.model import Base
from reefkit.recover.base.open import open_base
from reefkit.recover.open_checkpoint import open_checkpoint
from reefkit.recover.validate import Claims, Request, validate
from reefkit.recover.validation.result import Validation
from reefkit.recover.validation.said import overlay


def base_of(work: Work) -> Base:
    path = work.folder.parent / "base" / "config.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(work.base))
    base = open_base(str(path))
    if work.options.get("typed"):
        typed = {name: tensor._replace(dtype="BF16") for name, tensor in base.tensors.items()}
        base = replace(base, tensors=typed)
    return base


def verdict(work: Work, **changes: Any) -> Validation:
    """Validate as the command does, with the options of the fault."""
    options = work.options
    request = Request(
        base_of(work),
        claims=Claims(step=options.get("step"), learning_rate=options.get("learning_rate")),
        stated=read_settings(options["set"]) if "set" in options else None,
        replicated=options.get("replicated"),
    )
    with open_checkpoint(str(options.get("path", work.folder))) as checkpoint:
        if "reference" not in options:
            return validate(checkpoint, replace(request, **changes))
        with open_checkpoint(str(options["reference"])) as reference:
            return validate(checkpoint, replace(request, reference=reference, **changes))


def place(tmp_path: Path) -> Work:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    return Work(folder)


FAULTS = [
    *(("adapter", name) for name in ADAPTER_FAULTS),
    *(("moe", name) for name in MOE_FAULTS),
    *(("full", name) for name in FULL_FAULTS),
]


@pytest.mark.parametrize(("kind", "name"), FAULTS)
def test_a_fault_is_named(kind: str, name: str, tmp_path: Path) -> None:
    work = place(tmp_path)
    due = spoil(work, kind, name)
    result = verdict(work)
    assert not result.ok
    assert problems(result, due) == []
    json.dumps(result.to_json(), allow_nan=False)


def problems(result: Validation, due: Due) -> list[str]:
    """Say in what a verdict differs from what is due."""
    found: list[str] = []
    if due.damage is not None or due.tensor is not None:
        fitting = [
            one
            for one in result.damage
            if due.damage in (None, one.kind.value)
            and due.tensor in (None, one.tensor)
            and due.offset in (None, one.offset)
            and due.nbytes in (None, one.bytes)
        ]
        if not fitting:
            found.append(f"damage {[d.to_json() for d in result.damage][:4]}")
    for name in ("missing", "unexpected", "mismatched"):
        count = getattr(due, name)
        if count is not None and len(getattr(result, name)) != count:
            found.append(f"{name} {len(getattr(result, name))}: {getattr(result, name)[:3]}")
    if due.field is not None and due.field not in {f.field for f in result.config_faults}:
        found.append(f"faults {result.config_faults}")
    if due.rename is not None and due.rename not in {r.fault for r in result.renames}:
        found.append(f"renames {result.renames}")
    if due.naming is not None and result.naming != due.naming:
        found.append(f"naming {result.naming}")
    if due.method is not None and result.method != due.method:
        found.append(f"method {result.method}")
    if due.effective is not None and result.modules.effective != due.effective:
        found.append(f"modules {result.modules}")
    if due.experts is not None and tuple(e.present for e in result.experts) != due.experts:
        found.append(f"experts {result.experts}")
    return found


def test_the_corpus_is_as_large_as_promised() -> None:
    assert len(FAULTS) >= 60


# --- correct ones that PEFT was not needed for ---------------------------------------------------


def correct_adapter(work: Work) -> None:
    work.tensors = lora(modules(work.base))
    work.save()


def experts_one_by_one(work: Work) -> None:
    work.base = dict(MOE)
    work.tensors = lora({**modules(MOE), **experts(MOE)})
    work.save()


def experts_with_a_normalised_rank(work: Work) -> None:
    work.base = dict(MOE)
    work.tensors = {**lora(modules(MOE), 8), **lora(experts(MOE), 4)}
    work.options["set"] = ("normalize_moe_lora=true", "r=8")
    work.save()


def router_among_the_experts(work: Work) -> None:
    work.base = dict(MOE)
    gates = {f"model.layers.{layer}.mlp.gate": (512, 4) for layer in range(2)}
    work.tensors = lora({**modules(MOE), **experts(MOE), **gates})
    work.config = {**CONFIG, "target_modules": [*CONFIG["target_modules"], "gate"]}
    work.save()


def full_model(work: Work) -> None:
    write(work.folder / "model.safetensors", model(work.base))


def full_model_without_its_tied_head(work: Work) -> None:
    work.base["tie_word_embeddings"] = True
    full_model(work)


def full_model_with_its_tied_head(work: Work) -> None:
    work.base["tie_word_embeddings"] = True
    tensors = model(work.base)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    write(work.folder / "model.safetensors", tensors)


def full_model_cast_to_single_precision(work: Work) -> None:
    work.options["typed"] = True
    tensors = {n: noise(p.shape, n, "F32") for n, p in model(work.base).items()}
    write(work.folder / "model.safetensors", tensors)


def full_model_in_eight_bits(work: Work) -> None:
    tensors = model(work.base)
    for name, piece in list(tensors.items()):
        if "_proj" in name:
            tensors[name] = noise(piece.shape, name, "F8_E4M3")
            scales = tuple(-(-size // 128) for size in piece.shape)
            tensors[f"{name}_scale_inv"] = noise(scales, f"{name} scale", "F32")
    write(work.folder / "model.safetensors", tensors)


def full_model_of_a_resized_vocabulary(work: Work) -> None:
    write(work.folder / "model.safetensors", model({**work.base, "vocab_size": 520}))


def full_model_quantised_by_gptq(work: Work) -> None:
    tensors = model(work.base)
    for name in [name for name in tensors if name.endswith("_proj.weight")]:
        outputs, inputs = tensors.pop(name).shape
        stem = name.removesuffix(".weight")
        for leaf, shape, dtype in (
            ("qweight", (inputs // 8, outputs), "I32"),
            ("qzeros", (inputs // 128, outputs // 8), "I32"),
            ("scales", (inputs // 128, outputs), "F16"),
            ("g_idx", (inputs,), "I32"),
        ):
            tensors[f"{stem}.{leaf}"] = noise(shape, f"{stem}{leaf}", dtype)
    write(work.folder / "model.safetensors", tensors)


def full_model_quantised_by_bitsandbytes(work: Work) -> None:
    tensors = model(work.base)
    for name in [name for name in tensors if name.endswith("_proj.weight")]:
        outputs, inputs = tensors[name].shape
        tensors[name] = noise((outputs * inputs // 2, 1), name, "U8")
        tensors[f"{name}.absmax"] = noise((outputs * inputs // 64,), f"{name}a", "F32")
        tensors[f"{name}.quant_map"] = noise((16,), f"{name}q", "F32")
    write(work.folder / "model.safetensors", tensors)


CORRECT = [
    full_model_quantised_by_gptq,
    full_model_quantised_by_bitsandbytes,
    correct_adapter,
    experts_one_by_one,
    experts_with_a_normalised_rank,
    router_among_the_experts,
    full_model,
    full_model_without_its_tied_head,
    full_model_with_its_tied_head,
    full_model_cast_to_single_precision,
    full_model_in_eight_bits,
    full_model_of_a_resized_vocabulary,
]


@pytest.mark.parametrize("make", CORRECT)
def test_a_correct_checkpoint_is_ok(make: Callable[[Work], None], tmp_path: Path) -> None:
    work = place(tmp_path)
    make(work)
    result = verdict(work)
    assert problems(result, Due(missing=0, unexpected=0, mismatched=0)) == []
    assert (result.damage, result.config_faults) == ((), ())
    assert result.ok
    assert result.modules.effective == result.modules.expected > 0


def test_every_expert_is_counted(tmp_path: Path) -> None:
    work = place(tmp_path)
    experts_one_by_one(work)
    result = verdict(work)
    assert [(e.experts, e.present) for e in result.experts] == [(4, 4), (4, 4)]


def test_a_rename_is_proposed_and_the_rest_judged_under_the_new_names(tmp_path: Path) -> None:
    work = place(tmp_path)
    spoil(work, "adapter", "compiled_module")
    result = verdict(work)
    assert not result.ok
    assert (result.missing, result.unexpected) == ((), ())
    assert result.modules.effective == 28


@pytest.mark.parametrize("cut", [0, 7, 8, 100, 4096, 20_000])
def test_a_crash_at_any_point_is_found(cut: int, tmp_path: Path) -> None:
    work = place(tmp_path)
    work.tensors = lora(modules(work.base))
    data = work.save()
    work.path.write_bytes(data[:cut])
    assert not verdict(work).ok
    work.path.write_bytes(data[:cut] + bytes(len(data) - cut))
    assert not verdict(work).ok


def stated(label: str, source: Source = Source.STATED, **fields: Json) -> Recipe:
    found = (Statement(key, value, source, f"{label}:1") for key, value in fields.items())
    return Recipe(label, "somebody", None, tuple(found))


def test_recipes_that_contradict_one_another_are_at_fault() -> None:
    overlaid = overlay(None, [stated("a", r=8), stated("b", r=16), stated("c", r=8)], ())
    (fault,) = overlaid.faults
    assert (fault.field, "a:1" in fault.message, "b:1" in fault.message) == ("r", True, True)


def test_the_command_line_wins_over_recipes_these_over_the_file_and_defaults_fill_gaps() -> None:
    recipes = [stated("a", r=16, lora_alpha=4), stated("b", Source.DEFAULT, r=64, bias="none")]
    overlaid = overlay({"r": 8, "use_dora": True}, recipes, stated("--set", r=32).statements)
    assert overlaid.config == {"r": 32, "lora_alpha": 4, "use_dora": True, "bias": "none"}
    assert overlaid.faults == ()
    assert [caution.kind for caution in overlaid.cautions] == ["recipe-differs"]


def test_targets_in_another_order_are_no_contradiction() -> None:
    recipe = stated("a", target_modules=["v_proj", "q_proj"])
    overlaid = overlay({"target_modules": ["q_proj", "v_proj"]}, [recipe], ())
    assert (overlaid.faults, overlaid.cautions) == ((), ())


# --- the command ---------------------------------------------------------------------------------


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = cli.run(cli.recover, ["validate", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture
def correct(tmp_path: Path) -> Work:
    work = place(tmp_path)
    correct_adapter(work)
    base_of(work)
    return work


def base_path(work: Work) -> Path:
    return work.folder.parent / "base" / "config.json"


def test_the_verdict_comes_first(correct: Work, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, correct.folder, "--base", base_path(correct))
    first = out.splitlines()[0]
    assert (code, err) == (0, "")
    assert first.startswith("OK: adapter ")
    assert "all 56 expected tensors found; 28 of 28 modules effective; rank 8; BF16" in first
    assert "not checked" not in out


def test_a_missing_layer_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    work = place(tmp_path)
    spoil(work, "adapter", "layer_missing")
    base_of(work)
    code, out, _ = run(capsys, work.folder, "--base", base_path(work))
    assert code == 1
    assert out.startswith("NOT OK: ")
    assert "  layer 3: 14 of 14 missing\n" in out


def test_the_document_holds_what_other_programs_read(
    correct: Work, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, correct.folder, "--base", base_path(correct), "--json")
    document = json.loads(out)
    assert code == 0
    assert document["schema"] == "reefkit.validation/1"
    assert document["ok"] is True
    assert (document["expected"], document["found"]) == (56, 56)
    assert document["modules"] == {"expected": 28, "effective": 28}
    keys = ("missing", "unexpected", "mismatched", "damage", "warnings", "config_faults")
    assert all(document[key] == [] for key in keys)
    assert [layer["found"] for layer in document["layers"]] == [14] * 4


def test_a_base_must_be_named_or_declined(
    correct: Work, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, correct.folder)
    assert code == 2
    assert "--no-base" in err
    code, out, _ = run(capsys, correct.folder, "--no-base")
    assert code == 0
    assert "not checked: Names, shapes and coverage" in out
    code, _, err = run(capsys, correct.folder, "--no-base", "--base", base_path(correct))
    assert code == 2


def test_without_a_base_damage_is_still_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    work = place(tmp_path)
    spoil(work, "adapter", "one_nan")
    code, out, _ = run(capsys, work.folder, "--no-base")
    assert code == 1
    assert "not-finite" in out


def test_headers_only_says_what_it_left_out(
    correct: Work, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, correct.folder, "--base", base_path(correct), "--headers-only")
    assert code == 0
    assert "not checked: Content" in out


def test_a_claim_that_cannot_be_judged_is_not_passed_over(
    correct: Work, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = (correct.folder, "--base", base_path(correct), "--step", 8)
    _, out, _ = run(capsys, *arguments)
    assert "not checked: The claimed step" in out
    code, out, _ = run(capsys, *arguments, "--learning-rate", "1e-5")
    assert code == 1
    assert "not checked" not in out


def test_another_configuration_and_a_recipe_can_be_named(
    correct: Work, capsys: pytest.CaptureFixture[str]
) -> None:
    other = correct.folder.parent / "other.json"
    other.write_text(json.dumps({**CONFIG, "r": 16}))
    arguments = (correct.folder, "--base", base_path(correct))
    assert run(capsys, *arguments, "--config", other)[0] == 1
    assert run(capsys, *arguments, "--config", other, "--set", "r=8")[0] == 0
    recipe = correct.folder.parent / "config.yml"
    recipe.write_text(
        "base_model: org/base\nadapter: lora\nlora_r: 16\nlora_alpha: 16\n"
        "lora_target_modules: [q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj]\n"
    )
    code, out, _ = run(capsys, *arguments, "--recipe", recipe)
    assert code == 1
    assert "r is stated as 16, and the tensors have 8" in out
    assert "config.yml" in out


def test_loaders_are_asked_for(correct: Work, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = (correct.folder, "--base", base_path(correct), "--loaders")
    _, out, _ = run(capsys, *arguments)
    assert "vLLM" in out
    _, out, _ = run(capsys, *arguments, "--json")
    assert len(json.loads(out)["loaders"]) >= 5


def test_the_load_check_decides_too(correct: Work, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = (correct.folder, "--base", base_path(correct), "--load-check")
    code, out, _ = run(capsys, *arguments, "--json")
    assert (code, json.loads(out)["load_check"]["ok"]) == (0, True)
    (correct.folder / "adapter_config.json").unlink()
    code, _, err = run(capsys, *arguments)
    assert code == 2
    assert "adapter_config.json" in err


def test_names_are_safe_to_print_and_few_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    work = place(tmp_path)
    work.tensors = lora(modules(work.base))
    names = (f"{PREFIX}x\x1b[2J\u202e{n}{chr(97 + n % 26)}\n.lora_A.weight" for n in range(3000))
    work.tensors |= {name: noise((1, 2), 0) for name in names}
    work.save()
    base_of(work)
    code, out, _ = run(capsys, work.folder, "--base", base_path(work), "--headers-only")
    assert code == 1
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert len(out.splitlines()) < 40
    _, out, _ = run(capsys, work.folder, "--base", base_path(work), "--headers-only", "--json")
    assert len(json.loads(out)["unexpected"]) == 3000


def test_a_file_that_a_process_holds_is_validated(
    correct: Work, capsys: pytest.CaptureFixture[str]
) -> None:
    with mapping({"path": correct.path, "kind": "private"}) as victim:
        pid = victim["process"].pid
        correct.path.unlink()
        code, out, _ = run(
            capsys,
            f"{pid}:*adapter_model.safetensors",
            "--base",
            base_path(correct),
            "--config",
            correct.folder / "adapter_config.json",
        )
    assert code == 0, out
    assert "28 of 28 modules effective" in out
