"""Hold the tensors that are there against those that must and those that may be, both ways."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..adapter.kinds import in_order
from ..formats.safetensors import Tensor
from .result import Mismatch

FLOATS = ("F64", "F32", "F16", "BF16", "F8_E5M2", "F8_E4M3", "F8_E5M2FNUZ", "F8_E4M3FNUZ")


@dataclass(frozen=True)
class Differences:
    """What is lacking, what nobody expects, and what has another shape or dtype."""

    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    mismatched: tuple[Mismatch, ...] = ()

    @property
    def misshapen(self) -> frozenset[str]:
        """Name the tensors that cannot be loaded where they belong."""
        return frozenset(mismatch.tensor for mismatch in self.mismatched)


def differences(
    found: Mapping[str, Tensor],
    required: Mapping[str, tuple[int, ...]],
    optional: Mapping[str, tuple[int, ...] | None],
    *,
    unsized: frozenset[str] = frozenset(),
    only_floats: bool = False,
) -> Differences:
    """Compare names and shapes; `unsized` are names whose shape is not known."""
    missing = [name for name in required if name not in found]
    unexpected: list[str] = []
    mismatched: list[Mismatch] = []
    for name, tensor in found.items():
        shape = required[name] if name in required else optional.get(name)
        if shape is None and name not in optional:
            unexpected.append(name)
            continue
        if shape is not None and name not in unsized and tensor.shape != shape:
            mismatched.append(Mismatch(name, "shape", _shape(shape), _shape(tensor.shape)))
        if only_floats and tensor.dtype not in FLOATS:
            mismatched.append(Mismatch(name, "dtype", "a float", tensor.dtype))
    return Differences(
        tuple(sorted(missing, key=in_order)),
        tuple(sorted(unexpected, key=in_order)),
        tuple(sorted(mismatched, key=lambda m: in_order(m.tensor))),
    )


def _shape(shape: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, shape))}]"
