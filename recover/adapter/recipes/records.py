"""What a run leaves beside an adapter: its model card and the Trainer's state."""

from __future__ import annotations

from . import values
from .document import Entry, Kind
from .gates import always
from .reading import Reading
from .table import Key, Marker, Section, Trainer

_BASE_TAG = "base_model:adapter:"


def _tags(reading: Reading, _prefix: str) -> None:
    """Read the tags that PEFT puts on a card: the method, and the base model once more."""
    for entry in reading.document.at("tags"):
        for tag in entry.value if isinstance(entry.value, list) else ():
            if tag == "lora":
                reading.state("peft_type", "LORA", reading.document.origin(entry))
            elif isinstance(tag, str) and tag.startswith(_BASE_TAG):
                named = Entry(entry.key, entry.shown, tag.removeprefix(_BASE_TAG), entry.line)
                reading.take(named, Key("tags", "base_model_name_or_path", values.text))
    for entry in reading.document.at("base_model"):
        items = entry.value if isinstance(entry.value, list) else [entry.value]
        for item in items:
            named = Entry(entry.key, entry.shown, item, entry.line)
            reading.take(named, Key("base_model", "base_model_name_or_path", values.text))


CARD = Trainer(
    name="model card",
    version="",
    markers=(
        Marker(keys=("base_model",), kinds=frozenset({Kind.CARD})),
        Marker(keys=("peft_version",), kinds=frozenset({Kind.CARD})),
    ),
    keys=(
        Key("base_model_revision", "revision", values.text),
        Key("peft_version", "peft_version", values.text),
    ),
    sections=(Section(prefixes=("",), gate=always, keys=()),),
    rule=_tags,
)


def _largest_rate(reading: Reading, _prefix: str) -> None:
    """The schedule's largest rate is the one that bounds what a step can do."""
    largest: tuple[float, Entry] | None = None
    key = Key("learning_rate", "learning_rate", values.number)
    for entry in reading.document.below("log_history["):
        if entry.key.endswith("].learning_rate"):
            value = reading.converted(entry, key)
            if isinstance(value, (int, float)) and (largest is None or value > largest[0]):
                largest = (value, entry)
    if largest and largest[0] > 0:
        reading.state("learning_rate", largest[0], reading.document.origin(largest[1]))


TRAINER_STATE = Trainer(
    name="Transformers Trainer",
    version="",
    markers=(Marker(keys=("global_step", "log_history")),),
    keys=(Key("global_step", "step", values.step),),
    sections=(Section(prefixes=("",), gate=always, keys=()),),
    rule=_largest_rate,
)
