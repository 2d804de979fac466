"""Checkpoints with values as training gives them, and what the content checks say of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from math import prod, sqrt
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from reefkit.errors import HeaderError, Unusable
from reefkit.recover.checkpoint import Checkpoint, Shard
from reefkit.recover.formats.safetensors import (
    DTYPE_BITS,
    Header,
    parse_header,
    read_header,
    write_header,
)
from reefkit.recover.ranges import Range
from reefkit.recover.readable import FileReadable, Readable
from reefkit.recover.validation.content.facts import Claims, ContentFacts, Judgement
from reefkit.recover.validation.content.judge import judge
from reefkit.recover.validation.content.roles import roles
from reefkit.recover.validation.content.scan import scan_content
from reefkit.recover.validation.damage import file_damage
from reefkit.recover.validation.result import Damage

Tensors: TypeAlias = dict[str, tuple[str, tuple[int, ...], bytes]]
Floats: TypeAlias = npt.NDArray[np.floating[Any]]
PREFIX = "base_model.model.model.layers"
RANK, HIDDEN = 8, 512
MODULES = ("self_attn.q_proj", "self_attn.v_proj", "mlp.down_proj")
NO_CLAIMS = Claims()


def encode(values: Floats, dtype: str) -> bytes:
    """Give the bytes of floats in one of the wide dtypes."""
    data: npt.NDArray[Any]
    if dtype == "BF16":
        bits = np.ascontiguousarray(values, "<f4").view("<u4")
        data = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")
    else:
        data = values.astype({"F64": "<f8", "F32": "<f4", "F16": "<f2"}[dtype])
    return data.tobytes()


def tensor(
    random: np.random.Generator, shape: Sequence[int], scale: float, dtype: str = "BF16"
) -> tuple[str, tuple[int, ...], bytes]:
    """Make a tensor of normally distributed values."""
    return dtype, tuple(shape), encode(random.standard_normal(tuple(shape)) * scale, dtype)


def zeros(shape: Sequence[int], dtype: str = "BF16") -> tuple[str, tuple[int, ...], bytes]:
    """Make a tensor of zeros."""
    return dtype, tuple(shape), bytes(prod(shape) * DTYPE_BITS[dtype] // 8)


def adapter(
    layers: int = 6,
    dtype: str = "BF16",
    *,
    modules: Sequence[str] = MODULES,
    trained: bool = True,
    seed: int = 0,
    prefix: str = PREFIX,
) -> Tensors:
    """Make an adapter: A as kaiming starts it, B small, or zero where it is not trained."""
    random = np.random.default_rng(seed)
    made: Tensors = {}
    for layer in range(layers):
        for module in modules:
            name = f"{prefix}.{layer}.{module}"
            reach = 1 / sqrt(HIDDEN)
            a = encode(random.uniform(-reach, reach, (RANK, HIDDEN)), dtype)
            made[f"{name}.lora_A.weight"] = dtype, (RANK, HIDDEN), a
            b = (HIDDEN, RANK)
            made[f"{name}.lora_B.weight"] = (
                tensor(random, b, 1e-3, dtype) if trained else zeros(b, dtype)
            )
    return made


def serialise(tensors: Mapping[str, tuple[str, tuple[int, ...], bytes]]) -> bytes:
    """Give the bytes of the file, data in the header's order."""
    raw = write_header([(n, d, s) for n, (d, s, _) in tensors.items()], {"format": "pt"})
    return raw + b"".join(tensors[t.name][2] for t in parse_header(raw).tensors)


def shard_of(readable: Readable, name: str, holes: Sequence[Range] = ()) -> Shard:
    """Make a shard, with its header or its fault."""
    try:
        header: Header | None = read_header(readable.read, readable.size)
    except HeaderError as error:
        return Shard(name, readable, None, error)
    return Shard(name, readable, header, None, tuple(holes))


def judged(
    *paths: Path,
    claims: Claims = NO_CLAIMS,
    holes: Mapping[Path, Sequence[Range]] | None = None,
    offset_norms: bool | None = None,
) -> Judgement:
    """Scan and judge files as one checkpoint."""
    with ExitStack() as stack:
        shards = [
            shard_of(stack.enter_context(FileReadable(p)), p.name, (holes or {}).get(p, ()))
            for p in paths
        ]
        facts = {shard.name: scan_content(shard) for shard in shards}
        names = [one.name for shard in shards for one in facts[shard.name].tensors]
        checkpoint = Checkpoint("test", tuple(shards))
        return judge(checkpoint, facts, roles(names), claims, offset_norms)


def judged_bytes(
    folder: Path, data: bytes, claims: Claims = NO_CLAIMS, offset_norms: bool | None = None
) -> Judgement:
    """Judge one file of these bytes."""
    path = folder / "adapter_model.safetensors"
    path.write_bytes(data)
    return judged(path, claims=claims, offset_norms=offset_norms)


def damage_of(folder: Path, data: bytes, name: str = "adapter_model.safetensors") -> list[Damage]:
    """Give the file-level damage of a file of these bytes."""
    path = folder / name
    path.write_bytes(data)
    with FileReadable(path) as readable:
        return list(file_damage(shard_of(readable, name)))


class Bytes:
    """Bytes in memory, of which some ranges cannot be read."""

    label = "memory"
    doubt = None

    def __init__(self, data: bytes, bad: Sequence[Range] = ()) -> None:
        self.data = data
        self.size = len(data)
        self.bad = bad

    def read(self, offset: int, length: int) -> bytes:
        """Read, or fail as a broken disk does."""
        if any(r.start < offset + length and offset < r.stop for r in self.bad):
            raise Unusable(f"{self.label} cannot be read: {os.strerror(5)}.")
        return self.data[offset : offset + length]


def scanned(data: bytes, bad: Sequence[Range] = (), jobs: int = 2) -> ContentFacts:
    """Scan bytes in memory."""
    return scan_content(shard_of(Bytes(data, bad), "shard"), jobs=jobs)
