"""LLaMA-Factory: YAML, JSON and its command line. Facts from 0.9.5."""

from __future__ import annotations

from ....records.strict_json import Json
from . import values
from .gates import switched
from .reading import Reading
from .table import WRITTEN, Default, Gate, Key, Marker, Section, Stated, Trainer, plain_defaults


def _targets(value: Json) -> Json:
    found = values.words(value)
    return "all-linear" if found == ["all"] else found


def _twice_the_rank(stated: Stated) -> Json:
    found = stated.get("r")
    return 2 * found if isinstance(found, int) else None


def _iterations(value: Json) -> Json:
    return values.whole(value, -1, 1 << 30)


_ITERATIONS = Key("pissa_iter", "init_lora_weights", _iterations)
_PISSA = Key("pissa_init", "init_lora_weights", values.flag)


def _pissa(reading: Reading, prefix: str) -> None:
    """Without `pissa_iter` the quick PiSSA with 16 iterations is used; -1 asks for the exact."""
    iterations: Json = 16
    for entry in reading.document.at(f"{prefix}pissa_iter"):
        iterations = reading.converted(entry, _ITERATIONS)
    for entry in reading.document.at(f"{prefix}pissa_init"):
        if reading.converted(entry, _PISSA) and iterations is not None:
            method = "pissa" if iterations == -1 else f"pissa_niter_{iterations}"
            reading.state("init_lora_weights", method, reading.document.origin(entry))


LLAMA_FACTORY = Trainer(
    name="LLaMA-Factory",
    version="0.9.5",
    null_is_default=True,
    continues=("adapter_name_or_path",),
    markers=(
        Marker(keys=("finetuning_type",), kinds=WRITTEN),
        Marker(keys=("lora_target", "model_name_or_path"), kinds=WRITTEN),
        Marker(keys=("finetuning_type",), sure=False),
        Marker(keys=("lora_target", "model_name_or_path"), sure=False),
        Marker(keys=("stage", "lora_rank"), sure=False),
        Marker(words=("llamafactory",)),
        Marker(words=("llamafactory-cli",)),
    ),
    keys=(
        Key("model_name_or_path", "base_model_name_or_path", values.text),
        Key("model_revision", "revision", values.text),
        Key("learning_rate", "learning_rate", values.rate),
        Key("optim", "optimizer", values.optimiser),
    ),
    sections=(
        Section(
            prefixes=("",),
            gate=switched("finetuning_type", "lora", otherwise=Gate.ON),
            keys=(
                Key("lora_rank", "r", values.rank),
                Key("lora_alpha", "lora_alpha", values.alpha),
                Key("lora_dropout", "lora_dropout", values.fraction),
                Key("lora_target", "target_modules", _targets, several=True),
                Key("additional_target", "modules_to_save", values.names, several=True),
                Key("use_rslora", "use_rslora", values.flag),
                Key("use_dora", "use_dora", values.flag),
                Key("pissa_convert", "converted_initialisation", values.flag),
            ),
            rule=_pissa,
            defaults=(
                Default("r", 8, "lora_rank = 8"),
                Default("lora_alpha", _twice_the_rank, "lora_alpha = 2 x lora_rank"),
                Default("lora_dropout", 0.0, "lora_dropout = 0.0"),
                Default("target_modules", "all-linear", "lora_target = all"),
                *plain_defaults(use_rslora=False, use_dora=False, task_type="CAUSAL_LM"),
            ),
        ),
    ),
)
