"""What an adapter must consist of: modules with their matrices, and parameters saved whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, TypeAlias

from ...base.model import ExpertParameter, Module, ModuleKind
from ...validation.result import Caution
from ..keys import Part, tensor_name

Shape: TypeAlias = tuple[int, ...]


class ExpectedModule(NamedTuple):
    """One wrapper of PEFT and the shapes of its tensors; `depth` as in keys.Key."""

    name: str
    depth: int
    shapes: Mapping[Part, Shape]

    def tensors(self) -> dict[str, Shape]:
        """Give the names on disk with their shapes."""
        return {tensor_name(self.name, part, self.depth): s for part, s in self.shapes.items()}


@dataclass(frozen=True)
class Expectation:
    """The tensors that must be there, and those that may.

    `optional` maps to None where no shape is known. `inferred` means that the tensors themselves
    were the only source: what is absent from every layer cannot be missed then.
    """

    modules: tuple[ExpectedModule, ...]
    whole: Mapping[str, Shape] = field(default_factory=dict[str, Shape])
    optional: Mapping[str, Shape | None] = field(default_factory=dict[str, "Shape | None"])
    cautions: tuple[Caution, ...] = ()
    inferred: bool = False

    @cached_property
    def tensors(self) -> Mapping[str, Shape]:
        """Give every tensor that must be there."""
        found: dict[str, Shape] = {}
        for module in self.modules:
            found.update(module.tensors())
        found.update(self.whole)
        return found


def lora_shapes(
    module: Module, rank: int, *, magnitude: bool = False, bias: bool = False
) -> dict[Part, Shape]:
    """Give the shapes of a LoRA on a module, as peft 0.21 writes them (tuners/lora/layer.py)."""
    if module.kind is ModuleKind.EMBEDDING:
        shapes: dict[Part, Shape] = {
            Part.EMBEDDING_A: (rank, module.inputs),
            Part.EMBEDDING_B: (module.outputs, rank),
        }
    else:
        shapes = {Part.A: (rank, module.inputs), Part.B: (module.outputs, rank)}
        if bias:
            shapes[Part.B_BIAS] = (module.outputs,)
    if magnitude:
        shapes[Part.MAGNITUDE] = (module.outputs,)
    return shapes


def wrapper_shapes(parameter: ExpertParameter, rank: int) -> dict[Part, Shape]:
    """Give the shapes of a LoRA on an expert parameter: the ranks of all experts lie in one row.

    A meets the inputs in both orientations of the parameter (measured with peft 0.21.2).
    """
    ranks = parameter.experts * rank
    return {Part.A: (ranks, parameter.inputs), Part.B: (parameter.outputs, ranks)}
