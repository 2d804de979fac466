"""What the tensors prove of a configuration; nothing here comes from a recipe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ....errors import DoesNotHold, Unusable
from ....records.names import printable
from ...base.model import Base
from ..expected.wrappers import expert_modules, identify
from ..keys import Part
from ..kinds import expert_of, in_order
from ..structure import Adapter, LoraModule

_SHOWN = 3
# Variants whose own settings no tensor tells, by the part that gives them away.
VARIANTS = {
    Part.DIAGONAL: "kasa_config",
    Part.VELORA: "velora_config",
    Part.MONTECLORA: "monteclora_config",
}
_NO_EXPERTS = (
    "State the base, whose config.json tells their number: --base Qwen/Qwen3-30B-A3B or a folder."
)


class TiedHead(NamedTuple):
    """The head beside a targeted embedding, and whether its LoRA is the embedding's, turned."""

    name: str
    equal: bool


@dataclass(frozen=True)
class Proof:
    """The proven parts, by names of modules and parameters in memory.

    `ranks` has every module of `targets` and every parameter of `parameters`. `saved` are modules
    saved whole, `embeddings` those of them that are the base's embeddings, with their rows;
    `resized` is the number of rows where it differs from the base's. `tokens` counts the trainable
    tokens of each embedding. `variants` are fields whose contents must be stated.
    `divided` means that inputs or ranks are a fraction of what they should be, as in BD-LoRA.
    """

    targets: tuple[str, ...]
    parameters: tuple[str, ...]
    ranks: Mapping[str, int] = field(repr=False)
    places: Mapping[tuple[str, int], str] = field(repr=False)
    use_dora: bool = False
    lora_bias: bool = False
    bias: str = "none"
    saved: tuple[str, ...] = ()
    embeddings: Mapping[str, int] = field(default_factory=dict[str, int])
    resized: int | None = None
    tokens: Mapping[str, int] = field(default_factory=dict[str, int])
    variants: tuple[str, ...] = ()
    divided: bool = False
    tied_head: bool | None = None

    @property
    def usual_rank(self) -> int | None:
        """Give the most common rank; of equally common ones, the largest."""
        counts = Counter(self.ranks.values())
        return max(counts, key=lambda rank: (counts[rank], rank), default=None)


def prove(adapter: Adapter, base: Base | None, tied_head: TiedHead | None = None) -> Proof:
    """Read off an adapter all that its tensors prove.

    `tied_head` says whether the head's LoRA is the embedding's, which then is no target of its own.
    Raises DoesNotHold for an adapter that is damaged or that the base does not fit, Unusable where
    only a base could tell.
    """
    _demand_pairs(adapter)
    wrapped = _wrapped(adapter, base)
    ranks: dict[str, int] = {}
    places: dict[tuple[str, int], str] = {}
    targets: list[str] = []
    for place, module in adapter.modules.items():
        name, experts = wrapped.get(place, (module.name, 1))
        first = module.first
        assert first is not None
        if first % experts or not first:
            raise DoesNotHold(
                f"{printable(name)}: {first} rows of lora_A are no multiple of {experts} experts.",
                remedy="`reef-recover validate` tells which tensors do not fit the base.",
            )
        places[place] = name
        if tied_head is not None and tied_head.equal and name == tied_head.name:
            continue
        ranks[name] = first // experts
        if place not in wrapped:
            targets.append(name)
    divided = base is not None and _fit_base(adapter, base, frozenset(wrapped))
    divided |= _has_blocks(adapter)
    saved, embeddings, resized = _saved(adapter, base)
    return Proof(
        targets=tuple(sorted(targets, key=in_order)),
        parameters=tuple(sorted((name for name, _ in wrapped.values()), key=in_order)),
        ranks=ranks,
        places=places,
        use_dora=_all_or_none(adapter, Part.MAGNITUDE, frozenset(wrapped)),
        lora_bias=_all_or_none(adapter, Part.B_BIAS, frozenset(wrapped)),
        bias=_bias(adapter),
        saved=saved,
        embeddings=embeddings,
        resized=resized,
        tokens={name: shape[0] for name, shape in adapter.token_deltas.items() if shape},
        variants=tuple(name for part, name in VARIANTS.items() if part in adapter.parts),
        divided=divided,
        tied_head=None if tied_head is None else tied_head.equal,
    )


def _demand_pairs(adapter: Adapter) -> None:
    if adapter.strange:
        raise DoesNotHold(
            f"{len(adapter.strange):,} tensors have names that are not PEFT's: "
            f"{_some(adapter.strange)}.",
            remedy="`reef-recover validate` names the fault, and `repair` mends what can be.",
        )
    if not adapter.modules and not adapter.token_deltas:
        raise DoesNotHold(
            "No tensor belongs to a LoRA: there is nothing to write a configuration for.",
            remedy="Name an adapter; `reef-recover validate` tells what this is.",
        )
    empty = [n for n, t in adapter.tensors.items() if not t.nbytes]
    halves = [m.name for m in adapter.modules.values() if not m.whole or not m.first]
    if empty or halves:
        what = (
            f"{len(empty):,} tensors are empty, as ZeRO-3 leaves them: {_some(empty)}"
            if empty
            else f"{len(halves):,} modules have only one of A and B: {_some(halves)}"
        )
        raise DoesNotHold(
            f"The adapter is damaged: {what}.",
            remedy="`reef-recover validate` lists what is missing; `repair` restores what it can.",
        )
    for name, key in adapter.keys.items():
        if key.part in (Part.A, Part.B, Part.EMBEDDING_A, Part.EMBEDDING_B):
            shape = adapter.tensors[name].shape
            module = adapter.modules[key.module, key.depth]
            b = key.part in (Part.B, Part.EMBEDDING_B)
            rank = (shape[1] if b else shape[0]) if len(shape) > 1 else None
            if rank != module.first and not _is_block(rank, module.first, key.part):
                raise DoesNotHold(
                    f"The ranks of A and B of {printable(key.module)} differ.",
                    remedy="`reef-recover validate` lists every tensor that does not fit.",
                )


def _is_block(rank: int | None, whole: int | None, part: Part) -> bool:
    """Tell whether B may be block-diagonal, as BD-LoRA stores it: with its rank divided."""
    return part is Part.B and bool(rank and whole and whole % rank == 0)


def _has_blocks(adapter: Adapter) -> bool:
    return any(
        key.part is Part.B
        and adapter.tensors[name].shape[1] != adapter.modules[key.module, key.depth].first
        for name, key in adapter.keys.items()
    )


def _wrapped(adapter: Adapter, base: Base | None) -> dict[tuple[str, int], tuple[str, int]]:
    """Map wrappers of expert parameters to the parameter's name and the number of experts."""
    if base is None:
        fused = [m.name for m in adapter.modules.values() if m.depth or _is_fused(m)]
        if fused:
            raise Unusable(
                f"{printable(fused[0])} holds fused experts, and the tensors do not tell how many.",
                remedy=_NO_EXPERTS,
            )
        return {}
    found = identify(adapter, expert_modules(base))
    single = any(expert_of(module.name) is not None for module in adapter.modules.values())
    routers = {
        place: (f"{module.name}.weight", 1)
        for place, module in adapter.modules.items()
        if module.name in base.routers and not single
    }
    return {p: (e.name, e.experts) for p, e in found.items()} | routers


def _is_fused(module: LoraModule) -> bool:
    return module.name.endswith(".experts")


def _fit_base(adapter: Adapter, base: Base, wrapped: frozenset[tuple[str, int]]) -> bool:
    """Demand that the base has the modules, in these sizes; True if inputs are divided.

    Layers beyond the base's last are left to `layer_replication`.
    """
    divided = False
    for place, module in adapter.modules.items():
        if place in wrapped:
            continue
        known = base.modules.get(module.name)
        if known is None:
            if _is_beyond(module.name, base):
                continue
            raise DoesNotHold(
                f"The base {base.label} has no module {printable(module.name)}.",
                remedy="`reef-recover validate PATH --base BASE` tells which names would fit it.",
            )
        rows = module.inputs if module.embedding else None
        sizes = (module.inputs, module.outputs)
        if sizes == (known.inputs, known.outputs) or (rows and module.outputs == known.outputs):
            continue
        if known.name == base.output_embedding and module.inputs == known.inputs:
            continue  # a resized vocabulary
        if module.outputs == known.outputs and module.inputs and known.inputs % module.inputs == 0:
            divided = True
            continue
        raise DoesNotHold(
            f"{printable(module.name)} is {known.inputs} to {known.outputs} in {base.label}, and "
            f"{module.inputs} to {module.outputs} in the adapter: this is not its base.",
            remedy="Name the model that the adapter was trained on.",
        )
    return divided


def _is_beyond(name: str, base: Base) -> bool:
    if base.layers is None:
        return False
    numbers = [int(s) for s in name.split(".") if s.isascii() and s.isdigit() and len(s) < 6]
    return bool(numbers) and numbers[0] >= base.layers


def _all_or_none(adapter: Adapter, part: Part, wrapped: frozenset[tuple[str, int]]) -> bool:
    able = [
        module
        for place, module in adapter.modules.items()
        if place not in wrapped and not (part is Part.B_BIAS and module.embedding)
    ]
    having = [module for module in able if part in module.parts]
    if having and len(having) != len(able):
        without = next(module for module in able if part not in module.parts)
        raise DoesNotHold(
            f"{len(having):,} of {len(able):,} modules have a {part.value}; "
            f"{printable(without.name)} has none: tensors are missing.",
            remedy="`reef-recover validate` lists them.",
        )
    return bool(having)


def _bias(adapter: Adapter) -> str:
    if any(set(leaves) == {"bias"} for leaves in adapter.whole.values()):
        return "all"
    return "lora_only" if Part.BASE_BIAS in adapter.parts else "none"


def _saved(
    adapter: Adapter, base: Base | None
) -> tuple[tuple[str, ...], dict[str, int], int | None]:
    """Give the modules saved whole, the embeddings among them, and the rows of a resized one."""
    saved = [
        name
        for name, leaves in adapter.whole.items()
        if set(leaves) != {"bias"} and not is_copy(name, adapter)
    ]
    embeddings: dict[str, int] = {}
    rows: set[int] = set()
    for name, key in adapter.keys.items():
        shape = adapter.tensors[name].shape
        weight = key.part is Part.BASE_WEIGHT or (key.part is Part.WHOLE and key.leaf == "weight")
        if weight and len(shape) == 2 and is_embedding(key.module, base):
            rows.add(shape[0])
            if key.part is Part.WHOLE:
                embeddings[key.module] = shape[0]
        if key.part is Part.EMBEDDING_A and len(shape) == 2:
            rows.add(shape[1])
    known = base.modules.get(base.input_embedding or "") if base else None
    differing = {count for count in rows if known is not None and count != known.inputs}
    if len(differing) > 1 or (differing and rows != differing):
        raise DoesNotHold(
            f"The embeddings disagree on the number of rows: {sorted(rows)}.",
            remedy="`reef-recover validate` lists the tensors.",
        )
    resized = differing.pop() if differing else None
    return tuple(sorted(saved, key=in_order)), embeddings, resized


def is_copy(module: str, adapter: Adapter) -> bool:
    """Tell a copy that PEFT adds of a saved embedding of a resized vocabulary, by its wrapper."""
    parent, _, last = module.rpartition(".")
    return last in ("modules_to_save", "original_module") and parent in adapter.whole


def is_embedding(module: str, base: Base | None) -> bool:
    """Tell whether a module is the input or the output embedding."""
    if base is not None and (base.input_embedding or base.output_embedding):
        return module in (base.input_embedding, base.output_embedding)
    return module.rpartition(".")[2] in ("embed_tokens", "lm_head", "wte")


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    shown = ", ".join(printable(name) for name in listed[:_SHOWN])
    return shown + (f" and {len(listed) - _SHOWN:,} more" if len(listed) > _SHOWN else "")
