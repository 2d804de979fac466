"""What an attacker of `rebuild-config` broke once: each with the answer that is right."""

# torch, peft and transformers leave much untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import synthetic
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file

from reefkit.cli import recover, run
from reefkit.errors import Unusable
from reefkit.recover.adapter.config.settings import read_settings
from reefkit.recover.adapter.config.write import Destination, is_ours, write_both

LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
IDENTITY = ["--set", "base_model_name_or_path=example/tiny"]
STATED = [*IDENTITY, "--set", "use_rslora=false", "--set", "lora_alpha=16"]
SIBLING: dict[str, Any] = {
    "peft_type": "LORA",
    "r": 8,
    "lora_alpha": 16,
    "use_rslora": False,
    "target_modules": LINEAR,
    "base_model_name_or_path": "Qwen/Qwen3-8B",
}
SCRIPT = """
from peft import LoraConfig
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("example/tiny")
config = LoraConfig(r=8, lora_alpha=16, target_modules={targets}, {more})
"""


def adapter(folder: Path, base: Mapping[str, Any], tensors: Mapping[str, Any]) -> list[object]:
    """Write an adapter and its base; give the operands that name them."""
    synthetic.write(folder / "a" / "adapter_model.safetensors", tensors)
    (folder / "base.json").write_text(json.dumps(base))
    return [folder / "a", "--base", folder / "base.json"]


def qwen(folder: Path, r: int = 8) -> list[object]:
    return adapter(folder, synthetic.QWEN, synthetic.lora(synthetic.modules(synthetic.QWEN), r))


def recipe(folder: Path, name: str, content: str | Mapping[str, Any]) -> list[object]:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return ["--recipe", path]


def missing(result: Any) -> list[str]:
    return [need["field"] for need in result.document["missing"]]


def conflicts(result: Any) -> list[str]:
    return [conflict["field"] for conflict in result.document["conflicts"]]


def test_a_copy_that_is_scaled_in_part_proves_no_alpha(
    save: Callable[..., Any], rebuild: Callable[..., Any], tmp_path: Path
) -> None:
    saved = save()
    tensors = load_file(saved.folder / "adapter_model.safetensors")
    for name in sorted(tensors)[:-6]:
        tensors[name] = tensors[name] * 3 if "lora_B" in name else tensors[name]
    save_file(tensors, tmp_path / "copy.safetensors")

    told = [saved.folder, "--base", saved.base, *IDENTITY, "--set", "use_rslora=false"]
    result = rebuild(*told, "--memory", tmp_path / "copy.safetensors")

    assert result.code == 1
    assert "scaled in part" in result.document["message"]


def test_a_copy_of_some_modules_proves_their_alpha_alone(
    save: Callable[..., Any], rebuild: Callable[..., Any], tmp_path: Path
) -> None:
    saved = save()
    tensors = load_file(saved.folder / "adapter_model.safetensors")
    kept = {n: t * 3 if "lora_B" in n else t for n, t in tensors.items() if "layers.0" in n}
    save_file(kept, tmp_path / "copy.safetensors")
    told = [saved.folder, "--base", saved.base, *IDENTITY, "--set", "use_rslora=false"]
    told += ["--memory", tmp_path / "copy.safetensors"]

    silent, stated = rebuild(*told), rebuild(*told, "--set", "alpha_pattern={}")

    assert missing(silent) == ["alpha_pattern"]
    assert stated.code == 0, stated.document
    assert stated.document["fields"]["alpha_pattern"]["source"] == "stated"


def test_a_copy_whose_other_matrices_are_zero_proves_all(
    save: Callable[..., Any], rebuild: Callable[..., Any], tmp_path: Path
) -> None:
    saved = save()
    path = saved.folder / "adapter_model.safetensors"
    tensors = load_file(path)
    for name, tensor in tensors.items():
        tensors[name] = tensor * 0 if "layers.1" in name and "lora_B" in name else tensor
    save_file(tensors, path, metadata={"format": "pt"})
    copy = {n: t * 3 if "lora_B" in n else t for n, t in tensors.items()}
    save_file(copy, tmp_path / "copy.safetensors")

    told = [saved.folder, "--base", saved.base, *IDENTITY, "--set", "use_rslora=false"]
    result = rebuild(*told, "--memory", tmp_path / "copy.safetensors")

    fields = result.document["fields"]
    assert (result.code, fields["lora_alpha"]["value"]) == (0, 12), result.document
    assert fields["alpha_pattern"]["source"] == "proven"


def merged(saved: Any, bases: Any, folder: Path) -> Path:
    whole = folder / "whole"
    shutil.copytree(saved.folder, whole)
    (whole / "adapter_config.json").write_text((folder / "original.json").read_text())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tuned = PeftModel.from_pretrained(bases.model(saved.base_name), whole)
        tuned.merge_and_unload().save_pretrained(folder / "merged")
    return folder / "merged"


def test_the_alpha_of_one_layer_is_measured_too(
    save: Callable[..., Any],
    load: Callable[..., Any],
    bases: Any,
    rebuild: Callable[..., Any],
    tmp_path: Path,
) -> None:
    saved = save(alpha_pattern={r"layers\.1\..*": 64})

    told = [saved.folder, "--base", saved.base, *IDENTITY, "--set", "use_rslora=false"]
    result = rebuild(*told, "--merged", merged(saved, bases, tmp_path))

    assert result.code == 0, result.document
    pattern = result.document["fields"]["alpha_pattern"]
    assert (set(pattern["value"].values()), pattern["source"]) == ({64}, "proven")
    assert "21 of 21 modules" in pattern["from"]
    assert torch.equal(load(saved), saved.logits)


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({}, "model.layers.1.mlp.up_proj.weight"),
        ({"base": "moe"}, "model.layers.1.mlp.experts.2.up_proj.weight"),
    ],
)
def test_a_model_that_was_merged_in_part_proves_nothing(
    options: dict[str, Any],
    part: str,
    save: Callable[..., Any],
    bases: Any,
    rebuild: Callable[..., Any],
    tmp_path: Path,
) -> None:
    saved = save(**options)
    path = merged(saved, bases, tmp_path) / "model.safetensors"
    tensors = load_file(path)
    assert part in tensors
    tensors[part] = load_file(saved.base / "model.safetensors")[part]
    save_file(tensors, path, metadata={"format": "pt"})

    told = [saved.folder, "--base", saved.base, *IDENTITY, "--set", "use_rslora=false"]
    result = rebuild(*told, "--merged", path.parent)

    assert result.code == 1
    assert "only some modules were merged" in result.document["message"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_alpha_that_is_not_whole_is_proven_only_where_it_is_measured_well(
    dtype: torch.dtype, save: Callable[..., Any], rebuild: Callable[..., Any], tmp_path: Path
) -> None:
    saved = save(lora_alpha=12.8, target_modules=["q_proj"])
    tensors = load_file(saved.folder / "adapter_model.safetensors")
    path = tmp_path / "copy.safetensors"
    copy = {n: t * 3.2 if "lora_B" in n else t for n, t in tensors.items()}
    save_file({n: t.to(dtype) for n, t in copy.items()}, path)
    told = [saved.folder, "--base", saved.base, *IDENTITY, "--set", "use_rslora=false"]
    told += ["--memory", path, "--force"]

    measured, stated = rebuild(*told), rebuild(*told, "--set", "lora_alpha=12.8")

    alpha = measured.document["fields"]["lora_alpha"]["value"]
    assert alpha == (12.8 if dtype is torch.float32 else None)
    assert missing(measured) == ([] if alpha else ["lora_alpha"])
    assert stated.code == 0, stated.document
    assert stated.document["fields"]["lora_alpha"]["value"] == 12.8


def test_a_path_beside_the_recipe_is_no_identity(
    tmp_path: Path, rebuild: Callable[..., Any]
) -> None:
    told = qwen(tmp_path)
    (tmp_path / "sft" / "qwen").mkdir(parents=True)
    sibling = {**SIBLING, "base_model_name_or_path": "sft/qwen"}

    result = rebuild(*told, *recipe(tmp_path, "sibling.json", sibling))

    assert missing(result) == ["base_model_name_or_path"]


@pytest.mark.parametrize(
    ("more", "revision"),
    [
        ([], "abc"),
        (["--set", "base_model_name_or_path=Qwen/Qwen3-8B"], "abc"),
        (["--set", "base_model_name_or_path=example/other"], None),
        (["--set", "base_model_name_or_path=example/other", "--set", "revision=def"], "def"),
    ],
)
def test_a_revision_belongs_to_the_base_that_it_was_stated_with(
    more: list[str], revision: str | None, tmp_path: Path, rebuild: Callable[..., Any]
) -> None:
    told = [*qwen(tmp_path), *recipe(tmp_path, "s.json", {**SIBLING, "revision": "abc"})]

    result = rebuild(*told, *more)

    assert result.code == 0, result.document
    assert json.loads((tmp_path / "a" / "adapter_config.json").read_text())["revision"] == revision
    assert ("revision" in " ".join(result.document["cautions"])) == (revision is None)


def test_rslora_of_a_recipe_of_another_rank_is_no_source(
    tmp_path: Path, rebuild: Callable[..., Any]
) -> None:
    sibling = {**SIBLING, "use_rslora": True, "alpha_pattern": {"q_proj": 99}}
    told = [*qwen(tmp_path, 16), *recipe(tmp_path, "sibling.json", sibling), "--set", "r=16"]

    result = rebuild(*told, "--set", "lora_alpha=32")

    assert missing(result) == ["use_rslora"]
    assert result.document["fields"]["alpha_pattern"]["value"] is None


@pytest.mark.parametrize("method", ["ADALORA", "LOHA", "VERA"])
def test_a_sibling_of_another_method_is_a_contradiction(
    method: str, tmp_path: Path, rebuild: Callable[..., Any]
) -> None:
    told = [*qwen(tmp_path), *recipe(tmp_path, "sibling.json", {**SIBLING, "peft_type": method})]

    result = rebuild(*told)

    assert (result.code, conflicts(result)) == (1, ["peft_type"])


@pytest.mark.parametrize("targets", [["gate_proj", "up_proj"], LINEAR])
@pytest.mark.parametrize("rslora", [False, True])
def test_fused_gate_and_up_need_the_rank_of_the_run(
    targets: list[str],
    rslora: bool,
    save: Callable[..., Any],
    load: Callable[..., Any],
    rebuild: Callable[..., Any],
) -> None:
    saved = save("moe", target_modules=targets, use_rslora=rslora)
    told = [saved.folder, "--base", saved.base, *IDENTITY, "--set", "lora_alpha=12"]
    told += ["--set", f"use_rslora={str(rslora).lower()}"]

    silent, stated = rebuild(*told), rebuild(*told, "--set", "r=4")

    assert missing(silent) == ["alpha_pattern"]
    assert silent.document["missing"][0]["flag"] == "--set r=NUMBER"
    assert stated.code == 0, stated.document
    assert torch.equal(load(saved), saved.logits)


def test_what_is_assumed_and_could_do_harm_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["rebuild-config", *map(str, qwen(tmp_path)), *STATED]

    assert run(recover, words) == 0

    (note,) = [x for x in capsys.readouterr().err.splitlines() if x.startswith("Note: Assumed")]
    for field in ("init_lora_weights", "alpha_pattern", "use_qalora", "alora_invocation_tokens"):
        assert field in note


def test_nothing_is_assumed_beside_a_whole_script_of_peft(
    tmp_path: Path, rebuild: Callable[..., Any]
) -> None:
    script = SCRIPT.format(targets=LINEAR, more="")

    result = rebuild(*qwen(tmp_path), *recipe(tmp_path, "train.py", script))

    assert result.code == 0, result.document
    assert result.document["cautions"] == []
    assert result.document["fields"]["alpha_pattern"]["source"] == "default"


def test_notes_on_recipes_are_shown_safely_and_cut(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = SCRIPT.format(targets=LINEAR, more="lora_dropout=compute(),")
    name = "n" * 120 + "\x1b[31m" + "n" * 100 + ".py"
    words = ["rebuild-config", *qwen(tmp_path), *recipe(tmp_path, name, script), *STATED]

    assert run(recover, list(map(str, words))) == 0

    (note,) = [x for x in capsys.readouterr().err.splitlines() if x.startswith("Note on the")]
    assert note.isprintable() and len(note) < 350


@pytest.mark.parametrize(("more", "code"), [("", 0), ("alpha_pattern=read(),", 1)])
def test_a_whole_script_with_ranks_by_pattern_has_the_default_alpha_for_all(
    more: str, code: int, tmp_path: Path, rebuild: Callable[..., Any]
) -> None:
    sizes = synthetic.modules(synthetic.QWEN)
    narrow = {name: size for name, size in sizes.items() if name.endswith("q_proj")}
    tensors = {**synthetic.lora(sizes, 8), **synthetic.lora(narrow, 4)}
    script = SCRIPT.format(targets=LINEAR, more=f"rank_pattern={{'q_proj': 4}}, {more}")
    told = adapter(tmp_path, synthetic.QWEN, tensors)

    result = rebuild(*told, *recipe(tmp_path, "train.py", script))

    assert result.code == code, result.document
    assert missing(result) == (["alpha_pattern"] if code else [])


def test_a_pattern_of_the_same_rank_leaves_ranks_equal(
    tmp_path: Path, rebuild: Callable[..., Any]
) -> None:
    sibling = {**SIBLING, "rank_pattern": {"q_proj": 8}}

    result = rebuild(*qwen(tmp_path), *recipe(tmp_path, "sibling.json", sibling))

    assert result.code == 0, result.document


@pytest.mark.parametrize(
    ("base", "options", "with_base"),
    [
        ("mixtral", {"target_modules": "all-linear"}, True),
        (
            "tied",
            {"target_modules": ["q_proj", "embed_tokens"], "ensure_weight_tying": True},
            False,
        ),
    ],
)
def test_the_configuration_that_peft_wrote_is_not_refused(
    base: str,
    options: dict[str, Any],
    with_base: bool,
    save: Callable[..., Any],
    load: Callable[..., Any],
    rebuild: Callable[..., Any],
    tmp_path: Path,
) -> None:
    saved = save(base, **options)
    sibling = {**saved.config, "base_model_name_or_path": "example/tiny"}
    told = [saved.folder, *recipe(tmp_path, "sibling.json", sibling)]

    result = rebuild(*told, *(["--base", saved.base] if with_base else []))

    assert result.code == 0, result.document
    assert torch.equal(load(saved), saved.logits)


def test_a_second_file_that_fails_brings_the_first_one_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Destination(tmp_path)
    write_both(place, "old", {"sha256": sha256(b"old").hexdigest()})
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    rename = os.rename

    def failing(source: str, target: str, **folders: int) -> None:
        if target == place.config:
            raise OSError(28, "No space left on device")
        rename(source, target, **folders)

    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(Unusable, match=r"adapter_config\.json cannot be written: no space"):
        write_both(place, "new", {"sha256": "other"})

    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_evidence_of_another_configuration_is_told_from_its_own(tmp_path: Path) -> None:
    place = Destination(tmp_path)
    write_both(place, "text", {"sha256": sha256(b"text").hexdigest()})
    assert is_ours(place)

    place.paths[0].write_text("edited")

    assert not is_ours(place)


@pytest.mark.parametrize(
    ("out", "said"),
    [
        ("", "is empty"),
        ("dangling", "dangling"),
        ("/dev/null", "is not a folder"),
        ("a/adapter_model.safetensors", "is not a folder"),
        ("a/adapter_model.safetensors/below", "is not a folder"),
        ("n" * 300, "too long"),
        ("n" * 250 + ".json", "too long"),
        ("taken", "is a folder"),
        ("taken/adapter_config.json/x.json", "adapter_config.json is not a folder"),
    ],
)
def test_a_place_that_cannot_be_written_is_named_in_one_sentence(
    out: str,
    said: str,
    tmp_path: Path,
    rebuild: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = qwen(tmp_path)
    monkeypatch.chdir(tmp_path)
    Path("dangling").symlink_to("nowhere")
    Path("taken/adapter_config.json").mkdir(parents=True)
    if "x.json" in out:
        shutil.rmtree("taken/adapter_config.json")
        Path("taken/adapter_config.json").write_text("{}")

    result = rebuild(*told, *STATED, "--out", out, "--force")

    assert result.code == 2
    assert said in result.document["message"]
    assert "tmp" not in result.document["message"].replace(str(tmp_path), "")
    assert "report" not in result.document["remedy"]


SECRET = "hf_" + "a1B2" * 8


@pytest.mark.parametrize(
    "setting",
    [
        f"revision={SECRET}",
        f'auto_mapping={{"x": ["{SECRET}"]}}',
        f'auto_mapping={{"x": "hf\\u005f{SECRET[3:]}"}}',
        '{"x": 1}' + SECRET + "=1",
        'auto_mapping={"api_key": "correcthorse"}',
        "revision=a\x1b[31mb",
    ],
)
def test_a_secret_or_an_escape_is_neither_written_nor_repeated(setting: str) -> None:
    with pytest.raises(Unusable) as refused:
        read_settings((setting,))

    assert SECRET[3:] not in f"{refused.value.message}{refused.value.remedy}"
    assert "correcthorse" not in refused.value.message
    assert refused.value.message.isprintable()


@pytest.mark.parametrize("field", ["lora_alpha", "r", "lora_dropout", "layers_to_transform"])
def test_a_number_beyond_all_bounds_is_refused(field: str) -> None:
    with pytest.raises(Unusable):
        read_settings((f"{field}=1{'0' * 400}",))


def test_many_slow_patterns_are_given_up(
    tmp_path: Path, rebuild: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A slow machine stands for a large adapter.
    clock = (float(second) for second in range(1_000_000))
    monkeypatch.setattr("reefkit.recover.adapter.patterns.time.perf_counter", clock.__next__)
    slow = {rf".*(a|aa|aaa|a+)+layers\.{i}\..*proj": 8 for i in range(200)}
    told = [*qwen(tmp_path), *recipe(tmp_path, "s.json", {**SIBLING, "rank_pattern": slow})]

    result = rebuild(*told)

    assert result.code == 2
    assert "in all" in result.document["message"]
