"""What a model ends in, from the class that config.json names in `architectures`."""

from __future__ import annotations

from enum import Enum

from .family import Family
from .rows import HIDDEN, Row, linear
from .settings import Settings, exactly, listed, mapped


class Head(Enum):
    """The heads that are known."""

    LANGUAGE = "language"
    SEQUENCE = "sequence classification"
    TOKEN = "token classification"
    NONE = "none"


def head_of(family: Family, settings: Settings) -> Head | None:
    """Read the kind of head from `architectures`; None if the class is not known.

    Without `architectures` it is the family's language model. Raises Unusable.
    """
    name = class_name(settings)
    if name is None:
        return Head.LANGUAGE
    if name.endswith(family.causal_class):
        return Head.LANGUAGE
    if not family.text_only:
        return None
    if name.endswith("ForSequenceClassification"):
        return Head.SEQUENCE
    if name.endswith("ForTokenClassification") and family.stem == "model.":
        return Head.TOKEN
    bare = name.endswith("Model") and "For" not in name and "Head" not in name
    return Head.NONE if bare else None


def class_name(settings: Settings) -> str | None:
    """Give the first class that `architectures` names, or None. Raises Unusable."""
    value = settings.value("architectures")
    names = () if value is None else listed(value)
    if names is None or not all(isinstance(name, str) for name in names):
        raise settings.wrong("architectures", "a list of class names")
    return str(names[0]) if names else None


def head_row(family: Family, settings: Settings, head: Head) -> Row | None:
    """Give the row of a head: `lm_head`, `score`, or None for a bare model."""
    if head is Head.LANGUAGE:
        return family.head
    if head is Head.NONE:
        return None
    bias = head is Head.TOKEN and settings.value("token_classification_bias") is not False
    return linear("score", HIDDEN, exactly(_labels(settings)), bias)


def _labels(settings: Settings) -> int:
    labels = settings.value("id2label")
    if labels is None:
        return settings.number("num_labels")
    if names := mapped(labels):
        return len(names)
    raise settings.wrong("id2label", "an object with a name for each label")
