"""What the loaders raise, warn about or swallow: each rule gives findings where its facts hold."""

from __future__ import annotations

from collections.abc import Sequence

from ....records.names import printable
from ...checkpoint import JsonFault
from ..result import Damage, DamageClass, Validation
from .config_rules import CONFIG_RULES
from .facts import CONTENT_CLASSES, UNREADABLE_CLASSES, LoaderFacts
from .finding import (
    BASE_OUTPUT,
    FULL,
    MISSING_KEYS,
    OF_ADAPTERS,
    PEFT,
    REPORT,
    RESUME,
    SGLANG,
    TRANSFORMERS,
    VLLM,
    Findings,
    LoaderFinding,
    Outcome,
)
from .tensor_rules import TENSOR_RULES


def objections(facts: LoaderFacts) -> Findings:
    """Give everything that any loader raises, warns about or swallows about an adapter."""
    yield from _bytes(facts)
    for rule in (*CONFIG_RULES, *TENSOR_RULES):
        yield from rule(facts)


def _bytes(facts: LoaderFacts) -> Findings:
    yield from _about_bytes(facts.validation.damage, OF_ADAPTERS)
    odd = [dtype for dtype in facts.adapter.dtypes if not dtype.startswith(("F", "BF"))]
    for loader in (PEFT, RESUME, TRANSFORMERS) if odd else ():
        message = f"{' and '.join(odd)} is cast to the model's dtype."
        yield LoaderFinding(loader, Outcome.SILENT, message, "numbers lost their fractions")


def strange_findings(facts: LoaderFacts) -> Findings:
    """Give what is certain about a foreign naming, and about a method that is not LoRA."""
    yield from _about_bytes(facts.validation.damage, OF_ADAPTERS)
    naming = facts.validation.naming
    if naming is None:
        for loader in (VLLM, SGLANG):
            message = f"An adapter of the method {facts.validation.method} is not served."
            yield LoaderFinding(loader, Outcome.RAISES, message)
        return
    for rule in CONFIG_RULES:
        yield from rule(facts)
    if facts.has_config:
        message = MISSING_KEYS.format("all")
        yield LoaderFinding(PEFT, Outcome.WARNS, message, BASE_OUTPUT)
        message = f"Names of {naming} fit nothing; only the return value tells."
        yield LoaderFinding(RESUME, Outcome.SILENT, message, BASE_OUTPUT)
        message = REPORT.format("MISSING and UNEXPECTED", "do not meet")
        yield LoaderFinding(TRANSFORMERS, Outcome.WARNS, message, BASE_OUTPUT)
        message = "ValueError: ... is unsupported LoRA weight"
        yield LoaderFinding(VLLM, Outcome.RAISES, message)


def full_findings(validation: Validation, indices: Sequence[JsonFault] = ()) -> Findings:
    """Give what transformers does about a full checkpoint, with the indices that are unreadable."""
    for fault in indices:
        if fault.loaded:
            message = "The index is read less strictly than here."
            yield LoaderFinding(FULL, Outcome.SILENT, message, fault.message)
        else:
            message = "JSONDecodeError, UnicodeDecodeError or KeyError: of the index"
            yield LoaderFinding(FULL, Outcome.RAISES, message, fault.message)
    lacking = [one for one in validation.damage if one.kind is DamageClass.SHARD_MISSING]
    for one in lacking[:1]:
        message = "OSError: ... does not appear to have a file named ..."
        yield LoaderFinding(FULL, Outcome.RAISES, message, one.message)
    yield from _about_bytes(validation.damage, (FULL,))
    shapes = [m for m in validation.mismatched if m.aspect == "shape"]
    if shapes:
        message = "RuntimeError: You set `ignore_mismatched_sizes` to `False`, ..."
        yield LoaderFinding(FULL, Outcome.RAISES, message, printable(shapes[0].tensor))
    if validation.missing:
        yield LoaderFinding(
            FULL,
            Outcome.WARNS,
            REPORT.format("MISSING", "are new"),
            f"{len(validation.missing):,} tensors are drawn at random",
        )
    if validation.unexpected:
        yield LoaderFinding(
            FULL,
            Outcome.WARNS,
            REPORT.format("UNEXPECTED", "are left out"),
            f"{len(validation.unexpected):,} tensors are left out",
        )
    if len(validation.mismatched) > len(shapes):
        message = "A dtype that is not the config's is cast."
        yield LoaderFinding(FULL, Outcome.SILENT, message, "values are rounded")


def _about_bytes(damage: Sequence[Damage], loaders: Sequence[str]) -> Findings:
    for classes, outcome, text in (
        (UNREADABLE_CLASSES, Outcome.RAISES, "SafetensorError: Error while deserializing header."),
        (CONTENT_CLASSES, Outcome.SILENT, "Values are not looked at."),
    ):
        first = next((d for d in damage if d.kind in classes), None)
        for loader in loaders if first is not None else ():
            yield LoaderFinding(loader, outcome, text, first.message if first else "")
