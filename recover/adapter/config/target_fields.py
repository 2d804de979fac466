"""Which modules and parameters carry a LoRA: proven, and spelled as a recipe does if it fits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import cast

from ....records.names import printable
from ....records.strict_json import Json
from ...base.model import Base, Module, ModuleKind
from ..kinds import expert_of, kind_of_module, layer_of
from ..patterns import ends_with_any, suffixes
from ..statement import Recipe, Source, Statement
from ..targets import selects, targeted_parameters
from .evidence import Explained, Ledger, Side
from .naming import modules_in_memory, shortest_endings
from .proof import Proof
from .statements import Statements

_NARROWING = ("exclude_modules", "layers_to_transform", "layers_pattern")
_WITH_TARGETS = ("target_modules", *_NARROWING)
_SHOWN = 3


@dataclass(frozen=True)
class _Spelling:
    """How one document says which modules carry a LoRA, and where it says so."""

    fields: Mapping[str, Json]
    said: Statement

    @property
    def names_modules(self) -> bool:
        """Tell whether it says which modules, and not only which parameters."""
        return "target_modules" in self.fields


def settle_targets(proof: Proof, statements: Statements, base: Base | None, ledger: Ledger) -> None:
    """Enter target_modules, target_parameters and what narrows them, proven by the tensors."""
    proven = frozenset(proof.targets) | frozenset(proof.parameters)
    base = _with_repeated_layers(base, proof)
    fitting: list[_Spelling] = []
    for spelling in _spellings(statements):
        found = _selected(spelling, proof, base)
        if not spelling.names_modules:
            parameters = frozenset(proof.parameters)
            if base is not None and found != parameters:
                _contradiction(spelling.said, found or parameters, parameters, proof, ledger)
        elif found is None or found == proven:
            fitting.append(spelling)
        elif not _means_the_same(spelling, found, proven, base, ledger):
            _contradiction(spelling.said, found, proven, proof, ledger)
    if any(conflict.field.startswith("target_") for conflict in ledger.conflicts):
        return
    count = f"{len(proof.targets):,} modules" + (
        f" and {len(proof.parameters):,} parameters" if proof.parameters else ""
    )
    origin = f"names of the tensors: {count}"
    usable = [s for s in fitting if base is not None and not _is_all_linear(s)]
    if usable:
        _spelled(usable[0], origin, ledger)
    else:
        _named(proof, base, origin, ledger)
    if base is None:
        ledger.cautions.append(
            "Without --base the modules are named in full, and nothing tells whether the adapter "
            "has all that it should have."
        )
    else:
        _irregular(proof, base, ledger)
        _rewritten(proof, base, ledger)


def _with_repeated_layers(base: Base | None, proof: Proof) -> Base | None:
    """Add modules of layers that only `layer_replication` makes, which is checked in the end."""
    beyond = [name for name in proof.targets if base is not None and name not in base.modules]
    if base is None or not beyond:
        return base
    repeated = {name: Module(name, ModuleKind.LINEAR, 0, 0) for name in beyond}
    return replace(base, modules={**base.modules, **repeated})


def _spellings(statements: Statements) -> list[_Spelling]:
    """Give how each document names targets: --set alone where it does."""
    setting = statements.set_on_command_line("target_modules") or (
        statements.set_on_command_line("target_parameters")
    )
    documents = (statements.settings,) if setting else statements.recipes
    found: list[_Spelling] = []
    for document in documents:
        said = next(iter(document.of("target_modules")), None) or next(
            iter(document.of("target_parameters")), None
        )
        if said is None or said.value is None:
            continue
        found += [_Spelling(_fields(document, statements, each), each) for each in _each(document)]
    return sorted(found, key=lambda each: each.said.source is not Source.STATED)


def _each(document: Recipe) -> tuple[Statement, ...]:
    return document.of("target_modules") or document.of("target_parameters")


def _fields(document: Recipe, statements: Statements, said: Statement) -> dict[str, Json]:
    fields: dict[str, Json] = {said.field: said.value}
    for name in ("target_parameters", *_NARROWING, "modules_to_save"):
        setting = statements.set_on_command_line(name)
        own = (setting,) if setting else document.of(name)
        if own:
            fields[name] = own[0].value
    return fields


def _is_all_linear(spelling: _Spelling) -> bool:
    value = spelling.fields.get("target_modules")
    return isinstance(value, str) and value.lower() == "all-linear"


def _selected(spelling: _Spelling, proof: Proof, base: Base | None) -> frozenset[str] | None:
    """Give what a spelling selects; None where only a base could tell.

    Without a base it is held against the adapter's own modules. Raises Unusable for bad patterns.
    """
    fields = spelling.fields
    if base is None:
        if _is_all_linear(spelling):
            return None
        selected = selects(fields)
        modules = frozenset(name for name in proof.targets if selected(name))
        value = fields.get("target_modules")
        listed = cast("list[str]", value) if isinstance(value, list) else list[str]()
        ends = {end for name in proof.targets for end in suffixes(name)}
        absent = [name for name in listed if name not in ends]
        return modules | frozenset(absent)
    selected = selects(fields, base.all_linear)
    saved = frozenset(base.modules)
    modules = frozenset(name for name in saved if selected(name))
    parameters = frozenset(p.name for p in targeted_parameters(fields, base))
    value = fields.get("target_parameters")
    named = frozenset(cast("list[str]", value)) if isinstance(value, list) else frozenset[str]()
    present = [name for name, module in base.modules.items() if not module.former]
    weights = [w for m in (*present, *base.routers) if ends_with_any(w := f"{m}.weight", named)]
    return modules | parameters | frozenset(weights)


def _means_the_same(
    spelling: _Spelling,
    found: frozenset[str],
    proven: frozenset[str],
    base: Base | None,
    ledger: Ledger,
) -> bool:
    """Tell whether the difference is that of transformers 4 and 5 in how they hold experts.

    Peft 0.21 with 5 targets the fused experts for `gate_proj`, `up_proj` and `down_proj`, and then
    no dense module of that name, as in shared experts (`_convert_peft_config_moe`; measured).
    """
    if base is None:
        return False
    wanted = _one_way(proven, base)
    if _is_all_linear(spelling):
        ways = ({*base.all_linear, *base.all_linear_parameters}, base.all_linear_former)
        return any(_one_way(way, base) == wanted for way in ways)
    held = _one_way(found, base)
    dropped = frozenset(n for n in held - wanted if _leaf(n) in base.converted_targets)
    if held - dropped != wanted or (dropped and not wanted & base.parameters.keys()):
        return False
    if dropped:
        ledger.explained.append(
            Explained(
                "target_modules",
                "fused-experts-only",
                f"{len(dropped):,} dense modules that {spelling.said.origin} names have no LoRA "
                f"({_some(sorted(dropped))}): PEFT with transformers 5 takes these names for the "
                "fused experts alone.",
            )
        )
    return True


def _one_way(names: Iterable[str], base: Base) -> frozenset[str]:
    """Name single experts and routers, as transformers 4 had them, by what holds them now.

    Their paths may differ: `block_sparse_moe.experts.3.w1` of Mixtral is now in
    `mlp.experts.gate_up_proj` of the same layer.
    """
    fused = {(layer_of(name), _leaf(name)): name for name in base.parameters}
    routers = {layer_of(name): name for name in base.routers}
    found: set[str] = set()
    for name in names:
        module = name.removesuffix(".weight")
        known = base.modules.get(module)
        if expert_of(name) is not None:
            leaf = "down_proj" if _leaf(name) in ("down_proj", "w2") else "gate_up_proj"
            found.add(fused.get((layer_of(name), leaf), name))
        elif module in base.routers or (known is not None and known.former):
            found.add(routers.get(layer_of(name), module))
        else:
            found.add(name)
    return frozenset(found)


def _leaf(name: str) -> str:
    return name.rpartition(".")[2]


def _contradiction(
    said: Statement,
    found: frozenset[str],
    proven: frozenset[str],
    proof: Proof,
    ledger: Ledger,
) -> None:
    lacking, beyond = sorted(found - proven), sorted(proven - found)
    parts: list[str] = []
    if lacking:
        parts.append(f"the adapter has no tensors for {len(lacking):,} of them ({_some(lacking)})")
    if beyond:
        parts.append(f"it has tensors for {len(beyond):,} others ({_some(beyond)})")
    ledger.conflict(
        said.field,
        f"{said.origin} targets {len(found):,} modules or parameters; {' and '.join(parts)}.",
        Side([*sorted({kind_of_module(n) for n in proof.ranks})[:20]], Source.PROVEN, "tensors"),
        Side.of(said),
    )


def _spelled(spelling: _Spelling, origin: str, ledger: Ledger) -> None:
    where = f"{origin}; spelled as by {spelling.said.origin}"
    fields = spelling.fields
    targets = fields.get("target_modules")
    ledger.know("target_modules", [] if targets is None else targets, Source.PROVEN, where)
    ledger.know("target_parameters", fields.get("target_parameters"), Source.PROVEN, where)
    for name in _NARROWING:
        ledger.know(name, fields.get(name), Source.PROVEN, where)


def _named(proof: Proof, base: Base | None, origin: str, ledger: Ledger) -> None:
    targets, parameters = list(proof.targets), list(proof.parameters)
    if base is not None:
        order = {name: number for number, name in enumerate(base.modules)}
        targets.sort(key=lambda name: order.get(name, len(order)))
        everything = modules_in_memory(base) | frozenset(targets)
        targets = shortest_endings(targets, everything)
        known = frozenset(base.parameters) | frozenset(base.tensors)
        parameters = shortest_endings(parameters, known | frozenset(parameters))
    ledger.know("target_modules", list[Json](targets), Source.PROVEN, origin)
    ledger.know(
        "target_parameters", list[Json](parameters) if parameters else None, Source.PROVEN, origin
    )
    for name in _NARROWING:
        ledger.know(name, None, Source.PROVEN, "target_modules names exactly the proven modules")


def _rewritten(proof: Proof, base: Base, ledger: Ledger) -> None:
    """Caution where peft 0.21 with transformers 5 would take names for fused experts'."""
    dense = [
        name
        for name in proof.targets
        if _leaf(name) in base.converted_targets
        and expert_of(name) is None
        and name not in base.routers
    ]
    if dense:
        ledger.cautions.append(
            f"{len(dense):,} dense modules have a LoRA ({_some(dense)}), and PEFT from 0.20 on "
            "with transformers 5 takes such names for the fused experts: it refuses them or leaves "
            "them out in silence. Load this adapter with transformers 4."
        )


def _irregular(proof: Proof, base: Base, ledger: Ledger) -> None:
    """Caution where a kind of module has no LoRA in some layers: perhaps tensors are missing."""
    there: dict[str, int] = {}
    for name in (*proof.targets, *proof.parameters):
        there[kind_of_module(name)] = there.get(kind_of_module(name), 0) + 1
    all_there: dict[str, int] = {}
    for name in (*base.modules, *base.parameters):
        all_there[kind_of_module(name)] = all_there.get(kind_of_module(name), 0) + 1
    partial = [
        f"{printable(kind)} ({count:,} of {all_there[kind]:,})"
        for kind, count in there.items()
        if kind in all_there and count < all_there[kind]
    ]
    if partial:
        ledger.cautions.append(
            f"Not every layer has a LoRA: {', '.join(partial[:_SHOWN])}. If that was not meant, "
            "tensors are missing."
        )


def _some(names: list[str]) -> str:
    shown = ", ".join(printable(name) for name in names[:_SHOWN])
    return shown + (", …" if len(names) > _SHOWN else "")
