"""What each loader does about a configuration, whatever the tensors are.

Quotes are what the loaders print, cut short.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from ....records.names import printable
from ...checkpoint import JsonFault
from .facts import KNOWN_FIELDS, LoaderFacts
from .finding import (
    BASE_OUTPUT,
    OF_ADAPTERS,
    PEFT,
    RESUME,
    SGLANG,
    TRANSFORMERS,
    VLLM,
    Findings,
    LoaderFinding,
    Outcome,
)

_MISTYPED = frozenset(
    "r rank_pattern alpha_pattern modules_to_save layers_to_transform layer_replication "
    "trainable_token_indices use_dora lora_bias use_rslora bias ensure_weight_tying".split()
)
_VLLM_RANK = 16  # max_lora_rank where none is given


def _config(facts: LoaderFacts) -> Findings:
    if facts.has_config:
        return
    if facts.unread is not None:
        yield from _unread(facts.unread)
        return
    cannot = "ValueError: Can't find 'adapter_config.json' at '...'"
    yield LoaderFinding(PEFT, Outcome.RAISES, cannot)
    yield LoaderFinding(RESUME, Outcome.RAISES, cannot)
    yield LoaderFinding(
        TRANSFORMERS, Outcome.RAISES, "ValueError: adapter model file not found in ..."
    )
    for loader in (VLLM, SGLANG):
        yield LoaderFinding(loader, Outcome.RAISES, "FileNotFoundError: adapter_config.json")


def _unread(fault: JsonFault) -> Findings:
    for loader in OF_ADAPTERS:
        if fault.loaded:
            message = "The configuration is read less strictly than here."
            yield LoaderFinding(loader, Outcome.SILENT, message, fault.message)
        else:
            message = "JSONDecodeError, UnicodeDecodeError or KeyError: of adapter_config.json"
            yield LoaderFinding(loader, Outcome.RAISES, message, fault.message)


def _type(facts: LoaderFacts) -> Findings:
    kind = facts.config.get("peft_type")
    if not facts.has_config or kind == "LORA":
        return
    if kind is None:
        for loader in (PEFT, RESUME):
            yield LoaderFinding(loader, Outcome.RAISES, "KeyError: 'peft_type'")
        message = "TypeError: ... is missing required keys: {'peft_type'}."
        yield LoaderFinding(TRANSFORMERS, Outcome.RAISES, message)
        yield LoaderFinding(SGLANG, Outcome.RAISES, "KeyError: 'peft_type'")
        return
    for loader in (PEFT, RESUME, TRANSFORMERS):
        yield LoaderFinding(loader, Outcome.RAISES, f"KeyError: {_shown(kind)}")
    if str(kind).lower() != "lora":
        yield LoaderFinding(SGLANG, Outcome.RAISES, "AssertionError: only peft_type lora is served")


def _refused(facts: LoaderFacts) -> Findings:
    for refusal in facts.refused:
        for loader in (PEFT, RESUME, TRANSFORMERS):
            yield LoaderFinding(loader, Outcome.RAISES, refusal.error)


def _mistyped(facts: LoaderFacts) -> Findings:
    for found in facts.faults:
        if found.fault.field in _MISTYPED and found.fault.field in facts.config:
            for loader in OF_ADAPTERS:
                effect = "what it makes of that is not known"
                yield LoaderFinding(loader, Outcome.SILENT, found.fault.message, effect)


def _alpha(facts: LoaderFacts) -> Findings:
    if not facts.has_config:
        return
    alpha = facts.config.get("lora_alpha")
    if "lora_alpha" not in facts.config:
        for loader in (PEFT, RESUME, TRANSFORMERS):
            yield LoaderFinding(
                loader,
                Outcome.SILENT,
                "lora_alpha is missing, and 8 is taken.",
                "the update is scaled by a number that no recipe states",
            )
        yield LoaderFinding(SGLANG, Outcome.RAISES, "KeyError: 'lora_alpha'")
    elif isinstance(alpha, bool) or not isinstance(alpha, int | float):
        kind = type(alpha).__name__
        for loader in (PEFT, RESUME, TRANSFORMERS, VLLM, SGLANG):
            message = f"TypeError: unsupported operand type(s) for /: '{kind}' and 'int'"
            yield LoaderFinding(loader, Outcome.RAISES, message)
    elif abs(alpha) > sys.float_info.max:
        for loader in OF_ADAPTERS:
            message = "OverflowError: integer division result too large for a float"
            yield LoaderFinding(loader, Outcome.RAISES, message)
    elif alpha == 0:
        for loader in OF_ADAPTERS:
            yield LoaderFinding(loader, Outcome.SILENT, "lora_alpha is 0.", BASE_OUTPUT)


def _required_by_vllm(facts: LoaderFacts) -> Findings:
    absent = [key for key in ("lora_alpha", "r", "target_modules") if key not in facts.config]
    if facts.has_config and absent:
        fields = "{" + ", ".join(f"'{key}'" for key in absent) + "}"
        message = f"ValueError: Missing required configuration fields: {fields}"
        yield LoaderFinding(VLLM, Outcome.RAISES, message)
        for key in absent:
            if key != "lora_alpha":
                yield LoaderFinding(SGLANG, Outcome.RAISES, f"KeyError: '{key}'")


def _unknown_fields(facts: LoaderFacts) -> Findings:
    unknown = sorted(printable(key) for key in facts.config if key not in KNOWN_FIELDS)
    for loader in (PEFT, RESUME, TRANSFORMERS) if unknown else ():
        yield LoaderFinding(
            loader,
            Outcome.WARNS,
            f"UserWarning: Unexpected keyword arguments {unknown[:4]} for class LoraConfig, these"
            " are ignored.",
            "PEFT of before August 2024 raises TypeError instead",
        )


def _patterns(facts: LoaderFacts) -> Findings:
    keys = [key for key in ("rank_pattern", "alpha_pattern") if facts.config.get(key)]
    if keys:
        message = f"{' and '.join(keys)} {'is' if len(keys) == 1 else 'are'} not read."
        effect = "one scale, lora_alpha / r, is taken for all modules"
        yield LoaderFinding(VLLM, Outcome.SILENT, message, effect)
        yield LoaderFinding(SGLANG, Outcome.SILENT, message, effect)


def _serving_rank(facts: LoaderFacts) -> Findings:
    ranks = facts.adapter.ranks.keys() if not facts.adapter.strange else ()
    rank = facts.config.get("r", max(ranks, default=0))
    if isinstance(rank, int) and rank > _VLLM_RANK:
        yield LoaderFinding(
            VLLM,
            Outcome.RAISES,
            f"ValueError: LoRA rank {rank} is greater than max_lora_rank {_VLLM_RANK}.",
            f"by default; it serves with --max-lora-rank {rank} or more",
        )


def _rslora(facts: LoaderFacts) -> Findings:
    if facts.config.get("use_rslora"):
        yield LoaderFinding(
            SGLANG,
            Outcome.SILENT,
            "use_rslora is not read.",
            "the update is scaled by lora_alpha / r, too little by the root of r",
        )


def _init(facts: LoaderFacts) -> Findings:
    init = facts.config.get("init_lora_weights")
    if not isinstance(init, str):
        return
    if init == "eva":
        for loader in (PEFT, RESUME, TRANSFORMERS):
            message = "UserWarning: `init_lora_weights` is 'eva' but `eva_config` is not specified."
            if not facts.config.get("eva_config"):
                yield LoaderFinding(loader, Outcome.WARNS, message, "none: the tensors replace it")
    elif init.startswith("pissa") or init.lower() in ("olora", "mica"):
        again = ", and a random one, which even the same config does not repeat"
        for loader in (PEFT, RESUME, TRANSFORMERS):
            yield LoaderFinding(
                loader,
                Outcome.SILENT,
                f"init_lora_weights is {printable(init)}: the base's weights are changed first"
                f"{again if 'niter' in init else ''}.",
                "right only for an adapter that was not converted when it was saved",
            )


def _shown(value: object) -> str:
    return printable(repr(value)[:60])


CONFIG_RULES: tuple[Callable[[LoaderFacts], Findings], ...] = (
    _config,
    _type,
    _refused,
    _mistyped,
    _alpha,
    _required_by_vllm,
    _init,
    _patterns,
    _rslora,
    _serving_rank,
    _unknown_fields,
)
