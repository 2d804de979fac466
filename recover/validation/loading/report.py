"""Say what the loaders in use would raise, warn about or swallow for exactly this checkpoint.

PEFT and transformers were run with every case here (peft 0.21.2, transformers 5.24.0); what vLLM
and SGLang do was read in their sources and not run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...adapter.structure import Adapter, read_adapter
from ...base.model import Base
from ...checkpoint import JsonFault
from ..result import Kind, Validation
from .facts import LoaderFacts
from .finding import FULL, OF_ADAPTERS, LoaderFinding, Outcome
from .rules import full_findings, objections, strange_findings


def loader_report(
    validation: Validation,
    adapter: Adapter | None = None,
    config: Mapping[str, object] | None = None,
    base: Base | None = None,
    *,
    unread: Sequence[JsonFault] = (),
    indices: Sequence[JsonFault] = (),
) -> tuple[LoaderFinding, ...]:
    """Give what every loader does, in the loaders' order; one that has no objection `loads`.

    `adapter` is read under the names that the tensors should have; which they have instead is in
    the renames of `validation`; None where they are not PEFT's or the method is not LoRA, and then
    only what is certain is said. Without a base nothing is said about targets. `unread` is an
    adapter_config.json that is there and cannot be read, `indices` the same of indices.
    """
    loaders: tuple[str, ...] = OF_ADAPTERS
    facts = LoaderFacts(
        validation,
        adapter or read_adapter(()),
        config or {},
        base,
        config is not None,
        unread[0] if unread else None,
    )
    if validation.kind is Kind.FULL:
        found = list(full_findings(validation, indices))
        loaders = (FULL,)
    elif adapter is not None:
        found = list(objections(facts))
    elif validation.kind is Kind.ADAPTER:
        found = list(strange_findings(facts))
    else:
        return ()
    order = {loader: number for number, loader in enumerate(loaders)}
    objected = {finding.loader for finding in found}
    if adapter is not None or validation.kind is Kind.FULL:
        found += [
            LoaderFinding(loader, Outcome.LOADS, "Nothing to object to.")
            for loader in loaders
            if loader not in objected
        ]
    return tuple(sorted(found, key=lambda finding: order[finding.loader]))
