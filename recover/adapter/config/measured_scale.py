"""What a measured scale proves of alpha and rslora, and what it contradicts."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, cast

from ....records.names import printable
from ....records.strict_json import Json
from ..kinds import kind_of_module
from ..patterns import by_pattern
from ..statement import Source, Statement
from .evidence import Ledger, Side
from .proof import Proof
from .ranks import Ranks
from .statements import Statements, choose

RSLORA_FLAG = "--set use_rslora=TRUE_OR_FALSE"
ALPHA_FLAG = "--set lora_alpha=NUMBER"
PATTERN_FLAG = "--set alpha_pattern='{\"PATTERN\": NUMBER}'"
# How far a measured alpha may be from the whole number that it is taken for, in error included;
# where being whole is to tell rslora, too, chance must not make it so.
_SLACK = 0.25
_SLACK_THAT_TELLS = 0.05
# An alpha that is not whole is taken as measured only where it is known this well.
_EXACTLY = 1e-6
_SINGLE = 2.0**-23  # servers hold the factor itself in single precision


@dataclass(frozen=True)
class ScaleProof:
    """The factor that each module's B·A was multiplied by, measured; `tolerance` is relative.

    `origin` says how, with figures, fit to print. `scales` may hold some of the modules only.
    `silent` are modules whose B·A is zero, which every scale leaves as they are.
    """

    scales: Mapping[str, float] = field(repr=False)
    tolerance: float
    origin: str
    silent: frozenset[str] = field(default=frozenset(), repr=False)


class _Said(NamedTuple):
    """An alpha that is stated, and what it comes to for a module with patterns and conversions."""

    statement: Statement
    of: Callable[[str], float]


def settle_by_proof(
    proof: Proof,
    ranks: Ranks,
    rslora: Statement | None,
    unsure: bool,
    statements: Statements,
    measured: ScaleProof,
    ledger: Ledger,
) -> None:
    """Enter what measured scales prove, and hold what is stated against it.

    `unsure` says that the sources of use_rslora contradict each other.
    """
    flags = (bool(rslora.value),) if rslora is not None else (False, True)
    slack = _SLACK if rslora is not None else _SLACK_THAT_TELLS
    sound: dict[bool, dict[str, float]] = {}
    for flag in flags:
        found = _alphas(proof, ranks, flag, slack, statements, measured)
        if found is not None:
            sound[flag] = found
    if rslora is not None and not sound:
        exact = _exactly(proof, flags[0], measured, ledger)
        sound = {} if exact is None else {flags[0]: exact}
    sound = {f: a for f, a in sound.items() if len(set(a.values())) == 1} or sound
    if len(sound) == 1:
        flag, alphas = next(iter(sound.items()))
        if rslora is None:
            why = "otherwise alpha is not one whole number"
            ledger.know("use_rslora", flag, Source.PROVEN, f"{measured.origin}; {why}")
        _enter(proof, ranks, flag, alphas, statements, measured, ledger)
        return
    if rslora is None and not unsure:
        ledger.need(
            "use_rslora",
            "the measured scale gives a whole alpha with it and without it"
            if sound
            else "the measured scale gives a whole alpha neither with it nor without it",
            RSLORA_FLAG,
        )
    if rslora is None:
        ledger.need("lora_alpha", "it follows from the scale once use_rslora is known", RSLORA_FLAG)
    ledger.fields.setdefault("alpha_pattern", ledger.fields["lora_alpha"])


def _alphas(
    proof: Proof,
    ranks: Ranks,
    rslora: bool,
    slack: float,
    statements: Statements,
    measured: ScaleProof,
) -> dict[str, float] | None:
    """Give every measured module's alpha, stated or whole; None where one can be neither."""
    said = _stated(ranks, rslora, statements)
    found: dict[str, float] = {}
    for name, scale in measured.scales.items():
        alpha = _alpha_of(scale, proof.ranks[name], rslora)
        error = max(alpha * measured.tolerance, 1e-6)
        near = [wanted for each in said if abs((wanted := each.of(name)) - alpha) <= error]
        whole = float(round(alpha))
        if near:
            found[name] = near[0]
        elif whole > 0 and abs(alpha - whole) <= error and error < slack:
            found[name] = whole
        else:
            return None
    return found


def _exactly(
    proof: Proof, rslora: bool, measured: ScaleProof, ledger: Ledger
) -> dict[str, float] | None:
    """Give alphas that are not whole where they are measured well enough to be written."""
    found = {n: _alpha_of(s, proof.ranks[n], rslora) for n, s in measured.scales.items()}
    alpha = next(iter(found.values()))
    said = f"the measured alpha is no whole number under use_rslora={str(rslora).lower()}"
    if measured.tolerance > _EXACTLY:
        error = alpha * measured.tolerance
        ledger.need(
            "lora_alpha", f"{said}: {alpha:.6g}, give or take {error:.2g}, proves none", ALPHA_FLAG
        )
        return None
    ledger.cautions.append(f"{said[:1].upper()}{said[1:]}: {alpha:.9g}.")
    tolerance = max(measured.tolerance, _SINGLE)
    return {name: _shortest(alpha, tolerance) for name, alpha in found.items()}


def _shortest(value: float, tolerance: float) -> float:
    """Give the decimal number of the fewest digits that the measurement allows."""
    rounded = (float(f"{value:.{digits}g}") for digits in range(1, 18))
    return next((each for each in rounded if abs(each - value) <= value * tolerance), value)


def _enter(
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
    silent = len(measured.silent - alphas.keys())
    origin = f"{measured.origin}; {len(alphas):,} of {len(proof.ranks):,} modules measured" + (
        f", and B·A is zero in {silent:,}" if silent else ""
    )
    ledger.know("lora_alpha", _whole(usual), Source.PROVEN, origin)
    _hold_against(ranks, rslora, alphas, statements, measured.tolerance, ledger)
    unmeasured = [n for n in proof.ranks if n not in alphas and n not in measured.silent]
    if unmeasured:
        _by_statement(unmeasured, alphas, usual, statements, ledger)
        return
    pattern = _spelling(usual, alphas, statements)
    values: dict[str, Json] = {key: _whole(value) for key, value in pattern.items()}
    ledger.know("alpha_pattern", values, Source.PROVEN, origin)


def _by_statement(
    unmeasured: list[str],
    alphas: Mapping[str, float],
    usual: float,
    statements: Statements,
    ledger: Ledger,
) -> None:
    """Take the pattern that is stated for what was not measured, if it fits what was."""
    chosen = choose("alpha_pattern", statements.candidates("alpha_pattern"), ledger)
    if chosen is not None:
        look_up = by_pattern(cast("dict[str, float]", chosen.value))
        if all((look_up(name) or usual) == alpha for name, alpha in alphas.items()):
            ledger.know("alpha_pattern", chosen.value, chosen.source, chosen.origin)
            return
    if not any(conflict.field == "alpha_pattern" for conflict in ledger.conflicts):
        ledger.need(
            "alpha_pattern",
            f"{len(unmeasured):,} modules were not measured ({printable(unmeasured[0])}), and no "
            "source that fits the others says what their alpha is",
            PATTERN_FLAG,
        )


def _spelling(
    usual: float, alphas: Mapping[str, float], statements: Statements
) -> Mapping[str, float]:
    """Give the pattern as it is stated where that fits, else by kinds, else by full names."""
    by_kind: dict[str, set[float]] = {}
    for name, alpha in alphas.items():
        by_kind.setdefault(kind_of_module(name), set()).add(alpha)
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


def _stated(ranks: Ranks, rslora: bool, statements: Statements) -> list[_Said]:
    """Give every alpha that is stated; what --set states is meant for the tensors as they are."""
    setting = statements.set_on_command_line("lora_alpha")
    stated = [(setting, 1.0)] if setting else []
    if not stated:
        for document in statements.recipes:
            factor = ranks.readings.get(document.label, ranks.reading).alpha_factor(rslora)
            stated += [(each, factor) for each in document.of("lora_alpha")]
    patterns = statements.candidates("alpha_pattern")
    look_up = by_pattern(cast("dict[str, float]", patterns[0].value) if patterns else {})

    def alpha(value: float, factor: float) -> Callable[[str], float]:
        def of(name: str) -> float:
            gate = ranks.reading.gate_up if name.endswith(".gate_up_proj") else 1
            return (look_up(name) or value) * factor * gate

        return of

    return [_Said(each, alpha(cast("float", each.value), factor)) for each, factor in stated]


def _hold_against(
    ranks: Ranks,
    rslora: bool,
    alphas: Mapping[str, float],
    statements: Statements,
    tolerance: float,
    ledger: Ledger,
) -> None:
    """Enter a conflict for a stated alpha that is not the measured one."""
    for said in _stated(ranks, rslora, statements):
        for name, alpha in alphas.items():
            if not math.isclose(said.of(name), alpha, rel_tol=1e-6):
                measured = ledger.fields["lora_alpha"]
                ledger.conflict(
                    "lora_alpha",
                    f"{said.statement.origin} gives {printable(name)} alpha {said.of(name):g}, and "
                    f"measured is {alpha:g}, to {tolerance:.1g}.",
                    Side(measured.value, measured.source, measured.origin),
                    Side.of(said.statement),
                )
                break


def _alpha_of(scale: float, rank: int, rslora: bool) -> float:
    return scale * (math.sqrt(rank) if rslora else rank)


def _whole(alpha: float) -> Json:
    return int(alpha) if alpha.is_integer() else alpha
