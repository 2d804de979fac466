"""Turn the rows of a family and the values of a config into tensors, modules and parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ..model import BaseTensor, ExpertParameter, Module
from .contents import MAX_TENSORS, Contents, Resolver, too_many
from .family import Block, Family
from .heads import Head, head_row
from .quantisation import Quantisation
from .settings import Settings


@dataclass
class Parts:
    """What a model is made of: tensors by names on disk, the rest by names in memory."""

    tensors: dict[str, BaseTensor] = field(default_factory=dict[str, BaseTensor])
    modules: dict[str, Module] = field(default_factory=dict[str, Module])
    parameters: dict[str, ExpertParameter] = field(default_factory=dict[str, ExpertParameter])
    routers: dict[str, Module] = field(default_factory=dict[str, Module])


def build(
    family: Family,
    settings: Settings,
    head: Head,
    dtype: str | None,
    quantisation: Quantisation,
) -> Parts:
    """Build all parts. Raises Unusable for a wrong value, and for more than 300,000 tensors."""
    parts = Parts()
    dropped = family.stem if head is Head.NONE else ""
    for block in family.blocks:
        own = settings.part(block.part)
        resolver = Resolver(own, dtype, quantisation)
        for path, contents in _layers(block, own, resolver, len(parts.tensors)):
            _add(parts, contents, path.removeprefix(dropped), _on_disk(family, path, dropped))
    row = head_row(family, settings, head)
    if row is not None:
        resolver = Resolver(settings.part(family.part), dtype, quantisation)
        _add_head(parts, family, resolver.contents((row,)), settings)
    return parts


def _layers(
    block: Block, settings: Settings, resolver: Resolver, already: int
) -> Iterator[tuple[str, Contents]]:
    """Give the path and the contents of each layer; layers of the same traits share them."""
    traits = block.traits(settings)
    if block.count is None:
        further = (row for trait in traits(0) for row in block.layers[trait])
        yield block.path, resolver.contents((*block.rows, *further))
        return
    count = settings.number(block.count)
    if count > MAX_TENSORS:
        raise too_many(settings, block.count)
    kinds = [traits(layer) for layer in range(count)]
    known: dict[tuple[str, ...], Contents] = {}
    for kind in dict.fromkeys(kinds):
        further = (row for trait in kind for row in block.layers[trait])
        known[kind] = resolver.contents((*block.rows, *further))
    if already + sum(len(known[kind].tensors) for kind in kinds) > MAX_TENSORS:
        raise too_many(settings, block.count)
    for layer, kind in enumerate(kinds):
        yield block.path.format(layer), known[kind]


def _add(parts: Parts, contents: Contents, memory: str, disk: str) -> None:
    tensors, modules, parameters = parts.tensors, parts.modules, parts.parameters
    for name, dimensions, dtype in contents.tensors:
        full = disk + name
        tensors[full] = BaseTensor(full, dimensions, dtype)
    for prefix, group, target in (
        (memory, contents.modules, modules),
        (disk, contents.former, modules),
        (memory, contents.routers, parts.routers),
    ):
        for name, kind, inputs, outputs, bias, former in group:
            full = prefix + name
            target[full] = Module(full, kind, inputs, outputs, bias, former)
    for name, experts, inputs, outputs, transposed in contents.parameters:
        full = memory + name
        parameters[full] = ExpertParameter(full, experts, inputs, outputs, transposed)


def _add_head(parts: Parts, family: Family, contents: Contents, settings: Settings) -> None:
    """Add a head; `lm_head.weight` is not on disk where it is tied to the embedding."""
    disk = _on_disk(family, contents.modules[0].name, "").removesuffix(contents.modules[0].name)
    _add(parts, contents, "", disk)
    if contents.modules[0].name == "lm_head" and settings.flag("tie_word_embeddings"):
        del parts.tensors[f"{disk}lm_head.weight"]


def _on_disk(family: Family, path: str, dropped: str) -> str:
    for memory, disk in family.renamed.items():
        if path.startswith(memory):
            return disk + path[len(memory) :]
    return path.removeprefix(dropped)


def tied(family: Family, settings: Settings, head: Head) -> Mapping[str, str]:
    """Pair the head's weight with the embedding's, by names on disk, where they are tied."""
    if head is not Head.LANGUAGE or not settings.flag("tie_word_embeddings"):
        return {}
    names = (_on_disk(family, name, "") for name in ("lm_head", family.embedding))
    output, embedding = (f"{name}.weight" for name in names)
    return {output: embedding}
