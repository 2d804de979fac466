"""Losses of less than a page, of whole kinds, and of what a header says: each is told from values.

Beside every fault stands the lawful thing that looks like it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from contents import (
    HIDDEN,
    PREFIX,
    RANK,
    Bytes,
    Tensors,
    adapter,
    encode,
    judged_bytes,
    scanned,
    serialise,
    shard_of,
    tensor,
    zeros,
)
from synthetic import Work, lora, model, modules, noise

from reefkit import cli
from reefkit.recover.adapter.structure import read_adapter
from reefkit.recover.base.model import Base, BaseSource, BaseTensor
from reefkit.recover.formats.safetensors import Tensor, parse_header, write_header
from reefkit.recover.ranges import Range
from reefkit.recover.validation.content.facts import Claims
from reefkit.recover.validation.content.norms import are_offsets
from reefkit.recover.validation.content.roles import roles
from reefkit.recover.validation.content.training import adamw_bound
from reefkit.recover.validation.content.zero_runs import lost_ranges
from reefkit.recover.validation.content.zero_tensors import judge_zero_tensors
from reefkit.recover.validation.dtypes import adapter_dtypes, model_dtypes
from reefkit.recover.validation.result import Caution, DamageClass, Mismatch

K = DamageClass
A, B = "lora_A.weight", "lora_B.weight"
RANDOM = np.random.default_rng(11)
PAGE = 4096
Made: TypeAlias = Callable[[], Tensors]


def ending_with(rest: int, tensors: Tensors) -> bytes:
    """Give a file whose last page holds `rest` bytes, by padding its metadata."""
    entries = [(name, dtype, shape) for name, (dtype, shape, _) in tensors.items()]
    for padding in range(PAGE):
        raw = write_header(entries, {"format": "pt", "padding": "x" * padding})
        header = parse_header(raw)
        if header.file_size % PAGE == rest:
            return raw + b"".join(tensors[one.name][2] for one in header.tensors)
    raise AssertionError(rest)


def lost(data: bytes, start: int, stop: int) -> bytes:
    assert data[start:stop].count(0) < (stop - start) / 2
    return data[:start] + bytes(stop - start) + data[stop:]


# --- the rest of a page at an end of the file ----------------------------------------------------


@pytest.mark.parametrize("rest", [16, 40, 504, 2600, 4088])
@pytest.mark.parametrize("dtype", ["BF16", "F32"])
def test_a_lost_last_page_is_damage_however_little_it_holds(
    rest: int, dtype: str, tmp_path: Path
) -> None:
    data = ending_with(rest, adapter(2, dtype))
    assert judged_bytes(tmp_path, data).damage == ()
    (found,) = judged_bytes(tmp_path, lost(data, len(data) - rest, len(data))).damage
    assert found.kind is K.ZERO_TAIL
    assert (found.bytes or 0) - rest in range(3)
    assert found.tensor == f"{PREFIX}.1.self_attn.v_proj.{B}"


@pytest.mark.parametrize("size", [64, 130, 512, 3000])
def test_zeros_at_the_end_need_not_begin_where_a_page_does(size: int, tmp_path: Path) -> None:
    data = ending_with(3504, adapter(2))
    (found,) = judged_bytes(tmp_path, lost(data, len(data) - size, len(data))).damage
    assert found.kind is K.ZERO_TAIL


def test_the_rest_of_the_headers_page_is_looked_at(tmp_path: Path) -> None:
    data = serialise(adapter(3))
    start = parse_header(data).data_start
    border = -(-start // PAGE) * PAGE
    assert border - start >= 16
    (found,) = judged_bytes(tmp_path, lost(data, start, border)).damage
    assert (found.kind, found.offset) == (K.ZERO_RUN, start)


def test_repair_is_told_which_bytes_at_the_end_are_lost() -> None:
    data = ending_with(2600, adapter(2))
    broken = lost(data, len(data) - 2600, len(data))
    facts = scanned(broken)
    by_name = roles(one.name for one in facts.tensors)
    zero = judge_zero_tensors(facts.tensors, by_name, Claims())
    (found,) = lost_ranges(shard_of(Bytes(broken), "shard"), facts, by_name, zero)
    assert found == facts.edge_runs[0]
    assert found.stop == len(data)


def tiny_f16() -> Tensors:
    made = adapter(3, "F16")
    b = np.abs(RANDOM.standard_normal((HIDDEN, RANK))) * 1e-8  # of which F16 keeps few
    b[-40:] *= 0.1
    made[f"{PREFIX}.2.self_attn.v_proj.{B}"] = "F16", (HIDDEN, RANK), encode(b, "F16")
    return made


def dead_output() -> Tensors:
    made = adapter(3, "F32", modules=("mlp.up_proj",))
    b = RANDOM.standard_normal((HIDDEN, 16)) * 1e-3
    b[-1] = 0
    made[f"{PREFIX}.2.mlp.up_proj.{B}"] = "F32", (HIDDEN, 16), encode(b, "F32")
    return made


def idle_last_expert() -> Tensors:
    b = RANDOM.standard_normal((300, 8 * 64)) * 1e-3
    b[:, -64:] = 0
    a = tensor(RANDOM, (512, 64), 0.02)
    name = f"{PREFIX}.0.mlp.experts"
    return {f"{name}.{A}": a, f"{name}.{B}": ("BF16", (300, 512), encode(b, "BF16"))}


def padded_vocabulary() -> Tensors:
    rows = RANDOM.standard_normal((300, 256)) * 0.02
    rows[295:] = 0
    return {"model.embed_tokens.weight": ("BF16", (300, 256), encode(rows, "BF16"))}


def bias_of_keys() -> Tensors:
    values = RANDOM.standard_normal(900)
    values[-300:] = 0
    return {"a.attn.bias": ("F32", (900,), encode(values, "F32"))}


def half_pruned() -> Tensors:
    values = RANDOM.standard_normal((64, 256)) * 0.02
    values.reshape(-1, 64)[1::2] = 0
    return {"a.up_proj.weight": ("F32", (64, 256), encode(values, "F32"))}


def eight_bits() -> Tensors:
    codes = RANDOM.integers(1, 100, (64, 256), np.uint8)
    codes[-1, -100:] = 0
    return {"a.up_proj.weight": ("F8_E4M3", (64, 256), codes.tobytes())}


@pytest.mark.parametrize(
    "make",
    [
        tiny_f16,
        dead_output,
        idle_last_expert,
        padded_vocabulary,
        bias_of_keys,
        half_pruned,
        eight_bits,
    ],
)
def test_zeros_that_values_have_at_the_end_of_a_file_are_lawful(make: Made, tmp_path: Path) -> None:
    data = ending_with(3504, make())
    assert any(run.stop == len(data) for run in scanned(data).edge_runs)
    assert judged_bytes(tmp_path, data).damage == ()


# --- tensors that are zero throughout ------------------------------------------------------------


def norms(layers: float, last: float) -> bytes:
    made: Tensors = {"model.norm.weight": ("F32", (64,), encode(np.full(64, last), "F32"))}
    for layer in range(3):
        values = encode(np.full(64, layers), "F32")
        made[f"model.layers.{layer}.input_layernorm.weight"] = "F32", (64,), values
    return serialise(made)


@pytest.mark.parametrize(
    ("layers", "last", "offset", "damaged", "cautions"),
    [
        (1.0, 1.0, False, 0, []),
        (1.0, 0.0, False, 1, []),
        (0.0, 0.0, False, 4, []),
        (0.0, 1.0, False, 3, []),
        (0.0, 0.0, True, 0, []),
        (0.1, 0.0, True, 0, ["zero-tensor"]),
        (0.0, 0.0, None, 0, ["zero-tensor"]),
        (1.0, 0.0, None, 0, ["zero-tensor"]),
    ],
)
def test_zero_norms_are_lawful_only_where_norms_are_offsets(
    layers: float,
    last: float,
    offset: bool | None,
    damaged: int,
    cautions: list[str],
    tmp_path: Path,
) -> None:
    found = judged_bytes(tmp_path, norms(layers, last), offset_norms=offset)
    assert [one.kind for one in found.damage] == [K.ZERO_TENSOR] * damaged
    assert [one.kind for one in found.cautions] == cautions


def test_which_families_have_offsets_is_known_for_those_that_are() -> None:
    assert are_offsets("gemma2") is are_offsets("qwen3_next") is True
    assert are_offsets("llama") is are_offsets("qwen3") is are_offsets("gpt2") is False
    assert are_offsets("never-heard-of") is are_offsets(None) is None


def experts(dead: str) -> bytes:
    made: Tensors = {}
    for expert in range(4):
        for leaf in ("up_proj", "down_proj"):
            part = adapter(3, modules=[f"mlp.experts.{expert}.{leaf}"], seed=expert)
            for name, (dtype, shape, data) in part.items():
                idle = name.endswith(B) and re.search(dead, name)
                made[name] = zeros(shape) if idle else (dtype, shape, data)
    return serialise(made)


@pytest.mark.parametrize(
    ("dead", "damaged"),
    [
        (r"\.experts\.2\.", 0),
        (r"layers\.1\..*experts\.[013]\.", 0),
        (r"layers\.1\.", 8),
        (r"experts\.2\.up_proj", 3),
    ],
)
def test_some_experts_of_a_layer_may_be_idle_and_never_all(
    dead: str, damaged: int, tmp_path: Path
) -> None:
    found = judged_bytes(tmp_path, experts(dead))
    assert [one.kind for one in found.damage] == [K.ZERO_TENSOR] * damaged
    assert ("untrained-experts" in {one.kind for one in found.cautions}) == (not damaged)


@pytest.mark.parametrize("place", ["mlp.experts", "mlp.experts.base_layer"])
def test_fused_experts_cannot_all_be_idle(place: str, tmp_path: Path) -> None:
    made = adapter(3, modules=["mlp.experts", "mlp.experts.base_layer"])
    name = f"{PREFIX}.1.{place}.{B}"
    made[name] = zeros(made[name][1])
    (found,) = judged_bytes(tmp_path, serialise(made)).damage
    assert (found.kind, found.tensor) == (K.ZERO_TENSOR, name)


@pytest.mark.parametrize(
    ("zero", "kinds", "cautions"),
    [
        (slice(0, 0), [], []),
        (slice(0, 4 * 2048), [K.ZERO_TENSOR], []),
        (slice(1000, 4000), [K.ZERO_RUN], []),
        (slice(2048, 4096), [], ["zero-rows"]),
    ],
)
def test_a_token_delta_holds_whole_rows_and_is_never_zero(
    zero: slice, kinds: list[K], cautions: list[str], tmp_path: Path
) -> None:
    values = RANDOM.standard_normal(4 * 2048) * 0.02
    values[zero] = 0
    name = "base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta"
    delta = {name: ("BF16", (4, 2048), encode(values, "BF16"))}
    found = judged_bytes(tmp_path, serialise({**adapter(2), **delta}))
    assert [one.kind for one in found.damage] == kinds
    assert [one.kind for one in found.cautions] == cautions


# --- the same bytes in every layer ---------------------------------------------------------------


def of_first_layer(made: Tensors, part: str) -> Tensors:
    first = {
        name: name.replace(f"layers.{name.split('layers.')[1][0]}.", "layers.0.") for name in made
    }
    return {name: made[first[name]] if part in name else one for name, one in made.items()}


def full(layers: int = 4) -> Tensors:
    return {
        f"model.layers.{layer}.{leaf}.weight": tensor(RANDOM, (64, 64), 0.02)
        for layer in range(layers)
        for leaf in ("mlp.up_proj", "self_attn.q_proj")
    }


def with_biases(layers: int = 4) -> Tensors:
    names = (f"{PREFIX}.{layer}.self_attn.q_proj.lora_B.bias" for layer in range(layers))
    return {**adapter(layers), **{name: tensor(RANDOM, (HIDDEN,), 1e-3) for name in names}}


@pytest.mark.parametrize(
    ("make", "damaged"),
    [
        (lambda: of_first_layer(adapter(4), B), 3),
        (lambda: of_first_layer(adapter(4), f"q_proj.{B}"), 1),
        (lambda: of_first_layer(adapter(4), "layers"), 3),
        (lambda: of_first_layer(full(), "layers"), 2),
        (lambda: of_first_layer(with_biases(), "lora_B.bias"), 1),
        (lambda: of_first_layer(with_biases(2), "lora_B.bias"), 1),
    ],
)
def test_one_layer_in_all_places_is_damage(make: Made, damaged: int, tmp_path: Path) -> None:
    found = judged_bytes(tmp_path, serialise(make()))
    assert [one.kind for one in found.damage] == [K.COPIED_TENSOR] * damaged
    assert all(one.offset for one in found.damage)


def test_one_seed_for_every_a_is_named_once_for_each_kind(tmp_path: Path) -> None:
    found = judged_bytes(tmp_path, serialise(of_first_layer(adapter(4), A)))
    assert found.damage == ()
    (caution,) = found.cautions
    assert caution.message.count("q_proj") == 1
    assert "in 3 kinds" in caution.message


def test_a_model_grown_by_repeating_some_layers_is_lawful(tmp_path: Path) -> None:
    made = full()
    made |= {
        f"model.layers.{layer}.self_attn.q_proj.bias": tensor(RANDOM, (64,), 0.1)
        for layer in range(4)
    }
    made |= {n.replace("layers.2", "layers.3"): one for n, one in made.items() if "layers.2" in n}
    found = judged_bytes(tmp_path, serialise(made))
    assert found.damage == ()
    assert [one.kind for one in found.cautions] == ["repeated-layers"]


# --- dtypes --------------------------------------------------------------------------------------

NAMES = [
    *(f"model.layers.{n}.{leaf}.weight" for n in range(4) for leaf in ("q_proj", "norm", "router")),
    "lm_head.weight",
    "model.embed_tokens.weight",
]
Q2 = "model.layers.2.q_proj.weight"


def dtypes_of(
    before: str | None, now: dict[str, str], *, quantised: bool = False, default: str = "BF16"
) -> tuple[list[Mismatch], list[Caution]]:
    """Judge a checkpoint whose dtypes are `default` but for the names that `now` begins with."""
    expected = {name: BaseTensor(name, (8, 8), before) for name in NAMES}
    config = {"quantization_config": {"quant_method": "fp8"}} if quantised else {}
    base = Base("base", BaseSource.CONFIG, "llama", expected, {}, config=config)
    found: dict[str, Tensor] = {}
    for name in [*NAMES, *(n for n in now if n.endswith("_scale"))]:
        chosen = next((d for part, d in now.items() if part in name), default)
        found[name] = Tensor(name, chosen, (8, 8), 0, 0)
    cautions: list[Caution] = []
    return model_dtypes(found, base, frozenset(), frozenset(), cautions), cautions


@pytest.mark.parametrize("before", ["BF16", None])
@pytest.mark.parametrize(
    "now",
    [
        {},
        {"norm": "F32"},
        {"router": "F32", "norm": "F32"},
        {"lm_head": "F32", "embed": "F32"},
        {"weight": "F16"},
        {"weight": "F32"},
        {f"{Q2}_scale": "F32", Q2: "F8_E4M3"},
        {f"{Q2}_scale": "F32", Q2: "I8"},
    ],
)
def test_casts_of_whole_kinds_and_scaled_weights_are_lawful(
    before: str | None, now: dict[str, str]
) -> None:
    assert dtypes_of(before, now)[0] == []


@pytest.mark.parametrize("before", ["BF16", None])
@pytest.mark.parametrize(
    "now",
    [
        {Q2: "I16"},
        {Q2: "U16"},
        {Q2: "F16"},
        {Q2: "F32"},
        {"q_proj": "U16"},
        {"lm_head": "I16"},
        {"lm_head": "F16"},
        {"embed": "BOOL"},
    ],
)
def test_another_dtype_in_one_tensor_is_a_mismatch(before: str | None, now: dict[str, str]) -> None:
    mismatched, cautions = dtypes_of(before, now)
    (part,) = now
    assert {one.tensor for one in mismatched} == {name for name in NAMES if part in name}
    assert {one.found for one in mismatched} == {now[part]}
    assert cautions == []


def test_a_quantised_base_may_hold_integers() -> None:
    assert dtypes_of(None, {"q_proj": "U8"}, quantised=True)[0] == []


def adapter_mismatches(change: dict[str, str]) -> set[str]:
    names = [
        f"base_model.model.model.layers.{layer}.{leaf}.{part}"
        for layer in range(3)
        for leaf in ("q_proj", "v_proj")
        for part in (A, B)
    ]
    names += ["base_model.model.lm_head.weight", f"base_model.model.model.head.{A}"]
    names += [f"base_model.model.model.head.{B}"]
    tensors = [
        Tensor(name, next((d for p, d in change.items() if p in name), "F32"), (8, 8), 0, 0)
        for name in names
    ]
    return {one.tensor.removeprefix("base_model.model.model.") for one in
            adapter_dtypes(read_adapter(tensors))}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({}, set[str]()),
        ({"lora_": "BF16"}, set[str]()),
        ({"lm_head": "BF16"}, set[str]()),
        ({"v_proj": "BF16"}, set[str]()),
        ({f"layers.1.q_proj.{A}": "F16"}, {f"layers.1.q_proj.{A}"}),
        ({f"head.{B}": "F16"}, {f"head.{B}"}),
        ({"layers.0.v_proj": "BF16"}, {f"layers.0.v_proj.{A}", f"layers.0.v_proj.{B}"}),
    ],
)
def test_one_tensor_of_an_adapter_in_another_dtype_is_a_mismatch(
    change: dict[str, str], named: set[str]
) -> None:
    assert adapter_mismatches(change) == named


# --- claims --------------------------------------------------------------------------------------


def stepped(rate: float, through: str, dtype: str) -> bytes:
    """Give an adapter whose every B is one step of the rate, rounded on its way to the file."""
    made = adapter(2, dtype)
    for name, (_, shape, _) in made.items():
        if name.endswith(B):
            signs = np.where(RANDOM.random(shape) < 0.5, -rate, rate)
            raw = encode(signs, through)
            if through == "BF16":
                values: Any = (np.frombuffer(raw, "<u2").astype("<u4") << 16).view("<f4")
            else:
                values = np.frombuffer(raw, {"F16": "<f2", "F32": "<f4"}[through]).astype("<f4")
            made[name] = dtype, shape, encode(values.reshape(shape), dtype)
    return serialise(made)


@pytest.mark.parametrize("rate", [1e-3, 1e-5, 1e-6, 5e-8])
@pytest.mark.parametrize(
    ("through", "dtype"), [("F32", "F32"), ("BF16", "BF16"), ("BF16", "F32"), ("F16", "F16"),
                           ("F16", "F32"), ("F32", "F16")],
)  # fmt: skip
def test_a_true_claim_survives_every_way_of_rounding(
    rate: float, through: str, dtype: str, tmp_path: Path
) -> None:
    said = Claims(step=1, learning_rate=rate, init=True, optimizer="adamw")
    data = stepped(rate, through, dtype)
    assert judged_bytes(tmp_path, data, said).evidence["claim_refuted"] is False
    less = Claims(step=1, learning_rate=rate / 3, init=True, optimizer="adamw")
    found = judged_bytes(tmp_path, data, less)
    assert found.evidence["claim_refuted"] is True


def test_single_precision_is_not_excused_by_a_coarser_one(tmp_path: Path) -> None:
    data = stepped(1.001e-5, "F32", "F32")
    said = Claims(step=1, learning_rate=1e-5, init=True, optimizer="adamw")
    found = judged_bytes(tmp_path, data, said)
    assert found.evidence["claim_refuted"] is True
    assert "1.001e-05" in found.cautions[0].message
    assert adamw_bound(1, 1e-6, "F16") == pytest.approx(1e-6 + 2.0**-25, rel=1e-2)


@pytest.fixture
def correct(tmp_path: Path) -> Work:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    work = Work(folder)
    work.tensors = lora(modules(work.base))
    work.save()
    (tmp_path / "config.json").write_text(json.dumps(work.base))
    return work


def run(capsys: pytest.CaptureFixture[str], work: Work, *arguments: object) -> tuple[int, str]:
    base = work.folder.parent / "config.json"
    words = ["validate", str(work.folder), "--base", str(base), *map(str, arguments)]
    code = cli.run(cli.recover, words)
    out, err = capsys.readouterr()
    return code, out + err


def test_a_claim_that_only_content_can_judge_is_no_pass_without_it(
    correct: Work, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, correct, "--headers-only")[0] == 0
    claim = ("--step", 3, "--learning-rate", "0.5")
    assert run(capsys, correct, *claim)[0] == 0
    code, out = run(capsys, correct, *claim, "--headers-only")
    assert code == 1
    assert "not checked: The claimed step and learning rate" in out


def test_a_claim_about_what_has_no_lora_is_no_pass(
    correct: Work, capsys: pytest.CaptureFixture[str]
) -> None:
    correct.path.unlink()
    (correct.folder / "adapter_config.json").unlink()
    correct.tensors = model(correct.base)
    correct.save()
    (correct.folder / "adapter_config.json").unlink(missing_ok=True)
    assert run(capsys, correct)[0] == 0
    assert run(capsys, correct, "--step", 3, "--learning-rate", "0.5")[0] == 1


@pytest.mark.parametrize("rate", ["nan", "inf", "0", "-1", "x"])
def test_a_learning_rate_is_a_finite_number(
    rate: str, correct: Work, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, correct, "--step", 3, "--learning-rate", rate)[0] == 2


def test_a_learning_rate_needs_a_step_which_a_recipe_may_give(
    correct: Work, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = run(capsys, correct, "--learning-rate", "0.5")
    assert code == 2
    assert "--step" in out
    state = correct.folder.parent / "trainer_state.json"
    state.write_text(json.dumps({"global_step": 3, "log_history": [], "max_steps": 3}))
    assert run(capsys, correct, "--learning-rate", "0.5", "--recipe", state)[0] == 0
    assert run(capsys, correct, "--learning-rate", "1e-9", "--recipe", state)[0] == 1


# --- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a" * 300_000, f"{PREFIX}.{'9' * 6000}.q_proj.{A}"])
def test_no_sentence_repeats_an_absurdly_long_name(
    name: str, correct: Work, capsys: pytest.CaptureFixture[str]
) -> None:
    correct.tensors = {name: noise((8, 8), 0), name + "b": noise((8, 8), 0)}
    correct.tensors[name + "c"] = noise((8, 8), 0)._replace(data=bytes(128))
    correct.save()
    _, out = run(capsys, correct)
    assert max(map(len, out.splitlines())) < 1000


def test_an_edge_run_spans_no_unread_block() -> None:
    data = ending_with(2600, adapter(2))
    facts = scanned(lost(data, len(data) - 2600, len(data)), [Range(len(data) - 10, len(data))])
    assert facts.edge_runs == ()
    assert facts.damage
