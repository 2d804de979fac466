"""Alpha and rslora, which no tensor of an adapter tells: from statements, or from a proof."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from ....records.strict_json import Json
from ..statement import Recipe, Source, Statement
from .evidence import Ledger
from .measured_scale import ALPHA_FLAG, PATTERN_FLAG, RSLORA_FLAG, ScaleProof, settle_by_proof
from .proof import Proof
from .ranks import GATE_UP, Ranks
from .statements import Statements, choose, noted, take

_OF_RANK = ("lora_alpha", "use_rslora", "alpha_pattern")


def settle_scale(
    proof: Proof,
    ranks: Ranks,
    statements: Statements,
    measured: ScaleProof | None,
    ledger: Ledger,
) -> None:
    """Enter lora_alpha, alpha_pattern and use_rslora, with what is needed where one is unknown."""
    statements = _of_this_rank(ranks, statements, ledger)
    rslora = take("use_rslora", statements, ledger)
    unsure = any(conflict.field == "use_rslora" for conflict in ledger.conflicts)
    if measured is not None:
        settle_by_proof(proof, ranks, rslora, unsure, statements, measured, ledger)
        return
    if rslora is None and not unsure:
        ledger.need(
            "use_rslora", "it changes the scale by sqrt(r), and no source says", RSLORA_FLAG
        )
    alpha = _alpha(ranks, statements, rslora, ledger)
    if alpha is None and not any(c.field == "lora_alpha" for c in ledger.conflicts):
        ledger.need("lora_alpha", "tensors do not tell the scale, and no source says", ALPHA_FLAG)
    _pattern(ranks, statements, rslora, alpha, ledger)


def _of_this_rank(ranks: Ranks, statements: Statements, ledger: Ledger) -> Statements:
    """Leave out the scale of documents that state another rank: it belongs to that rank."""
    kept: list[Recipe] = []
    for recipe in statements.recipes:
        if recipe.label in ranks.refuted and any(map(recipe.of, _OF_RANK)):
            ledger.cautions.append(
                f"What {recipe.label} says of the scale is not used: its rank is not that of the "
                "tensors."
            )
            rest = tuple(s for s in recipe.statements if s.field not in _OF_RANK)
            recipe = replace(recipe, statements=rest)
        kept.append(recipe)
    return replace(statements, recipes=tuple(kept))


def _alpha(
    ranks: Ranks, statements: Statements, rslora: Statement | None, ledger: Ledger
) -> float | None:
    """Choose alpha; what a recipe states is raised as the conversion it went through does."""
    setting = statements.set_on_command_line("lora_alpha")
    if setting is not None:
        take("lora_alpha", statements, ledger)
        return cast("float", setting.value)
    raised: list[Statement] = []
    for source in (Source.STATED, Source.DEFAULT):
        for document in statements.recipes:
            reading = ranks.readings.get(document.label, ranks.reading)
            factor = reading.alpha_factor(rslora is not None and rslora.value is True)
            for said in document.of("lora_alpha"):
                if said.source is source:
                    raised.append(_raised(said, factor))
        if raised:
            break
    chosen = choose("lora_alpha", raised, ledger)
    if chosen is None:
        return None
    ledger.know("lora_alpha", chosen.value, chosen.source, chosen.origin)
    return cast("float", chosen.value)


def _raised(said: Statement, factor: float) -> Statement:
    if factor == 1:
        return said
    value = cast("float", said.value) * factor
    by = "2" if factor == 2 else "sqrt(2)"
    origin = f"{said.origin}, times {by} by the conversion"
    return Statement(said.field, value, said.source, origin)


def _pattern(
    ranks: Ranks,
    statements: Statements,
    rslora: Statement | None,
    alpha: float | None,
    ledger: Ledger,
) -> None:
    setting = statements.set_on_command_line("alpha_pattern")
    reading = ranks.reading
    chosen = choose("alpha_pattern", statements.candidates("alpha_pattern"), ledger)
    if chosen is None and any(c.field == "alpha_pattern" for c in ledger.conflicts):
        return
    pattern = dict(cast("dict[str, float]", chosen.value)) if chosen else {}
    if setting is None and reading.spread:
        ledger.need(
            "alpha_pattern",
            "EVA changes alpha with the rank where adjust_scaling_factors is set, and no source "
            "says which modules have which",
            PATTERN_FLAG,
        )
        return
    if setting is None and reading.doubled == 2:
        if rslora is not None and rslora.value is True and (pattern or ranks.mixed):
            ledger.need(
                "alpha_pattern",
                "PEFT cannot convert rslora with patterns to the same scales",
                PATTERN_FLAG,
            )
            return
        pattern = {key: 2 * value for key, value in pattern.items()}
    if setting is None and reading.gate_up == 2:
        if alpha is not None:
            pattern.setdefault(GATE_UP, alpha * 2)
        known = ledger.fields.get("lora_alpha")
        ledger.know(
            "alpha_pattern",
            dict[str, Json](pattern),
            known.source if known else Source.UNKNOWN,
            "alpha, doubled with the rank where PEFT fuses gate and up",
        )
        return
    if chosen is not None:
        overruled = statements.overruled("alpha_pattern", chosen)
        ledger.know(
            "alpha_pattern", dict[str, Json](pattern), chosen.source, chosen.origin, overruled
        )
    elif reading.divisor > 1:
        origin = "Megatron-Bridge divides the rank of experts and keeps alpha"
        ledger.know("alpha_pattern", {}, Source.DEFAULT, origin)
    elif ranks.perhaps_fused:
        ledger.need(
            "alpha_pattern",
            "where PEFT fuses the adapters of gate_proj and up_proj, the rank and alpha of "
            "gate_up_proj are twice those of the run, and no source says the run's rank, by which "
            "alpha is known too",
            "--set r=NUMBER",
        )
    elif (complete := _complete(ranks, statements)) is not None:
        origin = f"PEFT's default; {complete.label} states rank_pattern and no alpha_pattern"
        ledger.know("alpha_pattern", {}, Source.DEFAULT, origin)
    elif ranks.mixed:
        ledger.need(
            "alpha_pattern",
            "modules differ in rank, so that one alpha gives them different scales, and no source "
            "says whether it does; {} means one alpha for all",
            "--set alpha_pattern={}",
        )
    elif (silent := _silent(ranks, statements)) is not None:
        origin = f"PEFT's default; {silent.label} sets none"
        ledger.know("alpha_pattern", {}, Source.DEFAULT, origin)
    else:
        ledger.assume(
            "alpha_pattern", {}, "no source says; all ranks are equal, as without one", matters=True
        )


def _silent(ranks: Ranks, statements: Statements) -> Recipe | None:
    """Find a document of PEFT's own that sets no alpha by pattern."""
    document = statements.silent_on("alpha_pattern")
    return None if document is None or document.label in ranks.refuted else document


def _complete(ranks: Ranks, statements: Statements) -> Recipe | None:
    """Find a document that states ranks by pattern, and all else that is not the default.

    Defaults of its trainer are among its statements only where nothing is left open in it, but for
    single values that cannot be read, which are noted.
    """
    for document in statements.recipes:
        stated = {s.field for s in document.statements if s.source is Source.STATED}
        complete = any(s.source is Source.DEFAULT for s in document.statements)
        lawful = document.label not in ranks.refuted and not noted(document, "alpha_pattern")
        if complete and lawful and {"rank_pattern", "lora_alpha"} <= stated:
            return document
    return None
