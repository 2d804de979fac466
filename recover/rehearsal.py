"""What a rehearsal needs: an adapter of real size, its base and recipe, and a server."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from .formats.safetensors import write_header

_LAYERS, _HIDDEN, _KEY_VALUE, _INTERMEDIATE, _RANK = 36, 4096, 1024, 12288, 32
_WRITTEN_AT_ONCE = 4 << 20

# (module, input features, output features) of a Qwen3-8B decoder layer: its config.json
_MODULES = (
    ("self_attn.q_proj", _HIDDEN, 4096),
    ("self_attn.k_proj", _HIDDEN, _KEY_VALUE),
    ("self_attn.v_proj", _HIDDEN, _KEY_VALUE),
    ("self_attn.o_proj", 4096, _HIDDEN),
    ("mlp.gate_proj", _HIDDEN, _INTERMEDIATE),
    ("mlp.up_proj", _HIDDEN, _INTERMEDIATE),
    ("mlp.down_proj", _INTERMEDIATE, _HIDDEN),
)

# What Qwen3-8B's config.json says of its shapes.
_CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "attention_bias": False,
    "head_dim": 128,
    "hidden_size": _HIDDEN,
    "intermediate_size": _INTERMEDIATE,
    "model_type": "qwen3",
    "num_attention_heads": 32,
    "num_hidden_layers": _LAYERS,
    "num_key_value_heads": 8,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 151936,
}

# The keys of a Reef serve.yaml, version 2, that concern an adapter.
_RECIPE = f"""schema-version: 2
inference:
  model-path: Qwen/Qwen3-8B
training:
  backend: slime
  options:
    hf-checkpoint: "${{inference.model-path}}"
    megatron-lora-rank: "{_RANK}"
    megatron-lora-alpha: "{_RANK}"
    megatron-lora-dropout: "0"
    megatron-lora-target-modules: [linear_qkv, linear_proj, linear_fc1, linear_fc2]
"""

# Python's own mmap would keep a descriptor, which the loaders of servers do not.
_MAPPING_SERVER = """
import ctypes, mmap, os, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
fd = os.open(sys.argv[1], os.O_RDONLY)
size = os.fstat(fd).st_size
address = libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE, fd, 0)
assert address != 2**64 - 1, os.strerror(ctypes.get_errno())
os.close(fd)
print("ready", flush=True)
time.sleep(600)
"""
_TORCH_SERVER = """
import sys, time
from safetensors.torch import load_file
tensors = load_file(sys.argv[1])
print("ready", flush=True)
time.sleep(600)
"""


def adapter_tensors() -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Give name, dtype and shape of each of the 504 tensors of a rank-32 Qwen3-8B LoRA."""
    for layer in range(_LAYERS):
        for module, inputs, outputs in _MODULES:
            prefix = f"base_model.model.model.layers.{layer}.{module}"
            yield f"{prefix}.lora_A.weight", "BF16", (_RANK, inputs)
            yield f"{prefix}.lora_B.weight", "BF16", (outputs, _RANK)


def write_adapter(path: Path) -> str:
    """Write a 174,656,040-byte adapter of random BF16 values; give its sha256."""
    import numpy as np

    random = np.random.default_rng()
    digest = hashlib.sha256()
    tensors = list(adapter_tensors())
    left = sum(shape[0] * shape[1] for _, _, shape in tensors)
    with path.open("wb") as file:
        header = write_header(tensors, {"format": "pt"})
        digest.update(header)
        file.write(header)
        while left:
            bits = random.integers(0, 1 << 16, min(left, _WRITTEN_AT_ONCE), np.uint16)
            # Keep sign, three exponent bits and the mantissa: magnitudes of 2**-15 to 2**-8.
            block = ((bits & 0x83FF) | 0x3800).astype("<u2").data
            digest.update(block)
            file.write(block)
            left -= len(bits)
        os.fsync(file.fileno())
    return digest.hexdigest()


def write_base_and_recipe(folder: Path) -> tuple[Path, Path]:
    """Write what a person still has of the run: the base's config.json, and the serve.yaml."""
    base, recipe = folder / "config.json", folder / "serve.yaml"
    base.write_text(json.dumps(_CONFIG, indent=2) + "\n", "utf-8")
    recipe.write_text(_RECIPE, "utf-8")
    return base, recipe


def has_torch() -> bool:
    """Tell whether a real `safetensors.torch.load_file` can hold the adapter."""
    return find_spec("torch") is not None and find_spec("safetensors") is not None


def start_server(path: Path) -> subprocess.Popen[str]:
    """Start a process that holds the adapter as an inference server does, and wait for it.

    That is one private mapping of the whole file and no descriptor: safetensors' own loader
    where torch is installed, the same system calls where it is not.
    """
    server = subprocess.Popen(
        [sys.executable, "-c", _TORCH_SERVER if has_torch() else _MAPPING_SERVER, str(path)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    server.stdout.readline()
    return server
