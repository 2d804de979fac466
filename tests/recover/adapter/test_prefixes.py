from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reefkit.recover.adapter.keys import PREFIX as P
from reefkit.recover.adapter.naming.prefixes import diagnose
from reefkit.recover.base.model import (
    Base,
    BaseSource,
    BaseTensor,
    ExpertParameter,
    Module,
    ModuleKind,
)

KINDS = ("self_attn.q_proj", "mlp.up_proj")
LAYERS = "model.layers."


def base(
    *stems: str, layers: int = 3, kinds: Iterable[str] = KINDS, more: Iterable[str] = ()
) -> Base:
    names = [f"{stem}{i}.{kind}" for stem in stems for i in range(layers) for kind in kinds]
    names += more
    modules = {name: Module(name, ModuleKind.LINEAR, 8, 8) for name in names}
    tensors = {f"{name}.weight": BaseTensor(f"{name}.weight", (8, 8)) for name in names}
    return Base("some/base", BaseSource.CONFIG, "qwen3", tensors, modules)


QWEN = base(LAYERS, more=["lm_head", "model.embed_tokens"])


def adapter(stem: str = LAYERS, layers: int = 3, prefix: str = P) -> list[str]:
    return [
        f"{prefix}{stem}{i}.{kind}.lora_{x}.weight"
        for i in range(layers)
        for kind in KINDS
        for x in "AB"
    ]


RIGHT = adapter()


def doubled(name: str) -> str:
    return P + name


def bare(name: str) -> str:
    return name[len(P) :]


def without_model(name: str) -> str:
    return name.replace("model.layers", "layers")


def named(adapter_name: str) -> Callable[[str], str]:
    return lambda name: name.removesuffix(".weight") + f".{adapter_name}.weight"


ADAPTER_FAULTS: list[tuple[str, Callable[[str], str]]] = [
    ("doubled-prefix", doubled),
    ("doubled-prefix", lambda name: P + P + name),
    ("missing-prefix", bare),
    ("misplaced-prefix", lambda name: f"thinker.{name}"),
    ("_orig_mod.", lambda name: f"_orig_mod.{name}"),
    ("_orig_mod.", lambda name: name.replace(P, f"{P}_orig_mod.")),
    ("_fsdp_wrapped_module.", lambda n: n.replace("layers", "_fsdp_wrapped_module.layers")),
    (
        "_checkpoint_wrapped_module.",
        lambda name: name.replace(".self", "._checkpoint_wrapped_module.self"),
    ),
    ("module.", lambda name: f"module.{name}"),
    ("module.", lambda name: name.replace(P, f"{P}module.")),
    (".default.", named("default")),
    (".lora.", named("lora")),
    (".run\u202e7.", named("run\u202e7")),
]


@pytest.mark.parametrize("known", [QWEN, None], ids=["base", "no-base"])
@pytest.mark.parametrize(
    ("fault", "spoil"),
    ADAPTER_FAULTS,
)  # fmt: skip
def test_a_prefix_fault_is_named_and_its_rename_proposed(
    fault: str, spoil: Callable[[str], str], known: Base | None
) -> None:
    spoiled = [spoil(name) for name in RIGHT]
    found = diagnose(spoiled, known)
    assert fault in [rename.fault for rename in found.renames]
    if fault == "misplaced-prefix":
        wanted = [name.replace(P, f"{P}thinker.") for name in RIGHT] if known is None else RIGHT
    else:
        wanted = RIGHT
    assert [found.new_name(name) for name in spoiled] == wanted
    assert not found.collisions


@pytest.mark.parametrize("known", [QWEN, None], ids=["base", "no-base"])
@pytest.mark.parametrize(
    "names",
    [
        RIGHT,
        adapter(layers=2),
        [*RIGHT, f"{P}lm_head.weight", f"{P}model.embed_tokens.lora_embedding_A"],
        [f"{P}{LAYERS}0.mlp.up_proj.lora_magnitude_vector"],
        [f"{P}{LAYERS}0.mlp.up_proj.lora_B.bias", f"{P}{LAYERS}0.mlp.up_proj.base_layer.bias"],
        [f"{P}model.embed_tokens.token_adapter.trainable_tokens_delta"],
        [f"{P}{LAYERS}0.mlp.up_proj.lora_monteclora_sampler.std_prior"],
        ["base_model.vera_A", f"{P}{LAYERS}0.mlp.up_proj.vera_lambda_b"],
        [],
    ],
)
def test_right_names_are_left_alone(names: list[str], known: Base | None) -> None:
    found = diagnose(names, known)
    assert (found.renames, found.renamed, found.facts) == ((), {}, ())


@pytest.mark.parametrize(
    ("in_memory", "on_disk"),
    [
        ("lora_magnitude_vector.default.weight", "lora_magnitude_vector"),
        ("lora_magnitude_vector.default", "lora_magnitude_vector"),
        ("lora_magnitude_vector.weight", "lora_magnitude_vector"),
        ("lora_embedding_A.default", "lora_embedding_A"),
        ("lora_B.default.bias", "lora_B.bias"),
        ("lora_diag.default", "lora_diag"),
        ("modules_to_save.default.weight", "weight"),
        ("token_adapter.trainable_tokens_delta.x", "token_adapter.trainable_tokens_delta"),
        ("lora_monteclora_sampler.default.std_prior", "lora_monteclora_sampler.std_prior"),
    ],
)
def test_a_name_in_memory_becomes_the_one_on_disk(in_memory: str, on_disk: str) -> None:
    stem = f"{P}{LAYERS}0.mlp.up_proj."
    found = diagnose([*RIGHT, stem + in_memory], QWEN)
    assert found.renamed == {stem + in_memory: stem + on_disk}


def test_the_adapter_name_that_ate_its_word_is_given_back() -> None:
    names = [name.replace(".lora_", "_") for name in RIGHT]
    found = diagnose(names, QWEN)
    assert [found.new_name(name) for name in names] == RIGHT
    assert {rename.fault for rename in found.renames} == {"adapter named lora"}


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("language_model.model.layers.", LAYERS),
        (LAYERS, "language_model.model.layers."),
        (LAYERS, "model.language_model.layers."),
        ("model.language_model.layers.", "language_model.model.layers."),
        ("layers.", LAYERS),
        (LAYERS, "layers."),
        ("transformer.h.", "h."),
        ("h.", "transformer.h."),
    ],
)
def test_a_wrong_path_is_found_by_the_base(theirs: str, ours: str) -> None:
    names = adapter(theirs)
    vision = [f"visual.blocks.{i}.attn.qkv" for i in range(4)]
    found = diagnose(names, base(ours, more=vision))
    assert [found.new_name(name) for name in names] == adapter(ours)
    assert [rename.fault for rename in found.renames] == ["wrong-path"]
    assert found.renames[0].tensors == len(names)


def test_several_faults_at_once_are_all_named() -> None:
    names = [named("default")(f"_orig_mod.{bare(name)}") for name in adapter("layers.")]
    found = diagnose(names, QWEN)
    assert [found.new_name(name) for name in names] == RIGHT
    assert {rename.fault for rename in found.renames} == {
        "_orig_mod.", "missing-prefix", ".default.", "wrong-path",
    }  # fmt: skip


def test_a_path_that_fits_nothing_is_a_fact_and_no_proposal() -> None:
    names = adapter("transformer.h.")
    found = diagnose(names, QWEN)
    assert not found.renames and not found.renamed
    assert len(found.facts) == 1 and "None of the 6 modules" in found.facts[0]


def test_two_paths_that_fit_equally_well_are_a_fact_and_no_proposal() -> None:
    two = base("thinker.model.layers.", "talker.model.layers.")
    found = diagnose(RIGHT, two)
    assert not found.renames
    assert "talker." in found.facts[0] and "thinker." in found.facts[0]


def test_the_path_that_fits_more_layers_wins() -> None:
    names = ["thinker.model.layers.", "talker.model.layers."]
    two = base(*names, layers=3)
    short = {n: m for n, m in two.modules.items() if not n.startswith("talker.model.layers.2")}
    found = diagnose(RIGHT, Base("b", BaseSource.CONFIG, None, {}, short))
    assert [found.new_name(name) for name in RIGHT] == adapter("thinker.model.layers.")


def test_experts_are_found_by_their_parameters() -> None:
    fused = "model.layers.0.mlp.experts"
    parameter = ExpertParameter(f"{fused}.gate_up_proj", 4, 8, 8)
    known = Base("b", BaseSource.CONFIG, None, {}, QWEN.modules, {parameter.name: parameter})
    right = [f"{P}{fused}.base_layer.lora_A.weight", f"{P}{fused}.lora_A.weight"]
    assert not diagnose(right, known).renamed
    wrong = [name.replace("model.layers", "layers") for name in right]
    assert list(diagnose(wrong, known).renamed.values()) == right


def test_names_that_would_become_one_keep_their_names() -> None:
    a, b = RIGHT[0], named("default")(RIGHT[0])
    found = diagnose([*RIGHT, b], QWEN)
    assert b not in found.renamed and not found.renames
    assert found.collisions[0].name == a and set(found.collisions[0].names) == {a, b}
    assert "would be one" in found.facts[0]


def test_two_adapters_in_one_file_are_not_mixed() -> None:
    names = [named(each)(name) for name in RIGHT for each in ("default", "other")]
    found = diagnose(names, QWEN)
    assert not found.renamed and len(found.collisions) == len(RIGHT)


@given(st.lists(st.text("ab.", max_size=8).map(lambda s: P + s) | st.sampled_from(
    [*RIGHT[:2], *map(bare, RIGHT[:2]), *map(doubled, RIGHT[:2]), *map(named("x"), RIGHT[:2])]
), unique=True, max_size=8))  # fmt: skip
def test_new_names_are_as_distinct_as_the_old(names: list[str]) -> None:
    for known in (QWEN, None):
        found = diagnose(names, known)
        assert len({found.new_name(name) for name in names}) == len(names)
        assert set(found.renamed) <= set(names)


@given(st.lists(st.text(max_size=30), unique=True, max_size=6))
def test_any_names_are_taken(names: list[str]) -> None:
    found = diagnose(names, QWEN)
    assert len({found.new_name(name) for name in names}) == len(names)


def test_a_model_with_such_a_module_keeps_it() -> None:
    own = base("module.layers.", more=["_orig_mod.x"])
    assert not diagnose(adapter("module.layers."), own).renamed
    assert not diagnose(list(own.tensors), own).renamed
    wrapped = base("base_model.model.layers.")
    assert not diagnose(adapter("base_model.model.layers."), wrapped).renamed


def test_module_without_a_base_is_a_wrapper_only_at_the_start_of_all() -> None:
    names = [*RIGHT, f"{P}module.x.lora_A.weight"]
    assert not diagnose(names).renamed


FULL_FAULTS: list[tuple[str, Callable[[str], str]]] = [
    ("_orig_mod.", lambda name: f"_orig_mod.{name}"),
    ("module.", lambda name: f"module.{name}"),
    ("_fsdp_wrapped_module.", lambda n: n.replace("layers", "_fsdp_wrapped_module.layers")),
    ("wrong-path", lambda name: f"{P}{name}"),
    ("wrong-path", lambda name: name.replace("model.layers.", "layers.")),
    ("wrong-path", lambda name: name.replace("model.layers.", "transformer.model.layers.")),
]


@pytest.mark.parametrize(
    ("fault", "spoil"),
    FULL_FAULTS,
)
def test_a_full_checkpoint_is_held_against_the_names_on_disk(
    fault: str, spoil: Callable[[str], str]
) -> None:
    names = [spoil(name) for name in QWEN.tensors]
    found = diagnose(names, QWEN)
    assert [found.new_name(name) for name in names] == list(QWEN.tensors)
    assert {rename.fault for rename in found.renames} == {fault}


@pytest.mark.parametrize(("disk", "file"), [("h.", "transformer.h."), ("transformer.h.", "h.")])
def test_gpt2_is_spelled_either_way(disk: str, file: str) -> None:
    known = base(disk)
    gpt2 = Base("gpt2", BaseSource.HEADERS, "gpt2", known.tensors, known.modules)
    names = [name.replace(disk, file, 1) for name in known.tensors]
    found = diagnose(names, gpt2)
    assert not found.renames and "transformers accepts" in found.facts[0]
    assert [found.new_name(name) for name in names] == list(known.tensors)


@pytest.mark.parametrize("spoil", [str, doubled, bare, named("default"), without_model])
def test_ninety_thousand_names_take_half_a_second(spoil: Callable[[str], str]) -> None:
    kinds = [f"mlp.experts.{e}.{k}" for e in range(250) for k in ("gate_proj", "up_proj", "down")]
    known = base(LAYERS, layers=60, kinds=kinds)
    names = [spoil(f"{P}{m}.lora_{x}.weight") for m in known.modules for x in "AB"]
    assert len(names) == 90_000
    taken: list[float] = []
    for _ in range(3):
        began = time.process_time()
        diagnose(names, known)
        taken.append(time.process_time() - began)
    assert min(taken) < 0.75  # half a second on a machine that does nothing else
