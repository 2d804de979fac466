"""Ranks: what the tensors prove, held against what is stated, with the lawful ways to differ."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import cast

from ....records.names import printable
from ....records.strict_json import Json
from ...base.model import Base
from ..patterns import by_pattern
from ..statement import Recipe, Source, Statement
from .evidence import Explained, Ledger, Side
from .proof import Proof
from .statements import Statements

# Initialisations after which PEFT can save the difference to the initial adapter, of twice the
# rank (`path_initial_model_for_weight_conversion`, peft 0.21 peft_model.py).
CONVERTIBLE = ("pissa", "olora", "corda", "lora_ga")
GATE_UP = r".*\.gate_up_proj"
EXPERTS = r".*\.experts\..*"


@dataclass(frozen=True)
class Reading:
    """How a document's ranks become the tensors': factors that have a lawful cause.

    `doubled` is 2 after a conversion, `gate_up` 2 where gate and up are fused, `divisor` the number
    of experts routed to where Megatron-Bridge divides the rank. `spread` means that EVA gave each
    module its own rank.
    """

    doubled: int = 1
    gate_up: int = 1
    divisor: int = 1
    spread: bool = False

    @property
    def plain(self) -> bool:
        """Tell whether nothing is changed."""
        return self == Reading()

    def alpha_factor(self, rslora: bool) -> float:
        """Give what a conversion multiplies alpha by, so that the scale stays."""
        if self.doubled == 1:
            return 1
        return math.sqrt(2) if rslora else 2

    def rank(self, name: str, stated: int) -> int:
        """Give the rank that the tensors must have."""
        rank = stated * self.doubled
        if is_expert(name):
            rank = rank // self.divisor if rank % self.divisor == 0 else 0
        return rank * self.gate_up if name.endswith(".gate_up_proj") else rank


@dataclass(frozen=True)
class Ranks:
    """The rank in the configuration, the pattern of others, and how documents are to be read.

    `readings` is keyed by the document's label; `reading` is what holds for the whole. `refuted`
    are documents of another rank, which the command line overruled. `mixed` says whether modules
    differ in rank, `perhaps_fused` whether those of gate_up_proj may be sums of two, as nobody
    states the rank of the run.
    """

    r: int
    pattern: Mapping[str, int]
    reading: Reading = Reading()
    readings: Mapping[str, Reading] = field(default_factory=dict[str, Reading])
    refuted: tuple[str, ...] = ()
    mixed: bool = False
    perhaps_fused: bool = False


def is_expert(name: str) -> bool:
    """Tell whether a module or parameter belongs to an expert."""
    return ".experts." in name


def initialisation(statements: Statements) -> tuple[Statement, ...]:
    """Give the statements of the initialisation, best source only."""
    return statements.candidates("init_lora_weights")


def settle_ranks(
    proof: Proof, statements: Statements, base: Base | None, ledger: Ledger
) -> Ranks | None:
    """Enter r and rank_pattern, proven; None after a conflict or without any LoRA module."""
    usual = proof.usual_rank
    if usual is None:
        return None
    setting = statements.set_on_command_line("r")
    readings: dict[str, Reading] = {}
    stated: list[tuple[Statement, Reading, Mapping[str, int]]] = []
    refuted: list[str] = []
    failed = False
    for document in statements.documents():
        decides = setting is None or document is statements.settings
        for said in document.of("r"):
            pattern = _pattern(document, statements)
            reading = _explain(proof, said, pattern, document, statements, base)
            if reading is None and decides:
                failed = True
                _contradiction(proof, said, pattern, ledger)
            elif reading is None:
                refuted.append(document.label)
            else:
                readings[document.label] = reading
                if decides:
                    stated.append((said, reading, pattern or {}))
    if failed:
        return None
    if not stated:
        pattern = _pattern(statements.settings, statements)
        if pattern is not None and statements.set_on_command_line("rank_pattern"):
            found = _by_setting(proof, usual, pattern, statements, ledger)
        else:
            found = _enter(proof, usual, {}, Reading(), statements, ledger, None)
        fused = _perhaps_fused(proof, base)
        return replace(found, refuted=tuple(refuted), perhaps_fused=fused) if found else None
    said, reading, pattern = stated[0]
    r = cast("int", said.value) * reading.doubled
    pattern = {key: rank * reading.doubled for key, rank in pattern.items()}
    lawful = next((each for each in readings.values() if not each.plain), reading)
    ranks = _enter(proof, r, pattern, lawful, statements, ledger, said)
    return replace(ranks, readings=readings, refuted=tuple(refuted))


def _by_setting(
    proof: Proof,
    usual: int,
    pattern: Mapping[str, int],
    statements: Statements,
    ledger: Ledger,
) -> Ranks | None:
    """Hold a rank_pattern of the command line, given without r, against the tensors."""
    look_up = by_pattern(pattern)
    free = {rank for name, rank in proof.ranks.items() if look_up(name) is None} or {usual}
    setting = statements.set_on_command_line("rank_pattern")
    assert setting is not None
    wrong = next((n for n, r in proof.ranks.items() if look_up(n) not in (None, r)), None)
    if wrong is not None or len(free) > 1:
        _contradiction(proof, setting, pattern, ledger)
        return None
    return _enter(proof, free.pop(), pattern, Reading(), statements, ledger, setting)


def _pattern(document: Recipe, statements: Statements) -> Mapping[str, int] | None:
    """Give the rank_pattern that goes with a document's r: --set's, its own, or another's."""
    setting = statements.set_on_command_line("rank_pattern")
    found = (setting,) if setting else document.of("rank_pattern")
    if not found:
        found = statements.of_recipes("rank_pattern", Source.STATED)
    return cast("Mapping[str, int]", found[0].value) if found else None


def _explain(
    proof: Proof,
    said: Statement,
    pattern: Mapping[str, int] | None,
    document: Recipe,
    statements: Statements,
    base: Base | None,
) -> Reading | None:
    """Find the lawful reading under which a document's ranks are those of the tensors."""
    r = cast("int", said.value)
    look_up: Callable[[str], int | None] = by_pattern(pattern or {})
    for reading in _readings(document, statements, base):
        wanted = {name: reading.rank(name, look_up(name) or r) for name in proof.ranks}
        if wanted == proof.ranks:
            return reading
    if _redistributed(document, statements):
        return Reading(spread=True)
    present = set(proof.ranks.values())
    if pattern is None and len(present) > 1 and r in present:
        return Reading()  # nothing is said of a pattern, which the tensors prove
    return None


def _redistributed(document: Recipe, statements: Statements) -> bool:
    """Tell whether EVA spread the ranks over the modules by what it measured."""
    found = document.of("init_lora_weights") or initialisation(statements)
    return any(str(each.value).lower() == "eva" for each in found)


def _readings(document: Recipe, statements: Statements, base: Base | None) -> Iterator[Reading]:
    for doubled in (1, 2) if _may_be_converted(document, statements) else (1,):
        for divisor in (1, *_divisors(document, statements, base)):
            for gate_up in (1, 2) if _may_be_fused(document, statements) else (1,):
                yield Reading(doubled, gate_up, divisor)


def _may_be_converted(document: Recipe, statements: Statements) -> bool:
    found = (
        *document.of("converted_initialisation"),
        *statements.candidates("converted_initialisation"),
    )
    if any(each.value is True for each in found):
        return True
    inits = document.of("init_lora_weights") or initialisation(statements)
    return any(str(each.value).lower().startswith(CONVERTIBLE) for each in inits)


def _may_be_fused(document: Recipe, statements: Statements) -> bool:
    """Tell whether a document names gate and up apart, which PEFT fuses into one parameter."""
    found = document.of("target_parameters") or statements.candidates("target_parameters")
    named = [name for each in found if isinstance(each.value, list) for name in each.value]
    return not any(str(name).endswith("gate_up_proj") for name in named)


def _perhaps_fused(proof: Proof, base: Base | None) -> bool:
    """Tell whether ranks of gate_up_proj may be sums of gate_proj's and up_proj's, as PEFT's are.

    They may be where they are twice the others, and where there are no others to tell them by.
    """
    if base is None or "gate_up_proj" not in base.converted_targets.values():
        return False
    gates = {rank for name, rank in proof.ranks.items() if name.endswith(".gate_up_proj")}
    others = {rank for name, rank in proof.ranks.items() if not name.endswith(".gate_up_proj")}
    return bool(gates) and (not others or any(2 * rank in gates for rank in others))


def _divisors(document: Recipe, statements: Statements, base: Base | None) -> tuple[int, ...]:
    found = (*document.of("normalize_moe_lora"), *statements.candidates("normalize_moe_lora"))
    routed = (base.config or {}).get("num_experts_per_tok") if base else None
    if any(each.value is True for each in found) and isinstance(routed, int) and routed > 1:
        return (routed,)
    return ()


def _contradiction(
    proof: Proof,
    said: Statement,
    pattern: Mapping[str, int] | None,
    ledger: Ledger,
) -> None:
    r = said.value if isinstance(said.value, int) else proof.usual_rank
    look_up = by_pattern(pattern or {})
    wrong = next(
        ((n, rank) for n, rank in proof.ranks.items() if (look_up(n) or r) != rank),
        next(iter(proof.ranks.items())),
    )
    hint = ""
    if isinstance(r, int) and all(rank == 2 * r for rank in proof.ranks.values()):
        hint = (
            " Twice the rank is what a conversion of PiSSA, OLoRA, CorDA or LoRA-GA writes; if it "
            "was one, state it with --set converted_initialisation=true."
        )
    ledger.conflict(
        said.field,
        f"{said.origin} gives {printable(wrong[0])} rank {look_up(wrong[0]) or r}, and its "
        f"tensors have {wrong[1]}.{hint}",
        Side(proof.usual_rank, Source.PROVEN, _rank_origin(proof)),
        Side.of(said),
    )


def _enter(
    proof: Proof,
    r: int,
    stated: Mapping[str, int],
    reading: Reading,
    statements: Statements,
    ledger: Ledger,
    said: Statement | None,
) -> Ranks:
    if r not in proof.ranks.values():
        r = proof.usual_rank or r
    pattern = _spelling(proof, r, stated, reading)
    overruled: tuple[str, ...] = ()
    if said is not None:
        overruled = statements.overruled("r", said) if said.field == "r" else ()
    ledger.know("r", r, Source.PROVEN, _rank_origin(proof), overruled)
    ledger.know("rank_pattern", dict[str, Json](pattern), Source.PROVEN, _rank_origin(proof))
    _explanations(reading, ledger)
    return Ranks(r, pattern, reading, mixed=len(set(proof.ranks.values())) > 1)


def _spelling(proof: Proof, r: int, stated: Mapping[str, int], reading: Reading) -> dict[str, int]:
    """Give the pattern as stated where it fits, else by kinds, else by full names."""
    experts = {rank for name, rank in proof.ranks.items() if is_expert(name)}
    proposals: list[dict[str, int]] = [dict(stated), {}]
    if len(experts) == 1:
        proposals.append({EXPERTS: next(iter(experts))})
    gates = {rank for name, rank in proof.ranks.items() if name.endswith(".gate_up_proj")}
    if len(gates) == 1:
        gate = {GATE_UP: next(iter(gates))}
        proposals += [gate, {**gate, **stated}]
        if reading.divisor > 1 and len(experts - gates) == 1:
            proposals.append({**gate, EXPERTS: next(iter(experts - gates))})
    for proposal in proposals:
        look_up = by_pattern(proposal)
        if all((look_up(name) or r) == rank for name, rank in proof.ranks.items()):
            return proposal
    return {f"^{re.escape(name)}": rank for name, rank in proof.ranks.items() if rank != r}


def _explanations(reading: Reading, ledger: Ledger) -> None:
    if reading.spread:
        ledger.explained.append(
            Explained(
                "rank_pattern",
                "eva",
                "Modules differ in rank: EVA spreads the ranks by the variance that it measures.",
            )
        )
    if reading.doubled == 2:
        ledger.explained.append(
            Explained(
                "r",
                "converted-initialisation",
                "The tensors have twice the rank that the adapter was trained with: a conversion "
                "of PiSSA, OLoRA, CorDA or LoRA-GA to plain LoRA writes that, with alpha raised "
                "so that the scale stays.",
            )
        )
    if reading.gate_up == 2:
        ledger.explained.append(
            Explained(
                "rank_pattern",
                "fused-gate-up",
                "gate_up_proj of the experts has twice the rank: PEFT with transformers 5 fuses "
                "the adapters of gate_proj and up_proj, and doubles their alpha, too.",
            )
        )
    if reading.divisor > 1:
        ledger.explained.append(
            Explained(
                "rank_pattern",
                "normalised-experts",
                f"Experts have the rank divided by {reading.divisor}, the number that a token is "
                "routed to: Megatron-Bridge's normalize_moe_lora. Alpha is not divided.",
            )
        )


def _rank_origin(proof: Proof) -> str:
    counts: dict[int, int] = {}
    for rank in proof.ranks.values():
        counts[rank] = counts.get(rank, 0) + 1
    said = ", ".join(f"rank {rank} in {n:,}" for rank, n in sorted(counts.items()))
    return f"shapes of lora_A and lora_B: {said} modules"
