"""Names that one tensor goes by: on disk, in memory, and with or without the model's prefix."""

from __future__ import annotations

from .architectures.family import Family
from .architectures.registry import FAMILIES
from .model import Base


def expected_name(base: Base, name: str) -> str | None:
    """Find the tensor of the base that a checkpoint may hold under this name.

    Accepted are the names themselves; those without the prefix of the bare model (`wte.weight` for
    `transformer.wte.weight`, as openai-community/gpt2 has them) and with it, for a bare model; and
    for gemma3 `vision_tower.` without `vision_model.`, as transformers 5 saves it.
    """
    if name in base.tensors:
        return name
    family = _family(base)
    if family is None:
        return None
    is_bare = not (base.input_embedding or "").startswith(family.stem)
    candidates = [name.removeprefix(family.stem) if is_bare else f"{family.stem}{name}"]
    candidates += [
        full + name.removeprefix(short)
        for short, full in family.disk_aliases.items()
        if name.startswith(short)
    ]
    return next((known for known in candidates if known in base.tensors), None)


def in_memory(base: Base, disk: str) -> str:
    """Give the name in memory under transformers 5 of a module, from its name on disk."""
    family = _family(base)
    if family is None or disk in base.modules:
        return disk
    for memory, stored in family.renamed.items():
        if disk.startswith(stored):
            return memory + disk.removeprefix(stored)
    spelled = f"{family.stem}{disk}"
    return spelled if spelled in base.modules else disk


def on_disk(base: Base, module: str) -> str:
    """Give the name on disk of a module, from its name in memory under transformers 5."""
    family = _family(base)
    if family is not None:
        for memory, stored in family.renamed.items():
            if module.startswith(memory):
                return stored + module.removeprefix(memory)
    return module


def _family(base: Base) -> Family | None:
    return FAMILIES.get(base.model_type or "")
