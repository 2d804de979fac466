"""How long it takes to learn what a base model consists of, from the headers of its files.

The files are holes behind real headers: only headers are read. Each side is a program of its own,
because the libraries keep what they parse; its memory is the peak of the whole process.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from _harness import Broken, Floor, Place, Side, Table, alternate, machine, options, place

from reefkit.recover.formats.safetensors import parse_header, write_header

OPEN = """
import json, resource, sys, time
began = time.perf_counter()
from reefkit.recover.base.open import open_base
imported = time.perf_counter()
base = open_base(sys.argv[1], offline=True)
ended = time.perf_counter()
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
print(json.dumps([len(base.tensors), len(base.modules), ended - imported, peak, base.notes]))
"""
LIBRARY = """
import glob, json, sys
from safetensors import safe_open
found = {}
for path in glob.glob(sys.argv[1] + "/*.safetensors"):
    with safe_open(path, "np") as file:
        for name in file.keys():
            piece = file.get_slice(name)
            found[name] = (piece.get_dtype(), piece.get_shape())
print(json.dumps([len(found)]))
"""
QWEN3_8B = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "num_hidden_layers": 36,
    "vocab_size": 151936,
    "tie_word_embeddings": False,
}
DEEPSEEK_V3 = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "num_hidden_layers": 61,
    "num_nextn_predict_layers": 1,
    "first_k_dense_replace": 3,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 129280,
    "tie_word_embeddings": False,
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}
Entry = tuple[str, str, tuple[int, ...]]
SECONDS, MEBIBYTES = 2.2, 250
LIBRARY_IS = "safe_open, dtype and shape of each"


def main() -> int:
    """Measure, print, judge."""
    asked = options(__doc__, size=163, size_is="shards of the largest base", repeat=5)
    table = Table("base", asked)
    with place(asked) as here:
        cases = (
            ("Qwen3-8B", QWEN3_8B, list(qwen3()), 5, None),
            ("DeepSeek-V3", DEEPSEEK_V3, list(deepseek_v3()), asked.size, SECONDS),
        )
        for name, config, tensors, shards, most in cases:
            folder = here.root / name
            write(folder, config, tensors, shards)
            measure(table, here, name, folder, len(tensors), asked.repeat, most)
        table.note("Each side is a process of its own, start and imports counted.")
        table.note(machine(here.root))
    return table.end()


def measure(
    table: Table, here: Place, name: str, folder: Path, count: int, rounds: int, most: float | None
) -> None:
    """Add the rows of one base."""
    inside: list[float] = []
    peaks: list[int] = []

    def ours() -> None:
        tensors, modules, seconds, peak, notes = json.loads(
            here.run([sys.executable, "-c", OPEN, str(folder)])
        )
        if tensors != count or not modules or notes:
            raise Broken(f"{tensors} tensors, {modules} modules, {notes}")
        inside.append(seconds)
        peaks.append(peak)

    def library() -> None:
        (tensors,) = json.loads(here.run([sys.executable, "-c", LIBRARY, str(folder)]))
        if tensors != count:
            raise Broken(f"The library finds {tensors} tensors.")

    times = alternate({"ours": Side(ours), "library": Side(library)}, rounds)
    what = f"{name}: {count:,} tensors"
    table.ratio(what, times["ours"], times["library"], LIBRARY_IS, Floor(4))
    best = min(inside)
    table.amount(
        f"{what}, without start and imports",
        f"{best * 1000:.0f} ms",
        f"≤ {most} s" if most else "-",
        best <= most if most else None,
    )
    table.amount(
        f"{what}, peak memory", f"{max(peaks)} MiB", f"≤ {MEBIBYTES} MiB", max(peaks) <= MEBIBYTES
    )


def write(folder: Path, config: Mapping[str, object], tensors: list[Entry], shards: int) -> None:
    """Write headers with holes behind them, an index, and the config.json."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    weight_map: dict[str, str] = {}
    for number in range(shards):
        part = tensors[number * len(tensors) // shards : (number + 1) * len(tensors) // shards]
        name = f"model-{number + 1:05}-of-{shards:06}.safetensors"
        header = write_header(part, {"format": "pt"})
        with (folder / name).open("wb") as file:
            file.write(header)
            file.truncate(parse_header(header).file_size)
        weight_map |= dict.fromkeys((entry[0] for entry in part), name)
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def qwen3() -> Iterator[Entry]:
    """Give the tensors of Qwen3-8B."""
    yield "model.embed_tokens.weight", "BF16", (151936, 4096)
    for layer in range(36):
        at = f"model.layers.{layer}"
        for name, rows, columns in (
            ("self_attn.q_proj", 4096, 4096),
            ("self_attn.k_proj", 1024, 4096),
            ("self_attn.v_proj", 1024, 4096),
            ("self_attn.o_proj", 4096, 4096),
            ("mlp.gate_proj", 12288, 4096),
            ("mlp.up_proj", 12288, 4096),
            ("mlp.down_proj", 4096, 12288),
        ):
            yield f"{at}.{name}.weight", "BF16", (rows, columns)
        for name, size in (
            ("self_attn.q_norm", 128),
            ("self_attn.k_norm", 128),
            ("input_layernorm", 4096),
            ("post_attention_layernorm", 4096),
        ):
            yield f"{at}.{name}.weight", "BF16", (size,)
    yield "model.norm.weight", "BF16", (4096,)
    yield "lm_head.weight", "BF16", (151936, 4096)


def deepseek_v3() -> Iterator[Entry]:
    """Give the tensors of DeepSeek-V3 with its scales and its prediction layer."""
    hidden, vocabulary = 7168, 129280
    yield "model.embed_tokens.weight", "BF16", (vocabulary, hidden)
    for layer in range(62):
        at = f"model.layers.{layer}"
        yield f"{at}.input_layernorm.weight", "BF16", (hidden,)
        yield f"{at}.post_attention_layernorm.weight", "BF16", (hidden,)
        yield f"{at}.self_attn.q_a_layernorm.weight", "BF16", (1536,)
        yield f"{at}.self_attn.kv_a_layernorm.weight", "BF16", (512,)
        yield from scaled(f"{at}.self_attn.q_a_proj", 1536, hidden)
        yield from scaled(f"{at}.self_attn.q_b_proj", 128 * 192, 1536)
        yield from scaled(f"{at}.self_attn.kv_a_proj_with_mqa", 576, hidden)
        yield from scaled(f"{at}.self_attn.kv_b_proj", 128 * 256, 512)
        yield from scaled(f"{at}.self_attn.o_proj", hidden, 128 * 128)
        if layer < 3:
            yield from mlp(f"{at}.mlp", hidden, 18432)
            continue
        yield f"{at}.mlp.gate.weight", "BF16", (256, hidden)
        yield f"{at}.mlp.gate.e_score_correction_bias", "F32", (256,)
        yield from mlp(f"{at}.mlp.shared_experts", hidden, 2048)
        for expert in range(256):
            yield from mlp(f"{at}.mlp.experts.{expert}", hidden, 2048)
    yield "model.layers.61.embed_tokens.weight", "BF16", (vocabulary, hidden)
    yield "model.layers.61.eh_proj.weight", "BF16", (hidden, 2 * hidden)
    for name in ("enorm", "hnorm", "shared_head.norm"):
        yield f"model.layers.61.{name}.weight", "BF16", (hidden,)
    yield "model.layers.61.shared_head.head.weight", "BF16", (vocabulary, hidden)
    yield "model.norm.weight", "BF16", (hidden,)
    yield "lm_head.weight", "BF16", (vocabulary, hidden)


def mlp(at: str, hidden: int, inner: int) -> Iterator[Entry]:
    """Give the three projections of a block."""
    yield from scaled(f"{at}.gate_proj", inner, hidden)
    yield from scaled(f"{at}.up_proj", inner, hidden)
    yield from scaled(f"{at}.down_proj", hidden, inner)


def scaled(name: str, rows: int, columns: int) -> Iterator[Entry]:
    """Give a weight of 8 bits and the scales of its blocks."""
    yield f"{name}.weight", "F8_E4M3", (rows, columns)
    yield f"{name}.weight_scale_inv", "F32", (-(-rows // 128), -(-columns // 128))


if __name__ == "__main__":
    sys.exit(main())
