"""Tensors as numpy arrays of floats. Imports numpy: import it where it is used."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ....errors import DoesNotHold
from ....records.names import printable
from ...checkpoint import Checkpoint, Shard
from ...formats.safetensors import Tensor
from ...readable import read_exactly

Floats: TypeAlias = "npt.NDArray[np.float64]"

# Stored bits of the significand, and the smallest normal number.
_MANTISSA = {"F64": 52, "F32": 23, "F16": 10, "BF16": 7}
_SMALLEST = {"F64": 2.0**-1022, "F32": 2.0**-126, "F16": 2.0**-14, "BF16": 2.0**-126}


class Store:
    """The tensors of a checkpoint by name, read when they are asked for."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        """Index the tensors of every shard that has a header."""
        self.label = checkpoint.label
        self.tensors: dict[str, tuple[Shard, Tensor]] = {}
        for shard in checkpoint.shards:
            for tensor in shard.header.tensors if shard.header else ():
                self.tensors[tensor.name] = (shard, tensor)

    def dtype(self, name: str) -> str:
        """Give the safetensors name of a tensor's dtype."""
        return self.tensors[name][1].dtype

    def raw(self, name: str, start: int = 0, stop: int | None = None) -> bytes:
        """Read the bytes of a tensor, from one offset in it to another."""
        shard, tensor = self.tensors[name]
        assert shard.header is not None
        span = shard.header.span(tensor)
        end = span.stop if stop is None else min(span.start + stop, span.stop)
        return read_exactly(shard.readable, span.start + start, end - span.start - start)

    def floats(self, name: str, first: int = 0, rows: int | None = None) -> Floats:
        """Read a tensor, or some of its rows. Raises DoesNotHold for other dtypes."""
        tensor = self.tensors[name][1]
        width = tensor.nbytes // tensor.shape[0] if tensor.shape and tensor.shape[0] else 0
        stop = None if rows is None else (first + rows) * width
        data = decode(self.raw(name, first * width, stop), tensor.dtype, name)
        return data.reshape(-1, *tensor.shape[1:]) if tensor.shape else data


def decode(data: bytes, dtype: str, name: str) -> Floats:
    """Turn bytes into floats of 64 bits, which hold every value of the dtypes exactly."""
    if dtype == "BF16":
        bits = np.frombuffer(data, "<u2").astype(np.uint32) << 16
        return bits.view(np.float32).astype(np.float64)
    if dtype in ("F16", "F32", "F64"):
        return np.frombuffer(data, {"F16": "<f2", "F32": "<f4", "F64": "<f8"}[dtype]).astype(
            np.float64
        )
    raise DoesNotHold(
        f"{printable(name)} is {dtype}, which no scale can be measured in.",
        remedy="State alpha with --set lora_alpha=NUMBER.",
    )


def rounded(values: Floats, dtype: str) -> Floats:
    """Round to nearest even as a cast to the dtype does; without its overflow."""
    if dtype == "F64":
        return values
    step = spacing(values, dtype)
    return np.round(values / step) * step


def spacing(values: Floats, dtype: str) -> Floats:
    """Give the distance between neighbours of the dtype at each value."""
    size = np.maximum(np.abs(values), _SMALLEST[dtype])
    exponent = np.floor(np.log2(size))
    step: Floats = np.exp2(exponent - _MANTISSA[dtype])
    return step
