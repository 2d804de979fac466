"""Values of adapter_config.json that PEFT itself refuses, each with the error that it raises.

Read off `LoraConfig.__post_init__` and `tuners/lora/layer.py` of peft 0.21.2, and measured with it.
Values of a wrong type are the business of faults.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, cast

from ...base.model import Base, ModuleKind
from ...formats.safetensors_errors import shown
from ..expected.embeddings import trained_tokens
from ..expected.layer_replication import replication_fault

TASKS = frozenset(
    "SEQ_CLS SEQ_2_SEQ_LM CAUSAL_LM TOKEN_CLS QUESTION_ANS FEATURE_EXTRACTION".split()
)
_INITIALISATIONS = frozenset("eva orthogonal loftq lora_ga".split())
_IN_ANY_CASE = frozenset("gaussian olora mica".split())
_SUBCONFIGS = (
    "arrow_config corda_config eva_config kasa_config lora_ga_config use_bdlora velora_config"
).split()
_MONTECLORA = frozenset(
    "num_samples use_entropy dirichlet_prior sample_scaler kl_loss_weight buffer_size".split()
)


class Refusal(NamedTuple):
    """A field, what is wrong with it in a clause, and what PEFT raises; all fit to print."""

    field: str
    reason: str
    error: str

    @property
    def message(self) -> str:
        """Say it in one sentence."""
        return f"{self.field} {self.reason}: PEFT refuses the configuration."


Refusals = Iterator[Refusal]


def refusals(config: Mapping[str, object]) -> tuple[Refusal, ...]:
    """Give what PEFT refuses of a configuration whatever the base is."""
    return tuple(found for rule in _RULES for found in rule(config))


def refusals_of_base(
    config: Mapping[str, object], base: Base, rows: int | None = None
) -> tuple[Refusal, ...]:
    """Give what PEFT refuses on this base, `rows` being the size of a resized vocabulary.

    The configuration must be free of fatal faults.
    """
    found: list[Refusal] = []
    if (error := replication_fault(base, config)) is not None:
        reason = "is not possible with the layers of the base"
        found.append(Refusal("layer_replication", reason, error))
    return (*found, *_tokens(config, base, rows))


def _task(config: Mapping[str, object]) -> Refusals:
    task = config.get("task_type")
    if task is not None and not (isinstance(task, str) and task in TASKS):
        error = f"ValueError: Invalid task type: '{_short(task)}'. Must be one of the following ..."
        yield Refusal("task_type", f"is `{_short(task)}`, which is no task", error)


def _layers(config: Mapping[str, object]) -> Refusals:
    pattern = isinstance(config.get("target_modules"), str)
    for field in ("layers_to_transform", "layers_pattern"):
        if pattern and config.get(field) is not None:
            error = f"ValueError: `{field}` cannot be used when `target_modules` is a str."
            yield Refusal(field, "is there beside a pattern or a word as target_modules", error)
    if config.get("layers_pattern") and config.get("layers_to_transform") is None:
        error = (
            "ValueError: When `layers_pattern` is specified, `layers_to_transform` must also be "
            "specified."
        )
        yield Refusal("layers_pattern", "is there without layers_to_transform", error)


def _init(config: Mapping[str, object]) -> Refusals:
    field = "init_lora_weights"
    init = config.get(field)
    if init is not None and not isinstance(init, (bool, str)) and init:
        error = f"AttributeError: '{type(init).__name__}' object has no attribute 'lower'"
        yield Refusal(field, f"is `{_short(init)}`, which is no initialisation", error)
    elif isinstance(init, str) and init:
        unknown = _unknown_init(init)
        if unknown is not None:
            yield Refusal(field, f"is `{_short(init)}`, which is no initialisation", unknown)
    if init == "loftq" and not config.get("loftq_config"):
        error = "ImportError (scipy is absent) or ValueError (no loftq_config)"
        yield Refusal(field, "is `loftq` without a loftq_config", error)
    if init == "orthogonal" and any(rank % 2 for rank in _ranks(config)):
        error = "ValueError: Orthogonal initialization requires the LoRA rank to be even"
        yield Refusal(field, "is `orthogonal`, and a rank is odd", error)


def _unknown_init(init: str) -> str | None:
    if init in _INITIALISATIONS or init.lower() in _IN_ANY_CASE:
        return None
    if init.startswith("corda"):
        return "ValueError: `eigens` attribute not found for layer, ..."
    if init.startswith("pissa"):
        parts = init.split("_niter_")
        if init == "pissa" or (len(parts) == 2 and parts[1].isascii() and parts[1].isdigit()):
            return None
        return "ValueError: init_lora_weights should be 'pissa' or 'pissa_niter_[number of iters]'"
    return f"ValueError: Unknown initialization init_lora_weights='{_short(init)}'"


def _ranks(config: Mapping[str, object]) -> Iterator[int]:
    pattern = config.get("rank_pattern")
    values = list(cast("dict[str, object]", pattern).values()) if isinstance(pattern, dict) else []
    for value in (config.get("r"), *values):
        if isinstance(value, int):
            yield value


def _variants(config: Mapping[str, object]) -> Refusals:
    if config.get("use_dora") and config.get("megatron_config"):
        error = "ValueError: DoRA does not support megatron_core, please set `use_dora=False`."
        yield Refusal("use_dora", "is set beside megatron_config", error)
    if config.get("lora_bias"):
        if config.get("use_dora"):
            error = "ValueError: The argument lora_bias=True is not supported for DoRA, ..."
            yield Refusal("lora_bias", "is set beside use_dora", error)
        if config.get("init_lora_weights", True) not in (True, False):
            error = (
                "ValueError: The argument lora_bias=True is only supported with "
                "init_lora_weights=True or False, ..."
            )
            yield Refusal("lora_bias", "is set beside an init_lora_weights of its own", error)


def _dropout(config: Mapping[str, object]) -> Refusals:
    value = config.get("lora_dropout", 0.0)
    if not isinstance(value, (int, float)):
        error = f"TypeError: '>' not supported between instances of '{type(value).__name__}' and .."
        yield Refusal("lora_dropout", f"is `{_short(value)}`, which is no number", error)
    elif value > 1:
        error = f"ValueError: dropout probability has to be between 0 and 1, but got {value:.6g}"
        yield Refusal("lora_dropout", "is above 1", error)


def _targets(config: Mapping[str, object]) -> Refusals:
    targets, parameters = config.get("target_modules"), config.get("target_parameters")
    if targets is not None and not targets and not parameters:
        error = "NoMatchingPeftModuleError: No `target_modules` passed but also no ..."
        yield Refusal("target_modules", "is empty", error)


def _subconfigs(config: Mapping[str, object]) -> Refusals:
    for field in _SUBCONFIGS:
        if not isinstance(config.get(field), (dict, type(None))):
            error = "TypeError: `...` must be a `...`, a dict, or None."
            yield Refusal(field, "is no object", error)
    monteclora = config.get("monteclora_config")
    if isinstance(monteclora, dict):
        for key in cast("dict[str, object]", monteclora).keys() - _MONTECLORA:
            error = "RecursionError, or TypeError: got an unexpected keyword argument"
            yield Refusal("monteclora_config", f"has the unknown key `{_short(key)}`", error)
            return


def _tokens(config: Mapping[str, object], base: Base, rows: int | None) -> Refusals:
    field = "trainable_token_indices"
    indices = config.get(field)
    if not indices:
        return
    if isinstance(indices, dict):
        saved = config.get("modules_to_save") or ()
        for name in cast("dict[str, object]", indices):
            if not any(module.endswith(name) for module in base.modules):
                error = f"ValueError: Target modules {{'{_short(name)}'}} not found in the base"
                yield Refusal(field, f"names `{_short(name)}`, no module of the base", error)
            elif name in cast("list[object]", saved):
                error = "ValueError: The embedding layer is already marked to be trained fully, ..."
                yield Refusal(field, f"names `{_short(name)}`, as modules_to_save does", error)
    for name, tokens in trained_tokens(base, config).items():
        module = base.modules[name]
        count = module.inputs if module.kind is ModuleKind.EMBEDDING else module.outputs
        count = max(count, rows or 0) if name in _embeddings(base) else count
        if max(tokens, default=0) >= count:
            error = f"IndexError: index {max(tokens)} is out of bounds for dimension 0"
            reason = (
                f"names the row {max(tokens):,} of `{_short(name)}`, which has {count:,}; state "
                "--set tokenizer_size=… where the vocabulary was resized"
            )
            yield Refusal(field, reason, error)


def _embeddings(base: Base) -> tuple[str | None, ...]:
    return (base.input_embedding, base.output_embedding)


def _short(value: object) -> str:
    return shown(str(value)[:60])


_RULES: tuple[Callable[[Mapping[str, object]], Refusals], ...] = (
    _task,
    _layers,
    _init,
    _variants,
    _dropout,
    _targets,
    _subconfigs,
)
