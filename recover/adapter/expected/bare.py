"""The model below a head, as AutoModel builds it: paths without the first segment, and no head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from ...base.architectures.registry import FAMILIES
from ...base.model import Base

_FEATURES = "FEATURE_EXTRACTION"


def bare(base: Base) -> Base | None:
    """Give the base without its head; None where it has none, or nothing tells where it begins."""
    stem = _stem(base)
    if stem is None:
        return None
    heads = tuple(f"{head}." for head in (base.output_embedding, base.classifier) if head)

    def names(known: Mapping[str, object]) -> dict[str, str]:
        return {n: n.removeprefix(stem) for n in known if not (f"{n}.").startswith(heads or "\0")}

    embedding = base.input_embedding
    return replace(
        base,
        tensors={new: base.tensors[n]._replace(name=new) for n, new in names(base.tensors).items()},
        modules={new: base.modules[n]._replace(name=new) for n, new in names(base.modules).items()},
        parameters={
            new: base.parameters[n]._replace(name=new) for n, new in names(base.parameters).items()
        },
        routers={new: base.routers[n]._replace(name=new) for n, new in names(base.routers).items()},
        tied={},
        unsized=frozenset(names(dict.fromkeys(base.unsized)).values()),
        input_embedding=embedding.removeprefix(stem) if embedding else None,
        output_embedding=None,
        classifier=None,
    )


def _stem(base: Base) -> str | None:
    family = FAMILIES.get(base.model_type or "")
    embedding = base.input_embedding or ""
    stem = family.stem if family is not None else f"{embedding.partition('.')[0]}."
    return stem if embedding.startswith(stem) else None


def trained_bare(config: Mapping[str, object] | None) -> bool | None:
    """Tell whether a configuration says that the model had no head; None where it says nothing."""
    if config is None:
        return None
    task = config.get("task_type")
    if task is not None:
        return task == _FEATURES
    mapping = config.get("auto_mapping")
    name = cast("dict[str, object]", mapping).get("base_model_class") if isinstance(
        mapping, dict) else None  # fmt: skip
    if not isinstance(name, str):
        return None
    return name.endswith("Model") and "For" not in name and "Head" not in name
