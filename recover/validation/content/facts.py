"""What the bytes of a checkpoint say by themselves, and what a tensor is there for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from math import prod
from typing import NamedTuple

from ...formats.safetensors import Tensor
from ...ranges import Range
from ..result import Caution, Damage


class Purpose(str, Enum):
    """What a tensor is to an adapter or a model; it decides which values are lawful."""

    LORA_A = "lora_A"
    LORA_B = "lora_B"
    EMBEDDING_A = "lora_embedding_A"  # PEFT starts these with zeros, and EMBEDDING_B at random
    EMBEDDING_B = "lora_embedding_B"
    MAGNITUDE = "magnitude"
    BIAS = "bias"
    NORM = "norm"
    EMBEDDING = "embedding"
    WEIGHT = "weight"
    TOKEN_DELTA = "token-delta"
    OTHER = "other"


class Role(NamedTuple):
    """What a tensor is there for.

    `kind` is what the same module of another layer shares (`model.layers.*.self_attn.q_proj`),
    `module` the module in full, which joins the A and the B of one LoRA, and `layer` what tells
    layers apart (`model.layers.7`).
    """

    purpose: Purpose
    kind: str = ""
    module: str = ""
    layer: str | None = None


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """What all bytes of one tensor say; numbers cover the elements that could be read.

    `nan`, `inf` and `first_bad` (an index) count elements; of a complex number either half may be
    bad. `max_abs` is the largest finite magnitude and `rms` the root of the mean square, both None
    for dtypes without. `all_zero` holds when every value is zero, also a negative zero, and every
    element could be read. `digest` is a sum of the bytes as 64-bit words, not of cryptographic
    strength. `odd_bytes` counts bytes of a BOOL that are neither 0 nor 1.
    """

    tensor: Tensor
    shard: str
    span: Range
    elements: int
    read: int
    nan: int = 0
    inf: int = 0
    first_bad: int | None = None
    all_zero: bool = False
    max_abs: float | None = None
    rms: float | None = None
    digest: int = 0
    odd_bytes: int = 0

    @property
    def name(self) -> str:
        """The tensor's name; not safe to print."""
        return self.tensor.name

    @property
    def whole(self) -> bool:
        """Whether every element could be read."""
        return self.read == self.elements

    @property
    def inputs(self) -> int:
        """The product of all dimensions but the first: the inputs of a lora_A."""
        return prod(self.tensor.shape[1:])


@dataclass(frozen=True, slots=True)
class ContentFacts:
    """What one shard's data say; `zero_runs` are ranges of the file, exact to the byte.

    Every run of 4,096 zero bytes or more is listed, up to a limit; `runs_left_out` counts the rest.
    `edge_runs` are shorter ones with which the data begins or ends.
    `damage` names what could not be read.
    """

    tensors: tuple[TensorFacts, ...]
    zero_runs: tuple[Range, ...] = ()
    runs_left_out: int = 0
    edge_runs: tuple[Range, ...] = ()
    unreadable: tuple[Range, ...] = ()
    damage: tuple[Damage, ...] = ()


@dataclass(frozen=True, slots=True)
class Claims:
    """What is said about the training; None where nothing is said.

    `step` counts optimizer steps, `learning_rate` is the largest of the schedule, `init` is PEFT's
    `init_lora_weights`, `optimizer` a name such as `adamw`.
    """

    step: int | None = None
    learning_rate: float | None = None
    init: str | bool | None = None
    optimizer: str | None = None


@dataclass(frozen=True, slots=True)
class Judgement:
    """What follows from the facts; `evidence` is fit for JSON."""

    damage: tuple[Damage, ...] = ()
    cautions: tuple[Caution, ...] = ()
    evidence: Mapping[str, object] = field(default_factory=dict[str, object])
