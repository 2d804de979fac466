"""Small adapters of a LLaMA-like base, whole and broken, and copies that need no file."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from reefkit.recover.base.from_config import base_from_config
from reefkit.recover.base.model import Base
from reefkit.recover.formats.safetensors import Header, parse_header, write_header
from reefkit.recover.ranges import Range
from reefkit.recover.repair.composed import Composed
from reefkit.recover.repair.copies import Copy, copy_of
from reefkit.recover.repair.stage import Plan

LLAMA: dict[str, object] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 256,
    "intermediate_size": 640,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1024,
    "tie_word_embeddings": False,
}
QWEN3_8B: dict[str, object] = {
    "model_type": "qwen3",
    "architectures": ["Qwen3ForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "tie_word_embeddings": False,
}
LINEAR = {
    "self_attn.q_proj": (256, 256),
    "self_attn.k_proj": (256, 128),
    "self_attn.v_proj": (256, 128),
    "self_attn.o_proj": (256, 256),
    "mlp.gate_proj": (256, 640),
    "mlp.up_proj": (256, 640),
    "mlp.down_proj": (640, 256),
}
Entries = list[tuple[str, str, tuple[int, ...]]]


def llama() -> Base:
    """Give the base that the adapters here belong to."""
    return base_from_config(LLAMA, label="config.json")


def lora(
    rank: int = 16, dtype: str = "BF16", layers: int = 3, modules: Sequence[str] = tuple(LINEAR)
) -> Entries:
    """List the tensors of an adapter in the order of its modules."""
    entries: Entries = []
    for layer in range(layers):
        for module in modules:
            inputs, outputs = LINEAR[module]
            name = f"base_model.model.model.layers.{layer}.{module}.lora_"
            entries.append((f"{name}A.weight", dtype, (rank, inputs)))
            entries.append((f"{name}B.weight", dtype, (outputs, rank)))
    return entries


def adapter(entries: Entries | None = None, seed: int = 0) -> bytes:
    """Give a file of small finite BF16 values without long runs of zeros."""
    raw = write_header(lora() if entries is None else entries, {"format": "pt"})
    count = parse_header(raw).file_size - len(raw)
    data = bytearray(random.Random(seed).randbytes(count))
    data[1::2] = bytes(0x3C | byte & 0x81 for byte in data[1::2])  # exponents that are finite
    return raw + bytes(data)


def header_of(file: bytes) -> Header:
    """Parse the header of a file."""
    return parse_header(file)


def zeroed(file: bytes, *ranges: tuple[int, int]) -> bytes:
    """Write zeros over ranges."""
    broken = bytearray(file)
    for start, stop in ranges:
        broken[start:stop] = bytes(stop - start)
    return bytes(broken)


def span(file: bytes, tensor: str) -> Range:
    """Give the bytes of a tensor, named by a part of its name that only it has."""
    header = parse_header(file)
    (found,) = [each for each in header.tensors if tensor in each.name]
    return header.span(found)


@dataclass(frozen=True)
class Bytes:
    """A file in memory."""

    data: bytes
    label: str = "copy"
    doubt: str | None = None

    @property
    def size(self) -> int:
        return len(self.data)

    def read(self, offset: int, length: int) -> bytes:
        return self.data[offset : offset + length]


def copy(data: bytes, label: str = "copy", stated: Sequence[Range] = ()) -> Copy:
    """Make a copy of bytes."""
    return copy_of(Bytes(data, label), None, stated)


def outcome(plan: Plan) -> bytes:
    """Give the bytes that a plan would write."""
    composed = plan.composed
    assert isinstance(composed, Composed)
    return composed.read(0, composed.size)


def write(folder: Path, name: str, data: bytes) -> Path:
    """Write a file."""
    path = folder / name
    path.write_bytes(data)
    return path


def write_config(folder: Path, config: dict[str, object] | None = None) -> Path:
    """Write the base's config.json."""
    return write(folder, "config.json", json.dumps(config or LLAMA).encode())
