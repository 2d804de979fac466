"""Time `validate`: 504 tensors with and without content, 50,000 tensors, a base of 163 shards.

Whole processes are timed, start-up included; floors are absolute, as the design states them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from _harness import (
    Place,
    Table,
    alternate,
    import_click,
    machine,
    options,
    place,
    reef_recover,
)

from reefkit.recover.base.from_config import base_from_config
from reefkit.recover.formats.safetensors import parse_header, write_header

QWEN: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": 151936,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "tie_word_embeddings": False,
    "dtype": "bfloat16",
}
MOE: dict[str, Any] = {
    **QWEN,
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "hidden_size": 64,
    "num_hidden_layers": 65,
    "moe_intermediate_size": 32,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}
DEEPSEEK: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "vocab_size": 129280,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "n_shared_experts": 1,
    "n_routed_experts": 256,
    "routed_scaling_factor": 2.5,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "n_group": 8,
    "topk_group": 4,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "num_nextn_predict_layers": 1,
    "tie_word_embeddings": False,
    "dtype": "bfloat16",
}
ALL = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
LATENT = ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj")
SHARDS = 163
Tensors = list[tuple[str, str, tuple[int, ...]]]


def main() -> int:
    """Measure, print, judge."""
    asked = options(__doc__, size=50_000, size_is="tensors of the largest adapter", repeat=5)
    table = Table("validate", asked)
    with place(asked) as here:
        qwen = adapter(here.root / "qwen", QWEN, 32, ALL, filled=True)
        time_it(table, here, asked.repeat, "504 tensors, headers only", qwen, 0.3, headers=True)
        megabytes = (qwen / "adapter_model.safetensors").stat().st_size / 1e6
        name = f"504 tensors, all content ({megabytes:.0f} MB)"
        time_it(table, here, asked.repeat, name, qwen, 0.3 + megabytes / 174)
        many = adapter(here.root / "moe", MOE, 2, ALL, most=asked.size)
        name = f"{asked.size:,} tensors, headers only"
        time_it(table, here, asked.repeat, name, many, 2, headers=True, accept=1)
        deep = adapter(here.root / "deepseek", DEEPSEEK, 16, LATENT)
        count = full(deep / "base")
        name = f"an adapter against a base of {SHARDS} shards, {count:,} tensors"
        time_it(table, here, asked.repeat, name, deep, 3, headers=True, memory=300)
        name = f"a full checkpoint of {SHARDS} shards, {count:,} tensors, against itself"
        time_it(table, here, asked.repeat, name, deep, 3, headers=True, memory=300, path="base")
        start = alternate({"click": here.side(*import_click())}, asked.repeat)["click"]
        table.amount("for comparison: `import click`", str(start), "-", holds=None)
        table.note("Whole processes, page cache warm.")
        table.note(machine(here.root))
    return table.end()


def time_it(
    table: Table,
    here: Place,
    repeat: int,
    what: str,
    folder: Path,
    seconds: float,
    *,
    headers: bool = False,
    memory: int | None = None,
    path: str = "",
    accept: int = 0,
) -> None:
    """Time one command against start-up alone, and measure its memory where that has a limit."""
    command = [
        *reef_recover(),
        "validate",
        str(folder / path) if path else str(folder / "adapter_model.safetensors"),
        "--base",
        str(folder / "base"),
        "--quiet",
        *(["--headers-only"] if headers else []),
    ]
    times = alternate({"ours": here.side(*command, accept=(accept,))}, repeat)["ours"]
    table.amount(what, str(times), f"≤ {seconds:.3g} s", holds=times.best <= seconds)
    if memory is not None:
        peak = peak_memory(command, here, accept)
        table.amount(
            f"  memory of {what}", f"{peak:.0f} MB", f"≤ {memory} MB", holds=peak <= memory
        )


PEAK = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[2:], stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(done.returncode != int(sys.argv[1]))
"""


def peak_memory(command: list[str], here: Place, accept: int) -> float:
    """Run once, from a process that is small itself, and give the largest resident set in MB."""
    return int(here.run([sys.executable, "-c", PEAK, str(accept), *command])) * 1024 / 1e6


def adapter(
    folder: Path,
    config: dict[str, Any],
    rank: int,
    targets: tuple[str, ...],
    *,
    filled: bool = False,
    most: int | None = None,
) -> Path:
    """Write an adapter on every targeted module of a base, and the base's config.json."""
    (folder / "base").mkdir(parents=True)
    (folder / "base" / "config.json").write_text(json.dumps(config))
    base = base_from_config(config, "base")
    tensors: Tensors = []
    for module in base.modules.values():
        if module.name.endswith(targets):
            name = f"base_model.model.{module.name}"
            tensors.append((f"{name}.lora_A.weight", "BF16", (rank, module.inputs)))
            tensors.append((f"{name}.lora_B.weight", "BF16", (module.outputs, rank)))
    write(folder / "adapter_model.safetensors", tensors[:most], filled=filled)
    return folder


def full(folder: Path) -> int:
    """Write the sparse shards of DeepSeek-V3 in eight bits, and give the number of tensors."""
    tensors: Tensors = []
    for tensor in base_from_config(DEEPSEEK, "base").tensors.values():
        shape = tensor.shape
        linear = len(shape) == 2 and "_proj" in tensor.name
        tensors.append((tensor.name, "F8_E4M3" if linear else "BF16", shape))
        if linear:
            scales = tuple(-(-size // 128) for size in shape)
            tensors.append((f"{tensor.name}_scale_inv", "F32", scales))
    weight_map: dict[str, str] = {}
    each = -(-len(tensors) // SHARDS)
    for number in range(SHARDS):
        part = tensors[number * each : (number + 1) * each]
        name = f"model-{number + 1:05d}-of-{SHARDS:05d}.safetensors"
        write(folder / name, part, filled=False)
        weight_map |= dict.fromkeys((tensor[0] for tensor in part), name)
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return len(tensors)


def write(path: Path, tensors: Tensors, *, filled: bool) -> None:
    """Write a file of noise, or one whose data is a hole."""
    raw = write_header(tensors, {"format": "pt"})
    size = parse_header(raw).file_size
    with path.open("wb") as file:
        file.write(raw)
        if filled:
            file.write(noise(size - len(raw)))
        file.truncate(size)


def noise(size: int) -> bytes:
    """Make BF16 values as an adapter has them."""
    import numpy as np

    values = np.random.default_rng(0).standard_normal(size // 2, np.float32) * np.float32(0.01)
    words = values.view(np.uint32) >> 16
    return bytes(words.astype("<u2").tobytes())


if __name__ == "__main__":
    sys.exit(main())
