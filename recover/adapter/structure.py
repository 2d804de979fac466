"""What an adapter's tensors prove: its modules, their ranks, and what is saved beside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from ..formats.safetensors import Tensor
from .keys import Key, Part, parse_key


class LoraModule(NamedTuple):
    """The low-rank update of one module, as its tensors show it; None where one is not there.

    `first` is dimension 0 of A: the rank, or for expert parameters the rank times the number of
    experts. `depth` is 1 for the inner of two nested wrappers (see keys.Key).
    """

    name: str
    depth: int
    first: int | None
    inputs: int | None
    outputs: int | None
    embedding: bool
    parts: frozenset[Part]

    @property
    def whole(self) -> bool:
        """Tell whether both matrices are there."""
        pair = {Part.EMBEDDING_A, Part.EMBEDDING_B} if self.embedding else {Part.A, Part.B}
        return pair <= self.parts


@dataclass(frozen=True)
class Adapter:
    """A PEFT LoRA adapter by its names; those must already be free of prefix faults.

    `modules` are keyed by (module, depth). `whole` holds the parameters saved whole by module:
    leaf and shape. `strange` are tensors whose names are no PEFT name.
    """

    keys: Mapping[str, Key] = field(repr=False)
    tensors: Mapping[str, Tensor] = field(repr=False)
    modules: Mapping[tuple[str, int], LoraModule] = field(repr=False)
    whole: Mapping[str, Mapping[str, tuple[int, ...]]]
    strange: tuple[str, ...] = ()

    @cached_property
    def ranks(self) -> Mapping[int, int]:
        """Count how often each first dimension of A occurs, expert wrappers included."""
        return Counter(m.first for m in self.modules.values() if m.first is not None)

    @cached_property
    def parts(self) -> frozenset[Part]:
        """Name every part that occurs."""
        return frozenset(key.part for key in self.keys.values())

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Name the dtypes that occur."""
        return tuple(sorted({tensor.dtype for tensor in self.tensors.values()}))

    @cached_property
    def token_deltas(self) -> Mapping[str, tuple[int, ...]]:
        """Give the shape (tokens, dimension) of the trainable tokens of each embedding."""
        return {
            key.module: self.tensors[name].shape
            for name, key in self.keys.items()
            if key.part is Part.TOKEN_DELTA
        }


def read_adapter(tensors: Iterable[Tensor]) -> Adapter:
    """Read the structure off names and shapes; never fails, `strange` takes what fits nothing."""
    by_name = {tensor.name: tensor for tensor in tensors}
    keys: dict[str, Key] = {}
    strange: list[str] = []
    grouped: dict[tuple[str, int], dict[Part, tuple[int, ...]]] = {}
    whole: dict[str, dict[str, tuple[int, ...]]] = {}
    for name, tensor in by_name.items():
        key = parse_key(name)
        if key is None:
            strange.append(name)
            continue
        keys[name] = key
        if key.part.is_lora:
            grouped.setdefault((key.module, key.depth), {})[key.part] = tensor.shape
        elif key.part is Part.WHOLE:
            whole.setdefault(key.module, {})[key.leaf] = tensor.shape
    modules = {place: _module(place, shapes) for place, shapes in grouped.items()}
    return Adapter(keys, by_name, modules, whole, tuple(strange))


def _module(place: tuple[str, int], shapes: Mapping[Part, tuple[int, ...]]) -> LoraModule:
    embedding = Part.EMBEDDING_A in shapes or Part.EMBEDDING_B in shapes
    a = shapes.get(Part.EMBEDDING_A if embedding else Part.A, ())
    b = shapes.get(Part.EMBEDDING_B if embedding else Part.B, ())
    return LoraModule(
        name=place[0],
        depth=place[1],
        first=a[0] if a else (b[1] if len(b) > 1 else None),
        inputs=a[1] if len(a) > 1 else None,
        outputs=b[0] if b else None,
        embedding=embedding,
        parts=frozenset(shapes),
    )
