"""Hold a checkpoint against the base that it belongs to, and its bytes against what bytes can be.

Headers answer most of it, in two directions: everything that must be there is, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

from ..errors import ReefError, Unusable
from .checkpoint import Checkpoint
from .validation.adapters import compare_adapter
from .validation.compared import Compared
from .validation.content.facts import Claims, ContentFacts, TensorFacts
from .validation.content.norms import are_offsets
from .validation.content.roles import roles
from .validation.damage import file_damage
from .validation.full import compare_model
from .validation.result import (
    Caution,
    ConfigFault,
    Damage,
    DamageClass,
    Kind,
    Validation,
)
from .validation.said import Overlaid, overlay
from .validation.same_bytes import differences_from
from .validation.shards import Held, gather

if TYPE_CHECKING:
    from .adapter.statement import Recipe
    from .base.model import Base

_JOBS = 2
_OPTIMIZER = "adamw"


@dataclass(frozen=True)
class Request:
    """What to hold a checkpoint against, and how much of it to read.

    `config` overrides the adapter_config.json beside the weights. `replicated` is a glob for the
    names that several ranks may hold. `reference` must be equal bit for bit. `progress` is told of
    the bytes of content as they are read.
    """

    base: Base | None
    headers_only: bool = False
    config: Mapping[str, object] | None = None
    recipes: Sequence[Recipe] = ()
    stated: Recipe | None = None
    claims: Claims = field(default_factory=Claims)
    reference: Checkpoint | None = None
    replicated: str | None = None
    loaders: bool = False
    load_check: bool = False
    jobs: int = _JOBS
    progress: Callable[[int], None] | None = None


def validate(checkpoint: Checkpoint, request: Request) -> Validation:
    """Judge a checkpoint; every finding is in the result, and nothing is raised for damage.

    Raises what the sources raise where they cannot be read at all, and Unusable for patterns of a
    configuration that cannot be used.
    """
    held = gather(checkpoint, request.replicated)
    compared, overlaid = _compared(checkpoint, request, held)
    content = _content(checkpoint, request, held, compared, overlaid)
    files = (one for shard in checkpoint.shards for one in file_damage(shard))
    damage = (*files, *held.damage, *content.damage)
    against: tuple[Caution, ...] = ()
    if request.reference is not None:
        unequal = tuple(differences_from(request.reference, held.tensors, held.shards))
        damage = (*damage, *unequal)
        if not unequal and request.base and request.reference.label == request.base.label:
            text = "Every tensor equals the base's bit for bit: nothing was trained or merged in."
            against = (Caution("equals-base", text),)
    told = held.told | {fault.message for fault in overlaid.faults}
    warnings = (
        *(Caution("checkpoint", text) for text in checkpoint.problems if text not in told),
        *(Caution("base", note) for note in (request.base.notes if request.base else ())),
        *held.cautions,
        *overlaid.cautions,
        *compared.cautions,
        *content.cautions,
        *against,
    )
    missing = dict.fromkeys((*compared.differences.missing, *held.lacking))
    result = Validation(
        label=checkpoint.label,
        kind=compared.kind,
        base=request.base.label if request.base else None,
        base_source=request.base.source.value if request.base else None,
        expected=len(compared.required),
        found=len(held.tensors),
        missing=tuple(missing),
        unexpected=compared.differences.unexpected,
        known_extras=compared.extras,
        mismatched=compared.differences.mismatched,
        config_faults=(*overlaid.faults, *compared.faults, *content.faults),
        layers=compared.layers,
        experts=compared.experts,
        modules=compared.modules(content.facts),
        renames=compared.renames,
        naming=compared.naming,
        method=compared.method,
        ranks=compared.ranks,
        dtypes=tuple(sorted({tensor.dtype for tensor in held.tensors.values()})),
        damage=tuple(damage),
        warnings=warnings,
        not_checked=(*compared.not_checked, *_left_out(request), *content.not_checked),
        evidence=content.evidence,
        files=tuple(
            {
                "name": shard.name,
                "size": shard.size,
                "tensors": len(shard.header.tensors) if shard.header else None,
            }
            for shard in checkpoint.shards
        ),
    )
    return _with_loaders(result, checkpoint, request, held, compared, overlaid)


def _with_loaders(
    result: Validation,
    checkpoint: Checkpoint,
    request: Request,
    held: Held,
    compared: Compared,
    overlaid: Overlaid,
) -> Validation:
    """Add what loaders make of it, and whether PEFT loads it."""
    if request.loaders:
        from .validation.loading.report import loader_report

        # Loaders read the file as it is, whatever is stated beside it.
        config = request.config if request.config is not None else checkpoint.adapter_config
        unread = checkpoint.config_faults if config is None else ()
        found = loader_report(
            result,
            compared.adapter,
            config,
            compared.base,
            unread=unread,
            indices=checkpoint.index_faults,
        )
        result = replace(result, loaders=tuple(one.to_json() for one in found))
    if not request.load_check:
        return result
    from .validation.loading.load_check import load_check

    if request.base is None:
        raise Unusable("Nothing can be loaded without a base.", remedy="Name it with --base.")
    if compared.kind is Kind.ADAPTER and overlaid.document and not overlaid.readable:
        errors = [fault.message for fault in checkpoint.config_faults]
        return replace(result, load_check={"ok": False, "errors": errors})
    if compared.kind is Kind.ADAPTER and overlaid.config is None:
        raise Unusable(
            "PEFT loads no adapter without its adapter_config.json, and there is none.",
            remedy="Name one with --config, or rebuild it with `reef-recover rebuild-config`.",
        )
    settings = overlaid.config if compared.kind is Kind.ADAPTER else None
    base = compared.base if compared.base is not None else request.base
    bare = base is not request.base
    checked = load_check(held.tensors.values(), settings, base, bare=bare)
    return replace(result, load_check=checked)


def _compared(checkpoint: Checkpoint, request: Request, held: Held) -> tuple[Compared, Overlaid]:
    config = request.config if request.config is not None else checkpoint.adapter_config
    stated = request.stated.statements if request.stated else ()
    overlaid = overlay(config, request.recipes, stated)
    metadata: dict[str, str] = {}
    for shard in checkpoint.shards:
        metadata.update((shard.header.metadata or {}) if shard.header else {})
    if config is None and checkpoint.config_faults:
        unread = (ConfigFault("*", fault.message) for fault in checkpoint.config_faults)
        overlaid = replace(overlaid, document=True, faults=(*overlaid.faults, *unread))
    compared = compare_adapter(held.tensors, metadata, request.base, overlaid)
    if compared is not None:
        return compared, overlaid
    compared = compare_model(held.tensors, request.base, overlaid.document)
    if compared.kind is Kind.FULL:
        overlaid = _of_full_checkpoint(overlaid, request)
    return compared, overlaid


def _of_full_checkpoint(overlaid: Overlaid, request: Request) -> Overlaid:
    """Leave out what only an adapter is trained by, and say so."""
    cautions: tuple[Caution, ...] = ()
    if request.recipes or request.stated is not None:
        text = "No name is an adapter's: a recipe does not apply to a full checkpoint."
        cautions = (Caution("recipe-unused", text),)
    return replace(overlaid, config=None, faults=(), cautions=cautions)


def _left_out(request: Request) -> list[str]:
    left: list[str] = []
    if request.base is None:
        left.append("Names, shapes and coverage: no base was given to hold them against.")
    if request.headers_only:
        left.append("Content: only headers were read, so zeros, NaN and outliers go unseen.")
    return left


@dataclass(frozen=True)
class _Content:
    """What the bytes say; `facts` is None where they were not read."""

    facts: Mapping[str, TensorFacts] | None = None
    damage: tuple[Damage, ...] = ()
    cautions: tuple[Caution, ...] = ()
    faults: tuple[ConfigFault, ...] = ()
    evidence: Mapping[str, object] = field(default_factory=dict[str, object])
    not_checked: tuple[str, ...] = ()


def _content(
    checkpoint: Checkpoint,
    request: Request,
    held: Held,
    compared: Compared,
    overlaid: Overlaid,
) -> _Content:
    claims = _claims(request.claims, overlaid)
    if request.headers_only:
        text = "The claimed step and learning rate: only headers were read."
        return _claim_left(text) if claims.step is not None else _Content()
    from .validation.content.judge import judge
    from .validation.content.scan import scan_content

    scanned: dict[str, ContentFacts] = {}
    damage: list[Damage] = []
    for shard in checkpoint.shards:
        if shard.header is None:
            continue
        try:
            scanned[shard.name] = _own(
                scan_content(shard, jobs=request.jobs, progress=request.progress), held
            )
        except ReefError as error:
            damage.append(Damage(DamageClass.UNREADABLE, error.message, shard.name))
    names = (compared.name_of(name) for name in held.tensors)
    by_role = roles(names, compared.adapter.keys) if compared.adapter else roles(names)
    named = {name: by_role[compared.name_of(name)] for name in held.tensors}
    family = are_offsets(request.base.model_type) if request.base else None
    judged = judge(checkpoint, scanned, named, claims, family)
    facts = {
        compared.name_of(one.name): one for content in scanned.values() for one in content.tensors
    }
    tied = compared.tied_apart(facts)
    faults: tuple[ConfigFault, ...] = ()
    if judged.evidence.get("claim_refuted") and claims.step is not None:
        text = "The values cannot come from the claimed step and learning rate."
        faults = (ConfigFault("claims", text),)
    unjudged = _unjudged(judged.evidence, claims) if claims.step is not None else _Content()
    return _Content(
        facts,
        (*damage, *judged.damage, *tied.damage),
        (*judged.cautions, *tied.cautions),
        (*faults, *unjudged.faults),
        judged.evidence,
        unjudged.not_checked,
    )


def _own(content: ContentFacts, held: Held) -> ContentFacts:
    """Leave out what another shard holds too and is judged there."""
    own = tuple(one for one in content.tensors if held.shards[one.name].name == one.shard)
    return content if len(own) == len(content.tensors) else replace(content, tensors=own)


def _unjudged(evidence: Mapping[str, object], claims: Claims) -> _Content:
    """Say why a claim could not be held against the values.

    A step without a learning rate is judged as far as it goes: after one, lora_B is not zero.
    """
    training = cast("Mapping[str, Mapping[str, object]] | None", evidence.get("training"))
    bound = training.get("adamw_bound") if training else None
    if bound is None:
        return _claim_left("The claimed step: there is no lora_B to hold it against.")
    if bound.get("judged") is not False:
        return _Content()
    text = f"The claimed step: {bound.get('reason') or 'no lora_B can be judged'}."
    if claims.learning_rate is None:
        return _Content(not_checked=(text,))
    return _claim_left(text)


def _claim_left(text: str) -> _Content:
    """Name a claim that was to be checked and was not, which is no pass."""
    fault = ConfigFault("claims", "What is claimed of the training could not be checked.")
    return _Content(faults=(fault,), not_checked=(text,))


def _claims(claims: Claims, overlaid: Overlaid) -> Claims:
    """Add what recipes say of the training to what was claimed; the optimiser is else AdamW.

    A recipe's step is a claim only where a learning rate was claimed to go with it.
    """
    config = overlaid.config or {}
    said = overlaid.trainer.get("step")
    step = said if isinstance(said, int) and not isinstance(said, bool) and said >= 0 else None
    rate, optimizer = (overlaid.trainer.get(name) for name in ("learning_rate", "optimizer"))
    init = config.get("init_lora_weights")
    known = isinstance(rate, (int, float)) and not isinstance(rate, bool)
    return Claims(
        step=step if claims.step is None and claims.learning_rate is not None else claims.step,
        learning_rate=claims.learning_rate
        if claims.learning_rate is not None or not known
        else float(str(rate)),
        init=claims.init
        if claims.init is not None
        else init
        if isinstance(init, (str, bool))
        else None,
        optimizer=claims.optimizer or (optimizer if isinstance(optimizer, str) else _OPTIMIZER),
    )


__all__ = ["Claims", "Request", "Validation", "validate"]
