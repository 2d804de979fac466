"""A base model as adapters see it: tensors by their names on disk, modules by those in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import NamedTuple


class ModuleKind(str, Enum):
    """How a module holds its weight, which decides the shapes of a LoRA on it."""

    LINEAR = "linear"  # weight (outputs, inputs)
    CONV1D = "conv1d"  # transformers' Conv1D of GPT-2: weight (inputs, outputs)
    EMBEDDING = "embedding"  # weight (rows, dimension): inputs are rows, outputs the dimension


class Module(NamedTuple):
    """A module with a weight that an adapter can target; the name is the one in memory.

    `former` ones were linear layers under transformers 4 only: single experts, and routers.
    """

    name: str
    kind: ModuleKind
    inputs: int
    outputs: int
    bias: bool = False
    former: bool = False


class ExpertParameter(NamedTuple):
    """A three-dimensional weight of fused experts, which `target_parameters` can name.

    `name` is the one in memory under transformers 5 (`model.layers.0.mlp.experts.gate_up_proj`),
    `shape` begins with the number of experts. `transposed` means (experts, inputs, outputs),
    as in gpt_oss; otherwise it is (experts, outputs, inputs).
    """

    name: str
    experts: int
    inputs: int
    outputs: int
    transposed: bool = False


class BaseTensor(NamedTuple):
    """One tensor of the checkpoint on disk; `dtype` is the safetensors name, None if unknown."""

    name: str
    shape: tuple[int, ...]
    dtype: str | None = None


class BaseSource(str, Enum):
    """Where the knowledge of a base comes from, strongest first."""

    HEADERS = "headers"
    CONFIG = "config"


@dataclass(frozen=True)
class Base:
    """A base model: what is on disk, what an adapter can target, and who it says it is.

    `modules` are those in memory under transformers 5, plus those that only transformers 4 had
    (`former`: single experts, `...mlp.experts.3.gate_proj`, and routers), which adapters trained
    with it still name.
    `tied` pairs a tensor that a checkpoint may leave out with the one that it equals.
    `identity` is a Hub id; a local path is none, and `identity_hint` is only what a config.json
    says of where it was saved from. `unsized` names tensors of an index whose shard cannot be read
    and whose shapes nothing else tells: theirs is given as (). `notes` say what a person should
    know of the base itself: missing shards, headers that contradict config.json, quantised weights.
    `classifier` is the head of a sequence classifier. `routers` are modules that choose experts,
    whose weight (outputs, inputs) an adapter reaches as a parameter only. `converted_targets` are
    the names in `target_modules` that PEFT turns into `target_parameters`: gate_proj and up_proj
    become gate_up_proj, with twice the rank and alpha (peft 0.21.2 with transformers 5).
    """

    label: str
    source: BaseSource
    model_type: str | None
    tensors: Mapping[str, BaseTensor] = field(repr=False)
    modules: Mapping[str, Module] = field(repr=False)
    parameters: Mapping[str, ExpertParameter] = field(
        default_factory=dict[str, ExpertParameter], repr=False
    )
    routers: Mapping[str, Module] = field(default_factory=dict[str, Module], repr=False)
    converted_targets: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    tied: Mapping[str, str] = field(default_factory=dict[str, str])
    input_embedding: str | None = None
    output_embedding: str | None = None
    classifier: str | None = None
    vocab_size: int | None = None
    layers: int | None = None
    experts: int | None = None
    config: Mapping[str, object] | None = field(default=None, repr=False)
    identity: str | None = None
    revision: str | None = None
    identity_hint: str | None = None
    unsized: frozenset[str] = field(default=frozenset(), repr=False)
    notes: tuple[str, ...] = ()

    @cached_property
    def all_linear(self) -> tuple[str, ...]:
        """Name the modules that PEFT's "all-linear" targets: linear and Conv1D but for the head.

        The rule is that of peft 0.21.2 with transformers 5: neither the output embedding nor the
        head of a sequence classifier, and no routers, which are modules of their own kind. Where it
        converts names of single experts (`converted_targets`), dense and shared layers of the same
        names are left out too; `all_linear_parameters` are then targeted beside the modules.
        """
        left_out = {self.output_embedding, self.classifier}
        return tuple(
            module.name
            for module in self.modules.values()
            if module.kind is not ModuleKind.EMBEDDING
            and not module.former
            and module.name not in left_out
            and module.name.rpartition(".")[2] not in self.converted_targets
        )

    @cached_property
    def all_linear_parameters(self) -> tuple[str, ...]:
        """Name the parameters that "all-linear" targets: routers and fused experts, or none."""
        if not self.converted_targets:
            return ()
        return (*(f"{name}.weight" for name in self.routers), *self.parameters)

    @cached_property
    def all_linear_former(self) -> tuple[str, ...]:
        """Name what "all-linear" targeted under transformers 4: single experts and routers too."""
        return tuple(
            module.name
            for module in self.modules.values()
            if module.kind is not ModuleKind.EMBEDDING
            and module.name not in (self.output_embedding, self.classifier)
        )
