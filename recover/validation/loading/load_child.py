"""What the process of `load_check` does: build a model on the meta device and load names into it.

Nothing of the base's weights exists: tensors on the meta device have shapes and no bytes.
"""

from __future__ import annotations

import json
import os
import re
import resource
import sys
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import torch

ADAPTER = "reefkit_check"  # a name that no file holds: `.default.` in a key must not fit by chance
_MEMORY = 8 << 30
# What the libraries raise for configs and tensors that they cannot use.
_REFUSALS: tuple[type[Exception], ...] = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    re.error,
)
_DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
}
_HEADS = {
    "SEQ_CLS": "AutoModelForSequenceClassification",
    "TOKEN_CLS": "AutoModelForTokenClassification",
    "QUESTION_ANS": "AutoModelForQuestionAnswering",
}
_SAMPLER = ".lora_monteclora_sampler."
_LABELS = re.compile(r"(?:\A|\.)(?:score|classifier)\.weight\Z")
# Values that need real weights to begin with; after loading none of them matters for a shape.
_INIT = "init_lora_weights"
_NOT_BUILT = ("quantization_config", "auto_map", "_attn_implementation", "torch_dtype", "dtype")


def main() -> None:
    """Answer the request on standard input; whatever the libraries print goes to stderr."""
    answer = os.dup(1)
    os.dup2(2, 1)
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    limit = _MEMORY if hard == resource.RLIM_INFINITY else min(_MEMORY, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    result = check(json.load(sys.stdin))
    with os.fdopen(answer, "w") as out:
        json.dump(result, out)


def check(request: Mapping[str, Any]) -> dict[str, object]:
    """Load what the request describes; what the libraries refuse is collected, not raised."""
    peft, torch, transformers = map(_library, ("peft", "torch", "transformers"))
    strict = getattr(_library("huggingface_hub.errors"), "StrictDataclassError", ValueError)
    transformers.logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    result: dict[str, object] = {
        "ok": False,
        "peft": peft.__version__,
        "transformers": transformers.__version__,
        "torch": torch.__version__,
        "missing": [],
        "unexpected": [],
        "overwrites": [],
        "not_checked": [],
        "errors": [],
        "resized_rows": request["rows"],
    }
    tensors = {
        name: torch.empty(shape, dtype=getattr(torch, _DTYPES.get(dtype, "float32")), device="meta")
        for name, dtype, shape in request["tensors"]
    }
    labels = {shape[0] for name, _, shape in request["tensors"] if shape and _LABELS.search(name)}
    try:
        with torch.device("meta"):
            model = _build(_labelled(request["model"], labels), _head_class(request))
        if request["adapter"] is None:
            result.update(_full(model, tensors))
        else:
            result.update(_adapter(model, request["adapter"], tensors))
    except (*_REFUSALS, cast("type[Exception]", strict)) as error:
        result["errors"] = [f"{type(error).__name__}: {error}"[:2000]]
    result["ok"] = not (result["missing"] or result["unexpected"] or result["errors"])
    return result


def _library(name: str) -> Any:
    """Import late, and without the types that these libraries do not have."""
    return import_module(name)


def _labelled(config: Mapping[str, Any], labels: set[int]) -> Mapping[str, Any]:
    """Give the config as many labels as the adapter's classifier has rows."""
    if len(labels) != 1:
        return config
    dropped = ("id2label", "label2id")
    kept = {key: value for key, value in config.items() if key not in dropped}
    return {**kept, "num_labels": next(iter(labels))}


def _head_class(request: Mapping[str, Any]) -> str | None:
    """Name the automatic class for an adapter's task, where it needs a head of its own."""
    if request.get("bare"):
        return "AutoModel"
    adapter = cast("Mapping[str, object]", request["adapter"] or {})
    task = adapter.get("task_type")
    return _HEADS.get(task) if isinstance(task, str) else None


def _build(config: Mapping[str, Any], head: str | None = None) -> Any:
    """Build the class that `architectures` names, if transformers itself has it."""
    transformers = _library("transformers")
    known = _library("transformers.models.auto.configuration_auto").CONFIG_MAPPING
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type not in known:
        raise ValueError(
            f"transformers {transformers.__version__} has no model type {model_type!r}"
        )
    wanted = {key: value for key, value in config.items() if key not in _NOT_BUILT}
    built = known[model_type].from_dict(wanted)
    if head is not None:
        return getattr(transformers, head).from_config(built)
    for name in cast("Sequence[object]", config.get("architectures") or ()):
        found = getattr(transformers, str(name), None)
        if isinstance(found, type) and issubclass(found, transformers.PreTrainedModel):
            return cast("Any", found)._from_config(built)
    causal = _library("transformers.models.auto.modeling_auto").MODEL_FOR_CAUSAL_LM_MAPPING
    auto = transformers.AutoModelForCausalLM if type(built) in causal else transformers.AutoModel
    return auto.from_config(built)


def _adapter(
    model: Any, config: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]
) -> dict[str, object]:
    peft = _library("peft")
    changed = {**config, _INIT: True} if _INIT in config else dict(config)
    changed["peft_type"] = config["peft_type"]  # the KeyError that PEFT itself ends with
    wrapped = peft.get_peft_model(
        model,
        peft.PeftConfig.from_peft_type(**changed),
        adapter_name=ADAPTER,
        autocast_adapter_dtype=False,
        low_cpu_mem_usage=True,
    )
    shared = _shared_names(wrapped)
    errors: list[str] = []
    try:
        loaded = peft.set_peft_model_state_dict(
            wrapped, dict(tensors), adapter_name=ADAPTER, low_cpu_mem_usage=True
        )
    except RuntimeError as error:
        errors = [line.strip() for line in str(error).splitlines() if "size mismatch" in line]
        if not errors:
            raise
        loaded = peft.set_peft_model_state_dict(
            wrapped,
            dict(tensors),
            adapter_name=ADAPTER,
            low_cpu_mem_usage=True,
            ignore_mismatched_sizes=True,
        )
    mismatched = {found[1] for line in errors if (found := _MISMATCH.search(line))}
    absent: set[str] = set(loaded.missing_keys)
    missing = [
        _without_adapter(key)
        for key in absent - mismatched
        if ADAPTER in key.split(".") and absent.issuperset(shared.get(key, ()))
    ]
    unexpected = {
        _without_adapter(key) for key in loaded.unexpected_keys if not _is_copy(key, tensors)
    }
    deferred: set[str] = set()
    if config.get("monteclora_config"):  # on the meta device PEFT makes the samplers later
        deferred = {name for name in unexpected if _SAMPLER in name and _has_pair(name, tensors)}
    of_base = {
        name for name, _ in wrapped.named_parameters() if ADAPTER not in name.split(".")
    } & tensors.keys()
    return {
        "missing": sorted(missing),
        "unexpected": sorted(unexpected - deferred),
        "not_checked": sorted(deferred),
        "overwrites": sorted(of_base),
        "errors": [line.replace(f".{ADAPTER}", "")[:1000] for line in errors],
    }


def _is_copy(key: str, tensors: Mapping[str, object]) -> bool:
    """Tell a second copy of a saved embedding, which PEFT itself writes for a resized vocabulary.

    What counts is the first, under the module's own name.
    """
    whole = key.replace(".modules_to_save.", ".")
    return whole != key and key in tensors and whole in tensors


def _has_pair(sampler: str, tensors: Mapping[str, object]) -> bool:
    module = sampler.partition(_SAMPLER)[0]
    return f"{module}.lora_A.weight" in tensors


def _shared_names(model: Any) -> dict[str, list[str]]:
    """Map each parameter that has several names to them: one of them in the file is enough."""
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return {name: group for group in names.values() if len(group) > 1 for name in group}


_MISMATCH = re.compile(r"size mismatch for (\S+):")


def _without_adapter(key: str) -> str:
    """Give the name on disk of a parameter in memory."""
    shorter = ".".join(segment for segment in key.split(".") if segment != ADAPTER)
    return re.sub(r"(\.lora_magnitude_vector)\.weight\Z", r"\1", shorter).replace(
        ".modules_to_save.", "."
    )


def _full(model: Any, tensors: Mapping[str, torch.Tensor]) -> dict[str, object]:
    """Hold the tensors against the checkpoint that transformers would write for this model."""
    state: Mapping[str, Any] = model.state_dict()
    tied: set[str] = set(getattr(model, "all_tied_weights_keys", None) or ())
    expected = _on_disk(model, state)
    needed = _on_disk(model, {name: t for name, t in state.items() if name not in tied})
    stem = f"{model.base_model_prefix}."
    present = {_spelled(name, expected, stem, tensors): tensor for name, tensor in tensors.items()}
    absent = [name for name in needed if name not in present]
    return {
        "missing": _unless(absent, getattr(model, "_keys_to_ignore_on_load_missing", None)),
        "unexpected": _unless(
            [name for name in present if name not in expected],
            getattr(model, "_keys_to_ignore_on_load_unexpected", None),
        ),
        "errors": [
            f"size mismatch for {name}: {list(tensor.shape)} in the checkpoint,"
            f" {list(expected[name])} in the model"
            for name, tensor in present.items()
            if name in expected and tuple(tensor.shape) != expected[name]
        ],
    }


def _on_disk(model: Any, state: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Give the names and shapes that transformers writes for these parameters in memory."""
    try:
        loading = _library("transformers.core_model_loading")
    except ImportError:  # transformers 4 has the same names in memory and on disk
        written = state
    else:
        written = loading.revert_weight_conversion(model, dict(state))
    return {name: tuple(tensor.shape) for name, tensor in written.items()}


def _spelled(
    name: str, expected: Mapping[str, object], stem: str, present: Mapping[str, object]
) -> str:
    """Add or drop the prefix of the inner model, as `from_pretrained` does."""
    other = name.removeprefix(stem) if name.startswith(stem) else stem + name
    fits = other in expected and other not in present
    return other if name not in expected and fits else name


def _unless(names: Sequence[str], ignored: object) -> list[str]:
    patterns = [re.compile(str(each)) for each in cast("Sequence[object]", ignored or ())]
    return sorted(name for name in names if not any(p.search(name) for p in patterns))
