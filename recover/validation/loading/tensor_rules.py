"""What each loader does about tensors that do not meet their configuration or their base.

Quotes are what the loaders print, cut short.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....records.names import printable
from ...adapter.keys import Part
from .facts import LoaderFacts
from .finding import (
    BASE_OUTPUT,
    MISSING_KEYS,
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


def _targets(facts: LoaderFacts) -> Findings:
    if not facts.has_config:
        return
    if facts.target_fault is not None:
        for loader in (PEFT, RESUME, TRANSFORMERS):
            yield LoaderFinding(loader, Outcome.RAISES, facts.target_fault)
    elif facts.config.get("target_modules") is None and not facts.config.get("target_parameters"):
        message = "target_modules is missing, and the default of the architecture is taken."
        effect = "tensors of all other modules are left out"
        yield LoaderFinding(PEFT, Outcome.SILENT, message, effect)
        yield LoaderFinding(RESUME, Outcome.SILENT, message, effect)
        message = REPORT.format("UNEXPECTED", "are left out")
        yield LoaderFinding(TRANSFORMERS, Outcome.WARNS, message, effect)
    elif facts.targeted is not None and not facts.targeted:
        for loader in (PEFT, RESUME, TRANSFORMERS):
            yield LoaderFinding(
                loader,
                Outcome.RAISES,
                "NoMatchingPeftModuleError: Target modules {...} not found in the base model.",
            )


def _names(facts: LoaderFacts) -> Findings:
    """Say what becomes of names as they are in the file."""
    for rename in facts.validation.renames:
        fault = rename.fault
        every = rename.tensors >= facts.validation.found
        effect = BASE_OUTPUT if every else f"{rename.tensors:,} tensors are left out"
        shown = printable(rename.before) or "no prefix"
        own_name = fault == ".default."
        saved = fault.startswith("modules_to_save.")
        if own_name:
            message = "An adapter loaded under another name is written into the one named default."
            yield LoaderFinding(RESUME, Outcome.SILENT, message, effect)
        elif saved:
            message = f"`{shown}` in names fits a module only where the config saves it."
            yield LoaderFinding(PEFT, Outcome.SILENT, message, "those weights are left out")
            yield LoaderFinding(RESUME, Outcome.SILENT, message, "those weights are left out")
        else:
            name = printable(_first_lora(facts))
            yield LoaderFinding(PEFT, Outcome.WARNS, MISSING_KEYS.format(name), effect)
            message = f"Names with {shown} fit nothing; only the return value tells."
            yield LoaderFinding(RESUME, Outcome.SILENT, message, effect)
        if fault not in ("missing-prefix", "doubled-prefix"):  # transformers strips both itself
            message = REPORT.format("MISSING and UNEXPECTED", "do not meet")
            yield LoaderFinding(TRANSFORMERS, Outcome.WARNS, message, effect)
        if own_name or saved or (fault.startswith(".") and fault.endswith(".")):
            message = f"ValueError: ...{shown} is unsupported LoRA weight"
            yield LoaderFinding(VLLM, Outcome.RAISES, message)
        elif not fault.endswith("-prefix"):  # it takes base_model.model. out wherever it stands
            message = "Only the end of a module's path is checked."
            yield LoaderFinding(VLLM, Outcome.SILENT, message, effect)


def _sizes(facts: LoaderFacts) -> Findings:
    if not facts.wrong_shapes:
        return
    name = printable(facts.wrong_shapes[0])
    for loader in (PEFT, RESUME):
        yield LoaderFinding(
            loader,
            Outcome.RAISES,
            "RuntimeError: Error(s) in loading state_dict for PeftModelForCausalLM: size mismatch"
            f" for {name}",
        )
    yield LoaderFinding(
        TRANSFORMERS,
        Outcome.RAISES,
        "RuntimeError: You set `ignore_mismatched_sizes` to `False`, thus raising an error.",
    )


def _lacking(facts: LoaderFacts) -> Findings:
    if not facts.lacking or not facts.targeted:
        return
    if facts.lacking_experts:
        for loader in (PEFT, RESUME, TRANSFORMERS):
            yield LoaderFinding(
                loader,
                Outcome.RAISES,
                "RuntimeError: the experts are fused on loading, and the fused sizes mismatch.",
                f"{_modules(facts.lacking_experts)} have no matrices",
            )
        return
    effect = BASE_OUTPUT if facts.nothing_loads else f"{_modules(facts.lacking)} stay as the base"
    yield LoaderFinding(
        PEFT, Outcome.WARNS, MISSING_KEYS.format(facts.example(facts.lacking[0])), effect
    )
    yield LoaderFinding(RESUME, Outcome.SILENT, "Only the return value names them.", effect)
    yield LoaderFinding(TRANSFORMERS, Outcome.WARNS, REPORT.format("MISSING", "are new"), effect)
    yield LoaderFinding(VLLM, Outcome.SILENT, "Modules without matrices are not missed.", effect)


def _idle_patterns(facts: LoaderFacts) -> Findings:
    for field, (keys, experts) in facts.idle_patterns.items():
        shown = [printable(key) for key in keys[:4]]
        effect = "none: they are for expert parameters" if experts else "these keys change nothing"
        for loader in (PEFT, RESUME, TRANSFORMERS):
            yield LoaderFinding(
                loader,
                Outcome.WARNS,
                f"RuntimeWarning: The following {field} keys did not match any targeted module and"
                f" were ignored: {shown}.",
                effect,
            )


def _dropped(facts: LoaderFacts) -> Findings:
    if not facts.dropped or not facts.targeted:
        return
    effect = f"tensors of {_modules(facts.dropped)} are left out"
    for loader in (PEFT, RESUME):
        yield LoaderFinding(loader, Outcome.SILENT, "The targets do not cover the file.", effect)
    yield LoaderFinding(
        TRANSFORMERS, Outcome.WARNS, REPORT.format("UNEXPECTED", "are left out"), effect
    )


def _saved(facts: LoaderFacts) -> Findings:
    if facts.config.get("modules_to_save"):
        message = "ValueError: vLLM only supports modules_to_save being None."
        yield LoaderFinding(VLLM, Outcome.RAISES, message)
    if facts.saved_missing:
        name = printable(facts.saved_missing[0])
        for loader in (PEFT, RESUME):
            message = f"KeyError: 'base_model.model.{name}.weight'"
            yield LoaderFinding(loader, Outcome.RAISES, message)
        message = REPORT.format("MISSING", "are new")
        effect = f"{name} stays as in the base"
        yield LoaderFinding(TRANSFORMERS, Outcome.WARNS, message, effect)
    misnamed = any(r.fault.startswith("modules_to_save.") for r in facts.validation.renames)
    if facts.has_config and facts.saved_unannounced and not misnamed:
        for loader in (PEFT, RESUME, TRANSFORMERS):
            yield LoaderFinding(
                loader,
                Outcome.SILENT,
                "The file has whole weights that modules_to_save does not name.",
                f"{_modules(facts.saved_unannounced)} of the base are overwritten, also when the"
                " adapter is disabled",
            )


def _unannounced(facts: LoaderFacts) -> Findings:
    for part, flag in facts.unannounced if facts.has_config else ():
        message = f"The file has {part.value}, and {flag} is not set."
        effect = "those tensors are left out"
        yield LoaderFinding(PEFT, Outcome.SILENT, message, effect)
        yield LoaderFinding(RESUME, Outcome.SILENT, message, effect)
        yield LoaderFinding(
            TRANSFORMERS, Outcome.WARNS, REPORT.format("UNEXPECTED", "are left out"), effect
        )


def _tied(facts: LoaderFacts) -> Findings:
    for loader in (PEFT, RESUME, TRANSFORMERS) if facts.tied_apart else ():
        yield LoaderFinding(
            loader,
            Outcome.WARNS,
            "UserWarning: Model has `tie_word_embeddings=True` and a tied layer is part of the"
            " adapter, but `ensure_weight_tying` is not set to True.",
            "none until the adapter is merged",
        )
    tokens = facts.adapter.token_deltas
    if len(tokens) == 1 and facts.base is not None and facts.base.tied:
        message = REPORT.format("MISSING", "are new")
        effect = "none: the head shares the tokens of the input embedding"
        yield LoaderFinding(TRANSFORMERS, Outcome.WARNS, message, effect)


def _dora(facts: LoaderFacts) -> Findings:
    has = Part.MAGNITUDE in facts.adapter.parts
    if facts.config.get("use_dora"):
        yield LoaderFinding(VLLM, Outcome.RAISES, "ValueError: vLLM does not yet support DoRA.")
        if has:
            message = REPORT.format("MISSING and UNEXPECTED", "do not meet")
            effect = "the trained magnitudes are left out"
            yield LoaderFinding(TRANSFORMERS, Outcome.WARNS, message, effect)
        if not has and facts.adapter.modules:
            name = facts.example(next(iter(facts.adapter.modules))[0])
            name = name.replace("lora_A.weight", "lora_magnitude_vector.default.weight")
            effect = "the magnitudes are those of the base and A times B, not the trained ones"
            yield LoaderFinding(PEFT, Outcome.WARNS, MISSING_KEYS.format(name), effect)
            message = "Only the return value names them."
            yield LoaderFinding(RESUME, Outcome.SILENT, message, effect)
            message = REPORT.format("MISSING", "are new")
            yield LoaderFinding(TRANSFORMERS, Outcome.WARNS, message, effect)


def _unsupported_by_vllm(facts: LoaderFacts) -> Findings:
    parts = {
        Part.MAGNITUDE,
        Part.B_BIAS,
        Part.TOKEN_DELTA,
        Part.DIAGONAL,
        Part.VELORA,
        Part.MONTECLORA,
        Part.BASE_BIAS,
        Part.WHOLE,
    }
    for name, key in facts.adapter.keys.items():
        if key.part in parts:
            message = f"ValueError: {printable(name)} is unsupported LoRA weight"
            yield LoaderFinding(VLLM, Outcome.RAISES, message)
            return


def _sglang_groups(facts: LoaderFacts) -> Findings:
    if facts.shared_projections is not None:
        name = facts.example(facts.shared_projections[1])
        yield LoaderFinding(SGLANG, Outcome.RAISES, f"KeyError: '{name}'")


def _first_lora(facts: LoaderFacts) -> str:
    module = next(iter(facts.adapter.modules), None)
    return facts.example(module[0]) if module else "base_model.model. ..."


def _modules(names: Sequence[str]) -> str:
    first = printable(names[0])
    return first if len(names) == 1 else f"{len(names):,} modules, {first} among them,"


TENSOR_RULES: tuple[Callable[[LoaderFacts], Findings], ...] = (
    _targets,
    _idle_patterns,
    _names,
    _sizes,
    _lacking,
    _dropped,
    _saved,
    _unannounced,
    _dora,
    _tied,
    _unsupported_by_vllm,
    _sglang_groups,
)
