"""Megatron-Bridge: YAML with `_target_`, overrides, and `LoRA(dim=..., alpha=...)` in a script.

Facts from Megatron-Bridge at 067f987: lora.py, canonical_lora.py, dora.py and peft_bridge.py.
"""

from __future__ import annotations

from ....records.strict_json import Json
from . import values
from .document import Kind, Unresolved
from .gates import present
from .module_names import megatron
from .reading import Reading
from .table import Default, Gate, Key, Marker, Section, Stated, Trainer, plain_defaults

KEYS = (
    Key("dim", "r", values.rank),
    Key("alpha", "lora_alpha", values.alpha),
    Key("dropout", "lora_dropout", values.fraction),
    Key("target_modules", "target_modules", megatron, several=True),
    Key("exclude_modules", "exclude_modules", megatron, several=True),
    Key("normalize_moe_lora", "normalize_moe_lora", values.flag),
    Key("share_expert_adapters", "share_expert_adapters", values.flag),
)
TARGETS = Default(
    "target_modules",
    ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    "linear_qkv, linear_proj, linear_fc1, linear_fc2",
)


def _gate(reading: Reading, prefix: str) -> Gate:
    target = reading.value(f"{prefix}_target_")
    if target is None or isinstance(target, Unresolved):
        return Gate.ON if reading.document.has(f"{prefix}dim") else Gate.SILENT
    known = str(target).rpartition(".")[2] in ("LoRA", "CanonicalLoRA", "DoRA", "VLMLoRA")
    return Gate.ON if known else Gate.OFF


def _dora(reading: Reading, prefix: str) -> None:
    for entry in reading.document.at(f"{prefix}_target_"):
        if str(entry.value).endswith("DoRA"):
            reading.state("use_dora", True, reading.document.origin(entry))
    for entry in reading.document.at(prefix.rstrip(".")):
        if entry.key.partition("#")[0] == "DoRA":
            reading.state("use_dora", True, reading.document.origin(entry))


def _alpha(stated: Stated) -> Json:
    return 64 if stated.get("use_dora") else 32


DEFAULTS = (
    Default("r", 32, "dim = 32"),
    Default("lora_alpha", _alpha, "alpha = 32, for DoRA 64"),
    Default("lora_dropout", 0.0, "dropout = 0.0"),
    TARGETS,
    *plain_defaults(
        use_rslora=False, use_dora=False, normalize_moe_lora=False, share_expert_adapters=True
    ),
)

MEGATRON_BRIDGE = Trainer(
    name="Megatron-Bridge",
    version="",
    aliases=("megatron",),
    markers=(
        Marker(keys=("peft._target_=megatron.bridge",)),
        Marker(keys=("lora._target_=megatron.bridge",)),
        Marker(
            keys=("peft.dim", "peft.alpha"), kinds=frozenset({Kind.YAML, Kind.SHELL}), sure=False
        ),
        Marker(words=("megatron.bridge",), kinds=frozenset({Kind.PYTHON})),
    ),
    prefixes=("", "AutoBridge.from_hf_pretrained."),
    keys=(
        Key("0", "base_model_name_or_path", values.text),
        Key("hf_model_id", "base_model_name_or_path", values.text),
        Key("model.hf_model_id", "base_model_name_or_path", values.text),
        Key("optimizer.lr", "learning_rate", values.rate),
        Key("optimizer.optimizer", "optimizer", values.optimiser),
    ),
    sections=(
        Section(("peft.", "lora."), KEYS, _gate, DEFAULTS, _dora),
        Section(("LoRA.", "CanonicalLoRA.", "DoRA."), KEYS, present(), DEFAULTS, _dora),
    ),
)
