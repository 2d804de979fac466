"""Reef: `serve.yaml` of both schemas, its launch command, and `reef-adapter.json`.

Facts from Reef at 33b4336 (schema 1), 0d50298 (schema 2), slime_arguments.py and lora.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from ....records.strict_json import Json
from . import values
from .document import Document, Entry, Interpolation, Unresolved, too_large
from .gates import always, positive
from .module_names import megatron
from .peft import SCHEMA
from .shell_text import parse_shell
from .table import Default, Key, Marker, Section, Stated, Trainer, plain_defaults

_COMMAND = re.compile(r"services\[\d+\]\.command")
_MAX_SERVICES = 100
_LORA = "megatron_lora_"


def with_commands(document: Document) -> Document:
    """Add the flags of a serve.yaml's service commands as keys below `command`.

    References to the document's own keys are put in first, as Reef does.
    """
    commands = [entry for entry in document.entries if _COMMAND.fullmatch(entry.key)]
    if len(commands) > _MAX_SERVICES:
        raise too_large(document.name, f"more than {_MAX_SERVICES} services")
    launched = [(entry, each) for entry in commands for each in _launched(document, entry)]
    trained = [pair for pair in launched if any(e.key.startswith(_LORA) for e in pair[1].entries)]
    extra = [
        flag for entry, command in trained or launched for flag in _flags(document, entry, command)
    ]
    gaps = [
        gap.replace(f"{document.name}:{command.line}:", f"{document.origin(entry)}:", 1)
        for entry, command in trained
        for gap in command.gaps
    ]
    return replace(
        document, entries=(*document.entries, *extra), gaps=(*document.gaps, *dict.fromkeys(gaps))
    )


def _launched(document: Document, entry: Entry) -> tuple[Document, ...]:
    value = entry.value
    if isinstance(value, list):
        value = " ".join(_quoted(str(word)) for word in value)
    if not isinstance(value, str) or isinstance(value, Unresolved):
        return ()
    return parse_shell(Interpolation(document).known(value), document.name)


def _quoted(word: str) -> str:
    """Quote a word of a list, but for the references in it."""
    return '"' + re.sub(r'([\\"`])', r"\\\1", word) + '"'


def _flags(document: Document, entry: Entry, command: Document) -> Iterator[Entry]:
    lines = _lines(document, entry)
    for flag in command.entries:
        yield replace(
            flag,
            key=f"command.{flag.key}",
            shown=f"{entry.shown} {flag.shown}",
            line=lines.get(flag.shown, entry.line),
        )


def _lines(document: Document, entry: Entry) -> dict[str, int]:
    """Find the lines of the words that a command holds, each word up to its `=`."""
    last = max(entry.line, min(entry.last, len(document.lines)))
    found: dict[str, int] = {}
    for number in range(entry.line, last + 1):
        for word in document.lines[number - 1].split():
            found.setdefault(word.partition("=")[0].strip("'\""), number)
    return found


def _rank(stated: Stated) -> Json:
    return stated.get("r")


PLACES = ("", "command.", "training.options.")

REEF = Trainer(
    name="Reef",
    version="",
    null_is_default=True,
    markers=(
        Marker(keys=("megatron_lora_rank",)),
        Marker(keys=("command.megatron_lora_rank",)),
        Marker(keys=("training.options.megatron_lora_rank",)),
        Marker(keys=("reef", "services")),
        Marker(keys=("schema_version", "training.backend")),
        Marker(keys=("schema_version", "inference.model_path")),
    ),
    prefixes=PLACES,
    keys=(
        Key("hf_checkpoint", "base_model_name_or_path", values.text),
        Key("reef.model_path", "base_model_name_or_path", values.text),
        Key("inference.model_path", "base_model_name_or_path", values.text),
        Key("lr", "learning_rate", values.rate),
        Key("optimizer", "optimizer", values.optimiser),
    ),
    sections=(
        Section(
            prefixes=PLACES,
            gate=positive("megatron_lora_rank"),
            keys=(
                Key("megatron_lora_rank", "r", values.rank_or_none),
                Key("megatron_lora_alpha", "lora_alpha", values.alpha),
                Key("megatron_lora_dropout", "lora_dropout", values.fraction),
                Key("megatron_lora_target_modules", "target_modules", megatron, several=True),
            ),
            defaults=(
                Default("lora_alpha", _rank, "megatron-lora-alpha = megatron-lora-rank"),
                Default("lora_dropout", 0.0, "megatron-lora-dropout = 0.0"),
                Default(
                    "target_modules",
                    ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
                    "linear_qkv, linear_proj, linear_fc1, linear_fc2",
                ),
                *plain_defaults(
                    bias="none", task_type="CAUSAL_LM", use_rslora=False, use_dora=False
                ),
            ),
        ),
    ),
)

REEF_ADAPTER = Trainer(
    name="Reef",
    version="",
    markers=(Marker(keys=("base_model.name_or_path", "peft")),),
    keys=(
        Key("base_model.name_or_path", "base_model_name_or_path", values.text),
        Key("base_model.revision", "revision", values.text),
        Key("source.scenario_step", "step", values.step),
    ),
    sections=(Section(prefixes=("peft.",), gate=always, keys=SCHEMA),),
)
