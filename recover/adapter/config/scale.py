"""Alpha and rslora, which no tensor of an adapter tells: from statements, or from a proof."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import cast

from ....records.names import printable
from ..kinds import kind_of_module
from ..patterns import by_pattern
from ..statement import Json, Recipe, Source, Statement
from .evidence import Ledger, Side
from .proof import Proof
from .ranks import GATE_UP, Ranks, Reading
from .statements import Statements, choose, take

_OF_RANK = ("lora_alpha", "alpha_pattern")
_ALPHA_FLAG = "--set lora_alpha=NUMBER"
_RSLORA_FLAG = "--set use_rslora=TRUE_OR_FALSE"


@dataclass(frozen=True)
class ScaleProof:
    """The factor that each module's B·A was multiplied by, measured; `tolerance` is relative.

    `origin` says how, with figures, fit to print. `scales` may hold some of the modules only.
    """

    scales: Mapping[str, float] = field(repr=False)
    tolerance: float
    origin: str


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
        _by_proof(proof, ranks, rslora, unsure, statements, measured, ledger)
        return
    if rslora is None and not unsure:
        ledger.need(
            "use_rslora", "it changes the scale by sqrt(r), and no source says", _RSLORA_FLAG
        )
    alpha = _alpha(ranks, statements, rslora, ledger)
    if alpha is None and not any(c.field == "lora_alpha" for c in ledger.conflicts):
        ledger.need("lora_alpha", "tensors do not tell the scale, and no source says", _ALPHA_FLAG)
    _pattern(ranks, statements, rslora, alpha, ledger)


def _of_this_rank(ranks: Ranks, statements: Statements, ledger: Ledger) -> Statements:
    """Leave out the alpha of documents that state another rank: it belongs to that rank."""
    kept: list[Recipe] = []
    for recipe in statements.recipes:
        if recipe.label in ranks.refuted and recipe.of("lora_alpha"):
            ledger.cautions.append(
                f"The alpha of {recipe.label} is not used: its rank is not that of the tensors."
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
            factor = _factor(_reading(document, ranks), rslora)
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


def _reading(document: Recipe, ranks: Ranks) -> Reading:
    return ranks.readings.get(document.label, ranks.reading)


def _factor(reading: Reading, rslora: Statement | None) -> float:
    if reading.doubled == 1:
        return 1
    return math.sqrt(2) if rslora is not None and rslora.value is True else 2


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
            "--set alpha_pattern='{\"PATTERN\": NUMBER}'",
        )
        return
    if setting is None and reading.doubled == 2:
        if rslora is not None and rslora.value is True and (pattern or ranks.mixed):
            ledger.need(
                "alpha_pattern",
                "PEFT cannot convert rslora with patterns to the same scales",
                "--set alpha_pattern='{\"PATTERN\": NUMBER}'",
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
    elif ranks.mixed:
        ledger.need(
            "alpha_pattern",
            "modules differ in rank, so that one alpha gives them different scales, and no source "
            "says whether it does; {} means one alpha for all",
            "--set alpha_pattern={}",
        )
    else:
        ledger.assume(
            "alpha_pattern", {}, "no source says; all ranks are equal, as without one", matters=True
        )


def _by_proof(
    proof: Proof,
    ranks: Ranks,
    rslora: Statement | None,
    unsure: bool,
    statements: Statements,
    measured: ScaleProof,
    ledger: Ledger,
) -> None:
    """Enter what measured scales prove, and hold what is stated against it."""
    flags = (bool(rslora.value),) if rslora is not None else (False, True)
    sound: dict[bool, dict[str, float]] = {}
    for flag in flags:
        alphas = {n: _alpha_of(s, proof.ranks[n], flag) for n, s in measured.scales.items()}
        rounded = {n: _rounded(a, measured.tolerance) for n, a in alphas.items()}
        if all(a is not None for a in rounded.values()):
            sound[flag] = {n: a for n, a in rounded.items() if a is not None}
    if rslora is not None and not sound:
        first = next(iter(measured.scales))
        alpha = _alpha_of(measured.scales[first], proof.ranks[first], flags[0])
        sound[flags[0]] = {
            n: _alpha_of(s, proof.ranks[n], flags[0]) for n, s in measured.scales.items()
        }
        ledger.cautions.append(
            f"The measured alpha is no whole number under use_rslora={str(flags[0]).lower()}: "
            f"{alpha:.6g}."
        )
    uniform = {f: a for f, a in sound.items() if len(set(a.values())) == 1}
    sound = uniform or sound
    if len(sound) != 1:
        if not unsure:
            ledger.need(
                "use_rslora",
                "the measured scale gives a whole alpha with it and without it"
                if sound
                else "the measured scale gives a whole alpha neither with it nor without it",
                _RSLORA_FLAG,
            )
        ledger.need(
            "lora_alpha", "it follows from the scale once use_rslora is known", _RSLORA_FLAG
        )
        ledger.fields.setdefault("alpha_pattern", ledger.fields["lora_alpha"])
        return
    flag, alphas = next(iter(sound.items()))
    if rslora is None:
        ledger.know(
            "use_rslora", flag, Source.PROVEN, f"{measured.origin}; otherwise alpha is not whole"
        )
    _enter_proven(proof, ranks, flag, alphas, statements, measured, ledger)


def _enter_proven(
    proof: Proof,
    ranks: Ranks,
    rslora: bool,
    alphas: Mapping[str, float],
    statements: Statements,
    measured: ScaleProof,
    ledger: Ledger,
) -> None:
    """Enter alpha, and for modules of other alphas a pattern by their kinds."""
    usual = Counter(alphas.values()).most_common(1)[0][0]
    count = f"{len(alphas):,} of {len(proof.ranks):,} modules measured"
    origin = f"{measured.origin}; {count}"
    ledger.know("lora_alpha", _whole(usual), Source.PROVEN, origin)
    _hold_against(ranks, rslora, alphas, statements, ledger)
    by_kind: dict[str, set[float]] = {}
    for name, alpha in alphas.items():
        by_kind.setdefault(kind_of_module(name), set()).add(alpha)
    if any(kind_of_module(name) not in by_kind for name in proof.ranks):
        flag = Statement("use_rslora", rslora, Source.PROVEN, measured.origin)
        _pattern(ranks, statements, flag, usual, ledger)
        return
    whole = len(alphas) == len(proof.ranks)
    if not whole and any(len(found) > 1 for found in by_kind.values()):
        ledger.need(
            "alpha_pattern",
            "modules of one kind differ in alpha, and not all were measured",
            "--set alpha_pattern='{\"PATTERN\": NUMBER}'",
        )
        return
    pattern = _spelling(usual, alphas, by_kind, statements)
    values: dict[str, Json] = {key: _whole(value) for key, value in pattern.items()}
    ledger.know("alpha_pattern", values, Source.PROVEN, origin)


def _spelling(
    usual: float,
    alphas: Mapping[str, float],
    by_kind: Mapping[str, set[float]],
    statements: Statements,
) -> Mapping[str, float]:
    """Give the pattern as it is stated where that fits, else by kinds, else by full names."""
    stated = [cast("dict[str, float]", s.value) for s in statements.candidates("alpha_pattern")]
    kinds = {
        "^" + r"\d+".join(map(re.escape, kind.split("*"))): next(iter(found))
        for kind, found in by_kind.items()
        if found != {usual}
    }
    for pattern in (*stated, kinds):
        look_up = by_pattern(pattern)
        if all((look_up(n) or usual) == a for n, a in alphas.items()):
            return pattern
    return {f"^{re.escape(n)}": a for n, a in alphas.items() if a != usual}


def _hold_against(
    ranks: Ranks,
    rslora: bool,
    alphas: Mapping[str, float],
    statements: Statements,
    ledger: Ledger,
) -> None:
    """Enter a conflict for a stated alpha that is not the measured one."""
    said = statements.set_on_command_line("lora_alpha")
    stated = [(said, 1.0)] if said else []
    if not stated:
        flag = Statement("use_rslora", rslora, Source.PROVEN, "")
        for document in statements.recipes:
            factor = _factor(_reading(document, ranks), flag)
            stated += [(each, factor) for each in document.of("lora_alpha")]
    patterns = statements.candidates("alpha_pattern")
    look_up = by_pattern(cast("dict[str, float]", patterns[0].value) if patterns else {})
    for statement, factor in stated:
        for name, alpha in alphas.items():
            gate = ranks.reading.gate_up if name.endswith(".gate_up_proj") else 1
            wanted = (look_up(name) or cast("float", statement.value)) * factor * gate
            if not math.isclose(wanted, alpha, rel_tol=1e-6):
                measured = ledger.fields["lora_alpha"]
                ledger.conflict(
                    "lora_alpha",
                    f"{statement.origin} gives {printable(name)} alpha {wanted:g}, and measured is "
                    f"{alpha:g}.",
                    Side(measured.value, measured.source, measured.origin),
                    Side.of(statement),
                )
                break


def _alpha_of(scale: float, rank: int, rslora: bool) -> float:
    return scale * (math.sqrt(rank) if rslora else rank)


def _rounded(alpha: float, tolerance: float) -> float | None:
    """Give the whole number that a measured alpha can only be; None if it can be none."""
    nearest = float(round(alpha))
    slack = max(alpha * tolerance, 1e-6)
    return nearest if nearest > 0 and abs(alpha - nearest) <= slack and slack < 0.25 else None


def _whole(alpha: float) -> Json:
    return int(alpha) if alpha.is_integer() else alpha
