"""Infer what must be there from what is: what one layer has, all layers of the base should.

What is absent from every layer cannot be missed this way; only a configuration or recipe tells.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from ...base.model import Base, ExpertParameter, Module, ModuleKind
from ...formats.safetensors_errors import shown
from ...validation.result import Caution
from ..keys import Part, tensor_name
from ..kinds import kind_of_module
from ..structure import Adapter, LoraModule
from .embeddings import embeddings_saved
from .expectation import Expectation, ExpectedModule, Shape, lora_shapes, wrapper_shapes
from .heads import heads
from .whole import is_copy, other_matrices, parameters_in_memory, resize, resized_rows
from .wrappers import expert_modules, identify, transposed

_EXTRA = (Part.MAGNITUDE, Part.B_BIAS, Part.DIAGONAL)


def expected_by_closure(adapter: Adapter, base: Base) -> Expectation:
    """Expect every base module of each kind that occurs, with the rank that most of it have."""
    cautions: list[Caution] = []
    rows = resized_rows(adapter, base)
    if rows and base.input_embedding:
        known = base.modules[base.input_embedding].inputs
        text = (
            f"The embeddings have {rows:,} rows and those of {shown(base.label)} {known:,}: "
            f"the vocabulary was resized. Call `resize_token_embeddings({rows})` before loading."
        )
        cautions.append(Caution("resized-vocabulary", text))
        base = resize(base, rows)
    modules = (*_linear(adapter, base, cautions), *_fused(adapter, base, cautions))
    whole, optional = _whole(adapter, base, cautions)
    return Expectation(modules, whole, optional, tuple(cautions), inferred=True)


def _linear(adapter: Adapter, base: Base, cautions: list[Caution]) -> Iterator[ExpectedModule]:
    modules: Mapping[str, Module] = base.modules
    fused = expert_modules(base)
    if any(name not in modules and name not in fused for name, _ in adapter.modules):
        modules = {**modules, **other_matrices(base)}
    present: dict[str, list[LoraModule]] = {}
    for (name, depth), own in adapter.modules.items():
        if name in modules and depth == 0:
            present.setdefault(kind_of_module(name), []).append(own)
    wanted: dict[str, list[Module]] = {}
    for module in modules.values():
        kind = kind_of_module(module.name)
        if kind in present:
            wanted.setdefault(kind, []).append(module)
    for kind, found in present.items():
        ranks = {m.name: rank for m in found if (rank := _own_rank(m, adapter)) is not None}
        usual = _most(ranks.values())
        if usual is None:
            usual = _most(m.first for m in found if m.first) or 1
        extra = {part: _most(part in m.parts for m in found) is True for part in _EXTRA}
        deviating = sorted(name for name, rank in ranks.items() if rank != usual)
        if deviating:
            cautions.append(_deviates(kind, usual, deviating, ranks))
        for module in wanted[kind]:
            rank = ranks.get(module.name, usual)
            shapes = lora_shapes(
                module, rank, magnitude=extra[Part.MAGNITUDE], bias=extra[Part.B_BIAS]
            )
            if extra[Part.DIAGONAL]:
                shapes[Part.DIAGONAL] = (rank,)
            yield ExpectedModule(module.name, 0, shapes)


def _own_rank(module: LoraModule, adapter: Adapter) -> int | None:
    """Give the rank that A and B of a module agree on; None when they do not, or one lacks."""
    a, b = (Part.EMBEDDING_A, Part.EMBEDDING_B) if module.embedding else (Part.A, Part.B)
    if not module.whole:
        return None
    first = adapter.tensors[_stored(adapter, module, a)].shape
    second = adapter.tensors[_stored(adapter, module, b)].shape
    agree = len(first) == len(second) == 2 and first[0] == second[1] and first[0] > 0
    return first[0] if agree else None


def _stored(adapter: Adapter, module: LoraModule, part: Part) -> str:
    return tensor_name(module.name, part, module.depth)


def _fused(adapter: Adapter, base: Base, cautions: list[Caution]) -> Iterator[ExpectedModule]:
    experts = expert_modules(base)
    parameters = identify(adapter, experts)
    kinds: dict[tuple[str, str, int], list[tuple[LoraModule, ExpertParameter]]] = {}
    for place, parameter in parameters.items():
        key = (kind_of_module(place[0]), parameter.name.rpartition(".")[2], place[1])
        kinds.setdefault(key, []).append((adapter.modules[place], parameter))
    for (kind, leaf, depth), found in kinds.items():
        ranks = [m.first // p.experts for m, p in found if m.first and m.first % p.experts == 0]
        usual = _most(ranks) or 1
        turned = sum(transposed(module, parameter) for module, parameter in found)
        if turned:
            cautions.append(_turned(kind, leaf, turned))
        for module, held in experts.items():
            if kind_of_module(module) != kind:
                continue
            for parameter in held:
                if parameter.name.rpartition(".")[2] == leaf:
                    yield ExpectedModule(module, depth, wrapper_shapes(parameter, usual))


def _whole(
    adapter: Adapter, base: Base, cautions: list[Caution]
) -> tuple[dict[str, Shape], dict[str, Shape | None]]:
    """Accept what is saved whole where the base has it, and expect its like of every layer."""
    whole: dict[str, Shape] = {}
    optional: dict[str, Shape | None] = {}
    for name, key in adapter.keys.items():
        if key.part in (Part.VELORA, Part.MONTECLORA) and key.module in base.modules:
            optional[name] = None
    keys = [
        key
        for key in adapter.keys.values()
        if not key.part.is_lora and not is_copy(key.module, adapter)
    ]
    if not keys:
        return whole, optional
    in_memory = parameters_in_memory(base)
    kinds = {
        (kind_of_module(key.module), key.leaf if key.part is Part.WHOLE else key.part.value)
        for key in keys
        if key.part in (Part.WHOLE, Part.BASE_BIAS)
    }
    for name, shape in in_memory.items():
        module, _, leaf = name.rpartition(".")
        if (kind_of_module(module), leaf) in kinds:
            whole[tensor_name(module, Part.WHOLE, 0, leaf)] = shape
        elif leaf == "bias" and (kind_of_module(module), Part.BASE_BIAS.value) in kinds:
            whole[tensor_name(module, Part.BASE_BIAS)] = shape
    resized, copied = embeddings_saved(adapter, base, {name for name, _ in adapter.modules})
    whole |= resized
    optional |= {name: shape for name, shape in copied.items() if name not in whole}
    for name, key in adapter.keys.items():
        if key.part is Part.BASE_WEIGHT and name not in whole and name not in optional:
            optional[name] = in_memory.get(f"{key.module}.weight")
        elif key.part is Part.TOKEN_DELTA and key.module in base.modules:
            wrapped = base.modules[key.module]
            embedding = wrapped.kind is ModuleKind.EMBEDDING
            count = adapter.tensors[name].shape[:1]
            optional[name] = (*count, wrapped.outputs if embedding else wrapped.inputs)
    optional |= heads(adapter, base, {}, {**whole, **dict.fromkeys(optional, ())}, cautions)
    weights = sorted(m for m, leaves in adapter.whole.items() if "weight" in leaves and m in
                     base.modules)  # fmt: skip
    if weights:
        cautions.append(
            Caution(
                "saved-whole",
                f"{len(weights):,} modules are saved whole and replace those of the base, such as "
                f"{shown(weights[0])}: right only if modules_to_save named them.",
            )
        )
    return whole, optional


def _most(values: Iterable[int | bool | None]) -> int | bool | None:
    counted = Counter(value for value in values if value is not None)
    return counted.most_common(1)[0][0] if counted else None


def _deviates(kind: str, usual: int, names: list[str], ranks: Mapping[str, int]) -> Caution:
    return Caution(
        "mixed-ranks",
        f"{len(names):,} modules of {shown(kind)} have another rank than {usual}, such as "
        f"{shown(names[0])} with {ranks[names[0]]}: right only if rank_pattern says so.",
    )


def _turned(kind: str, leaf: str, count: int) -> Caution:
    return Caution(
        "old-expert-layout",
        f"A of {count:,} {shown(kind)}.{shown(leaf)} meets the outputs, as older "
        "versions of PEFT wrote fused experts; peft 0.21 refuses these shapes.",
    )
