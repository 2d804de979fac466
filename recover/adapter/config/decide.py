"""Decide every field of a lost configuration from tensors, recipes, settings and proofs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from ....records.strict_json import Json
from ...base.model import Base
from ..statement import Recipe
from ..structure import Adapter
from .evidence import Ledger
from .identity_field import settle_identity, settle_revision
from .measured_scale import ScaleProof
from .older_peft import for_version
from .other_fields import (
    settle_flags,
    settle_initialisation,
    settle_replication,
    settle_rest,
    settle_saved,
    settle_tokens,
    settle_tying,
)
from .proof import Proof
from .ranks import settle_ranks
from .scale import settle_scale
from .schema import FIELDS
from .settings import LABEL
from .statements import Statements, usable
from .target_fields import settle_targets

_NOTHING = Recipe(LABEL, LABEL, None, ())


@dataclass(frozen=True)
class Decision:
    """The configuration and its evidence; `config` is None where something stands in the way."""

    adapter: Adapter = field(repr=False)
    proof: Proof = field(repr=False)
    ledger: Ledger
    config: dict[str, Json] | None
    recipes: tuple[Recipe, ...] = ()


def decide(
    adapter: Adapter,
    proof: Proof,
    base: Base | None,
    recipes: Sequence[Recipe] = (),
    settings: Recipe = _NOTHING,
    *,
    measured: ScaleProof | None = None,
    for_peft: str | None = None,
) -> Decision:
    """Settle all fields of PEFT's LoraConfig.

    Raises DoesNotHold for an adapter that the wanted version of PEFT cannot load, Unusable for
    patterns that cannot be used.
    """
    ledger = Ledger()
    statements = Statements(settings, usable(recipes, ledger))
    settle_flags(proof, statements, base, ledger)
    settle_targets(proof, statements, base, ledger)
    ranks = settle_ranks(proof, statements, base, ledger)
    if ranks is not None:
        settle_scale(proof, ranks, statements, measured, ledger)
    elif not any(conflict.field in ("r", "rank_pattern") for conflict in ledger.conflicts):
        _no_ranks(ledger)
    settle_identity(statements, base, ledger)
    settle_revision(statements, ledger)
    settle_saved(adapter, proof, statements, base, ledger)
    settle_tokens(proof, statements, base, ledger)
    settle_initialisation(ranks, statements, ledger)
    settle_replication(proof, statements, base, ledger)
    settle_tying(proof, statements, base, ledger)
    settle_rest(proof, statements, base, ledger)
    for name in FIELDS:
        if name not in ledger.fields:
            ledger.assume(name, FIELDS[name].neutral, "not settled: see the conflicts")
    _caution_of_assumptions(ledger)
    config = ledger.config() if ledger.complete else None
    if config is not None and for_peft is not None:
        config = for_version(config, for_peft, proof.ranks, proof.targets)
    return Decision(adapter, proof, ledger, config, tuple(recipes))


def _caution_of_assumptions(ledger: Ledger) -> None:
    """Say in one sentence what is only assumed and would do harm on loading if it were not so."""
    assumed = [n for n, known in sorted(ledger.fields.items()) if known.assumed]
    if ledger.complete and assumed:
        named = ", ".join(f"{name}={json.dumps(ledger.fields[name].written)}" for name in assumed)
        ledger.cautions.append(
            f"Assumed, for no source says: {named}. If the run had other values, the adapter loads "
            "and computes something else."
        )


def _no_ranks(ledger: Ledger) -> None:
    """Enter the neutral values of an adapter that has trainable tokens and no LoRA."""
    for name, value in (("r", 8), ("lora_alpha", 8)):
        ledger.assume(name, value, "no module has a LoRA")
    for name in ("rank_pattern", "alpha_pattern"):
        ledger.assume(name, {}, "no module has a LoRA")
    ledger.assume("use_rslora", False, "no module has a LoRA")
