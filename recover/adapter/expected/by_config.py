"""Derive from an adapter's configuration and its base every tensor that must be there.

Follows what peft 0.21.2 writes (`get_peft_model_state_dict`, `tuners/lora`), measured with it on
models of its kinds. Without a configuration, closure.py infers from the tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import cast

from ...base.model import Base, ExpertParameter, Module, ModuleKind
from ...formats.safetensors_errors import shown
from ...validation.result import Caution
from ..keys import Part, tensor_name
from ..kinds import expert_of
from ..patterns import by_pattern
from ..structure import Adapter
from ..targets import targeted_modules, targeted_parameters
from .embeddings import embeddings_saved, tied_tokens, trained_tokens
from .expectation import Expectation, ExpectedModule, Shape, lora_shapes
from .heads import heads
from .layer_replication import replicated
from .whole import other_matrices, parameters_in_memory, resize, resized_rows, saved_parameters
from .wrappers import expert_modules, wrappers

_CONVERTED = ("pissa", "olora", "corda", "lora_ga")


@dataclass(frozen=True)
class Said:
    """What is said of an adapter beyond its configuration, by recipes or on the command line.

    `normalised` divides the rank of experts by the routed number (Megatron-Bridge), `converted`
    doubles every rank (PiSSA and the like), `rows` is the size of a resized vocabulary, `replaced`
    names the fields of the configuration that come from a statement.
    """

    normalised: bool = False
    converted: bool = False
    rows: int | None = None
    replaced: frozenset[str] = field(default_factory=frozenset[str])


def expected_by_config(
    adapter: Adapter, base: Base, config: Mapping[str, object], said: Said = Said()
) -> Expectation:
    """Give what the configuration promises. The adapter only decides what it leaves open.

    That is the size of a resized vocabulary, and whether experts are named one by one, as under
    transformers 4, or fused. The configuration must be free of the fatal faults of
    config/faults.py. Raises Unusable for patterns that cannot be used.
    """
    cautions: list[Caution] = []
    base = replicated(base, config)
    rows = said.rows or resized_rows(adapter, base)
    if rows and base.input_embedding and rows != base.modules[base.input_embedding].inputs:
        cautions.append(_resized(base, rows))
        base = resize(base, rows)
    rank = _ranks(adapter, base, config, said, cautions)
    modules = tuple(_modules(adapter, base, config, rank))
    if config.get("use_bdlora"):
        modules = tuple(_in_blocks(adapter, module) for module in modules)
    whole, optional = _whole(adapter, base, config, modules)
    optional |= _variants(adapter, config, frozenset(module.name for module in modules))
    optional |= heads(adapter, base, config, whole, cautions)
    return Expectation(modules, whole, optional, tuple(cautions))


def _in_blocks(adapter: Adapter, module: ExpectedModule) -> ExpectedModule:
    """Take the second dimension that BD-LoRA gives A or B: a divisor of the usual one."""
    shapes = dict(module.shapes)
    for part in (Part.A, Part.B):
        stored = adapter.tensors.get(tensor_name(module.name, part, module.depth))
        if stored is None or len(stored.shape) != 2 or part not in shapes:
            continue
        usual, size = shapes[part][1], stored.shape[1]
        if 0 < size < usual and usual % size == 0:
            shapes[part] = (shapes[part][0], size)
    return module._replace(shapes=shapes)


def _variants(
    adapter: Adapter, config: Mapping[str, object], targeted: frozenset[str]
) -> dict[str, Shape | None]:
    """Allow what VeLoRA and MonteCLoRA keep beside a LoRA, where the configuration has them."""
    allowed = {
        part
        for part, key in ((Part.VELORA, "velora_config"), (Part.MONTECLORA, "monteclora_config"))
        if config.get(key)
    }
    return {
        name: None
        for name, key in adapter.keys.items()
        if key.part in allowed and key.module in targeted
    }


def _modules(
    adapter: Adapter,
    base: Base,
    config: Mapping[str, object],
    rank: Callable[[str], int],
) -> Iterator[ExpectedModule]:
    magnitude = config.get("use_dora") is True
    bias = config.get("lora_bias") is True
    diagonal = bool(config.get("kasa_config"))
    targeted = targeted_modules(config, base)
    parameters = list(targeted_parameters(config, base))
    fused: dict[str, int] = {}
    if _experts_are_fused(adapter, base):
        targeted, fused = _fuse(targeted, base, rank)
        known = {p.name for p in parameters} | fused.keys()
        parameters = [p for p in base.parameters.values() if p.name in known]
    for module in targeted:
        shapes = lora_shapes(module, rank(module.name), magnitude=magnitude, bias=bias)
        if diagonal:
            shapes[Part.DIAGONAL] = (rank(module.name),)
        yield ExpectedModule(module.name, 0, shapes)
    yield from wrappers(parameters, lambda name: fused.get(name) or rank(name))
    yield from _two_dimensional(config, base, rank, frozenset(m.name for m in targeted))


def _two_dimensional(
    config: Mapping[str, object],
    base: Base,
    rank: Callable[[str], int],
    targeted: frozenset[str],
) -> Iterator[ExpectedModule]:
    """Give modules named by their weight in `target_parameters`, as routers of experts are."""
    if not config.get("target_parameters"):
        return
    present = {name: module for name, module in base.modules.items() if not module.former}
    modules = {**present, **other_matrices(base), **base.routers}
    weights = {
        f"{m.name}.weight": ExpertParameter(f"{m.name}.weight", 1, m.inputs, m.outputs)
        for m in modules.values()
        if m.kind is ModuleKind.LINEAR and m.name not in targeted
    }
    for parameter in targeted_parameters(config, replace(base, parameters=weights)):
        module = modules[parameter.name.removesuffix(".weight")]
        yield ExpectedModule(module.name, 0, lora_shapes(module, rank(parameter.name)))


def _experts_are_fused(adapter: Adapter, base: Base) -> bool:
    """Tell whether the tensors wrap fused experts, whatever names the configuration uses."""
    experts = expert_modules(base)
    return any(name in experts for name, _ in adapter.modules) and not any(
        expert_of(name) is not None for name, _ in adapter.modules
    )


def _fuse(
    targeted: tuple[Module, ...], base: Base, rank: Callable[[str], int]
) -> tuple[tuple[Module, ...], dict[str, int]]:
    """Replace single experts by the parameters that hold them; gate and up add up their ranks.

    Peft 0.21 converts such configurations on loading (`_convert_peft_config_moe`).
    """
    experts = expert_modules(base)
    kept: list[Module] = []
    ranks: dict[str, dict[str, int]] = {}
    for module in targeted:
        holder, middle, rest = module.name.partition(".experts.")
        if not middle or expert_of(module.name) is None:
            kept.append(module)
            continue
        leaf = rest.rpartition(".")[2]
        down = leaf in ("down_proj", "w2")
        for parameter in experts.get(f"{holder}.experts", ()):
            if parameter.name.endswith("down_proj") == down:
                ranks.setdefault(parameter.name, {})[leaf] = rank(module.name)
    return tuple(kept), {name: sum(each.values()) for name, each in ranks.items()}


def _ranks(
    adapter: Adapter,
    base: Base,
    config: Mapping[str, object],
    said: Said,
    cautions: list[Caution],
) -> Callable[[str], int]:
    """Give the rank of a module or parameter, with what lawfully changes it."""
    r = cast("int", config.get("r", 8))
    pattern = {
        key: value
        for key, value in cast("dict[str, object]", config.get("rank_pattern") or {}).items()
        if isinstance(value, int) and not isinstance(value, bool) and value > 0
    }
    look_up = by_pattern(pattern)
    doubled = 2 if is_converted(adapter, config, said) else 1
    if doubled == 2:
        cautions.append(
            Caution(
                "converted-rank",
                f"The tensors have rank {2 * r}, twice the stated {r}: as a conversion of PiSSA, "
                "OLoRA or their kin to plain LoRA writes them, which doubles lora_alpha too.",
            )
        )
    routed = _routed(base) if said.normalised else 1

    def rank(name: str) -> int:
        found = look_up(name) or r
        if routed > 1 and ".experts." in f"{name}.":
            found = max(1, found // routed)
        return found * doubled

    return rank


def is_converted(adapter: Adapter, config: Mapping[str, object], said: Said) -> bool:
    """Accept twice the stated rank where a conversion is stated, and all tensors show it."""
    r = config.get("r")
    if "r" not in said.replaced or not isinstance(r, int):
        return False
    init = str(config.get("init_lora_weights")).lower()
    stated = said.converted or init.startswith(_CONVERTED)
    return stated and bool(adapter.ranks) and set(adapter.ranks) == {2 * r}


def _routed(base: Base) -> int:
    value = (base.config or {}).get("num_experts_per_tok")
    return value if isinstance(value, int) and value > 0 else 1


def _whole(
    adapter: Adapter, base: Base, config: Mapping[str, object], modules: tuple[ExpectedModule, ...]
) -> tuple[dict[str, Shape], dict[str, Shape | None]]:
    """Give the parameters saved whole that must be there, and those that may."""
    whole: dict[str, Shape] = {}
    optional: dict[str, Shape | None] = {}
    targeted = {module.name: module for module in modules if module.depth == 0}
    saved = config.get("modules_to_save")
    bias = config.get("bias", "none")
    if saved or bias == "all":
        in_memory = parameters_in_memory(base)
        if isinstance(saved, list):
            chosen = tuple(n for n in cast("list[object]", saved) if isinstance(n, str) and n)
            for name, shape in saved_parameters(chosen, in_memory).items():
                whole[tensor_name(name.rpartition(".")[0], Part.WHOLE, 0, _leaf(name))] = shape
        if bias == "all":
            for name, shape in in_memory.items():
                module, _, leaf = name.rpartition(".")
                if leaf != "bias":
                    continue
                if module in targeted:
                    whole[tensor_name(module, Part.BASE_BIAS)] = shape
                else:
                    whole[tensor_name(module, Part.WHOLE, 0, leaf)] = shape
    if bias == "lora_only":
        for name in targeted:
            if name in base.modules and base.modules[name].bias:
                whole[tensor_name(name, Part.BASE_BIAS)] = (base.modules[name].outputs,)
    whole |= _trainable_tokens(base, config)
    optional |= tied_tokens(base, whole)
    resized, copied = embeddings_saved(adapter, base, targeted)
    optional |= {name: shape for name, shape in copied.items() if name not in whole}
    optional |= _tied_embeddings(base, config, targeted, whole)
    whole |= {name: shape for name, shape in resized.items() if name not in optional}
    return whole, {name: shape for name, shape in optional.items() if name not in whole}


def _leaf(name: str) -> str:
    return name.rpartition(".")[2]


def _trainable_tokens(base: Base, config: Mapping[str, object]) -> dict[str, Shape]:
    """Give the deltas of trainable tokens: (tokens, dimension); a tied head saves none."""
    found: dict[str, Shape] = {}
    for module, tokens in trained_tokens(base, config).items():
        known = base.modules[module]
        width = known.outputs if known.kind is ModuleKind.EMBEDDING else known.inputs
        found[tensor_name(module, Part.TOKEN_DELTA)] = (len(tokens), width)
    return found


def _tied_embeddings(
    base: Base,
    config: Mapping[str, object],
    targeted: Mapping[str, ExpectedModule],
    whole: Mapping[str, Shape],
) -> dict[str, Shape | None]:
    """Give what `ensure_weight_tying` lets PEFT save of a tied head."""
    found: dict[str, Shape | None] = {}
    head = base.output_embedding
    if config.get("ensure_weight_tying") is True and head is not None and head in base.modules:
        if base.input_embedding is not None and base.input_embedding in targeted:
            r = targeted[base.input_embedding].shapes[Part.EMBEDDING_A][0]
            tied = ExpectedModule(head, 0, lora_shapes(base.modules[head], r))
            found |= tied.tensors()
            found[tensor_name(head, Part.BASE_WEIGHT)] = None
        if any(base.input_embedding and base.input_embedding in name for name in whole):
            found[tensor_name(head, Part.WHOLE, 0, "weight")] = None
    return found


def _resized(base: Base, rows: int) -> Caution:
    known = base.modules[base.input_embedding or ""].inputs
    return Caution(
        "resized-vocabulary",
        f"The embeddings have {rows:,} rows and those of {shown(base.label)} {known:,}: the "
        f"vocabulary was resized. Call `resize_token_embeddings({rows})` before loading.",
    )
