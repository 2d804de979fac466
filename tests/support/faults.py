"""Ways in which adapters and full checkpoints are damaged or wrong, each with the verdict due.

Each function spoils a correct checkpoint and says what must be found. Most stand for failures that
were reported in public; the docstrings name them in words.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from synthetic import (
    CONFIG,
    MOE,
    PREFIX,
    Piece,
    Work,
    experts,
    lora,
    model,
    modules,
    noise,
    split,
    write,
    write_sharded,
)

from reefkit.recover.formats.safetensors import parse_header, write_header

Q0 = f"{PREFIX}model.layers.0.self_attn.q_proj"
DOWN1 = f"{PREFIX}model.layers.1.mlp.down_proj"
UP2 = f"{PREFIX}model.layers.2.mlp.up_proj"


@dataclass(frozen=True)
class Due:
    """What a verdict must say; None where it does not matter."""

    damage: str | None = None
    tensor: str | None = None
    offset: int | None = None
    nbytes: int | None = None
    missing: int | None = None
    unexpected: int | None = None
    mismatched: int | None = None
    field: str | None = None
    rename: str | None = None
    naming: str | None = None
    method: str | None = None
    effective: int | None = None
    experts: tuple[int, ...] | None = None


ADAPTER_FAULTS: dict[str, Callable[[Work], Due]] = {}
MOE_FAULTS: dict[str, Callable[[Work], Due]] = {}
FULL_FAULTS: dict[str, Callable[[Work], Due]] = {}


def _into(table: dict[str, Callable[[Work], Due]]) -> Callable[[Any], Any]:
    def register(function: Callable[[Work], Due]) -> Callable[[Work], Due]:
        table[function.__name__] = function
        return function

    return register


adapter, experts_of, full = map(_into, (ADAPTER_FAULTS, MOE_FAULTS, FULL_FAULTS))


def spoil(work: Work, kind: str, name: str) -> Due:
    """Make the correct checkpoint of a kind and spoil it."""
    if kind == "adapter":
        work.tensors = lora(modules(work.base))
        due = ADAPTER_FAULTS[name](work)
    elif kind == "moe":
        work.base = dict(MOE)
        work.tensors = lora({**modules(MOE), **experts(MOE)})
        due = MOE_FAULTS[name](work)
    else:
        work.config = None
        work.tensors = model(work.base)
        due = FULL_FAULTS[name](work)
        if not work.saved:
            write(work.folder / "model.safetensors", work.tensors)
            work.saved = True
    if not work.saved:
        work.save()
    return due


# --- the file as a file --------------------------------------------------------------------------


@adapter
def lfs_pointer(work: Work) -> Due:
    work.save()
    oid = "ab" * 32
    text = f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize 174656040\n"
    work.path.write_text(text)
    return Due("lfs-pointer", missing=56)


@adapter
def html_page(work: Work) -> Due:
    work.save()
    work.path.write_text("<!DOCTYPE html><html><body>404</body></html>")
    return Due("html-page")


@adapter
def empty_file(work: Work) -> Due:
    work.save()
    work.path.write_bytes(b"")
    return Due("empty-file")


@adapter
def a_pickle_under_that_name(work: Work) -> Due:
    work.save()
    work.path.write_bytes(b"\x80\x02}q\x00X\x05\x00\x00\x00helloq\x01K\x01s." * 40)
    return Due("foreign-file")


@adapter
def gguf_under_that_name(work: Work) -> Due:
    work.save()
    work.path.write_bytes(b"GGUF\x03\0\0\0" + b"\1" * 600)
    return Due("foreign-file")


@adapter
def truncated_in_the_data(work: Work) -> Due:
    data = work.save()
    work.path.write_bytes(data[:-1000])
    return Due("truncated")


@adapter
def truncated_in_the_header(work: Work) -> Due:
    data = work.save()
    work.path.write_bytes(data[:1000])
    return Due("truncated")


@adapter
def trailing_bytes(work: Work) -> Due:
    data = work.save()
    work.path.write_bytes(data + b"\1" * 17)
    return Due("trailing-bytes", offset=len(data), nbytes=17)


@adapter
def first_eight_bytes_zero(work: Work) -> Due:
    data = work.save()
    data[:8] = bytes(8)
    work.path.write_bytes(data)
    return Due("zero-header")


@adapter
def header_of_zeros(work: Work) -> Due:
    data = work.save()
    size = parse_header(bytes(data)).data_start
    data[:size] = bytes(size)
    work.path.write_bytes(data)
    return Due("zero-header")


@adapter
def nul_padded_header(work: Work) -> Due:
    data = work.save()
    size = parse_header(bytes(data)).data_start
    text = bytes(data[8:size]).rstrip()
    padded = text + bytes(-len(text) % 8 + 8)
    work.path.write_bytes(len(padded).to_bytes(8, "little") + padded + data[size:])
    return Due("nul-padded-header")


@adapter
def broken_header(work: Work) -> Due:
    data = work.save()
    data[40] = ord("}")
    work.path.write_bytes(data)
    return Due("broken-header")


@adapter
def a_name_twice_in_the_header(work: Work) -> Due:
    data = work.save()
    a, b = f'"{Q0}.lora_A.weight"'.encode(), f'"{Q0}.lora_B.weight"'.encode()
    work.path.write_bytes(data.replace(b, a))
    return Due("duplicate-name")


@adapter
def no_tensors(work: Work) -> Due:
    work.tensors = {}
    return Due("no-tensors", missing=56)


@adapter
def left_by_a_killed_writer(work: Work) -> Due:
    """The temporary file of safetensors 0.8: full size, valid header, zeros from the middle on."""
    data = work.save()
    work.path.unlink()
    temporary = work.folder / ".tmpAb3dEf"
    with temporary.open("wb") as file:
        file.write(data[: len(data) // 2])
        file.truncate(len(data))
    work.options["path"] = temporary
    return Due("temporary-file")


# --- content -------------------------------------------------------------------------------------


@adapter
def all_data_zero(work: Work) -> Due:
    """Saving over the file that the tensors were mapped from."""
    work.tensors = {
        name: piece._replace(data=bytes(len(piece.data))) for name, piece in work.tensors.items()
    }
    return Due("zero-file", effective=0)


@adapter
def zero_tail(work: Work) -> Due:
    data = work.save()
    start = len(data) * 3 // 4
    data[start:] = bytes(len(data) - start)
    work.path.write_bytes(data)
    return Due("zero-tail")


@adapter
def zero_hole_across_tensors(work: Work) -> Due:
    data = work.save()
    start = work.span(f"{DOWN1}.lora_A.weight")[0] + 4096
    data[start : start + 16384] = bytes(16384)
    work.path.write_bytes(data)
    return Due("zero-run", offset=start, nbytes=16384)


@adapter
def sparse_hole(work: Work) -> Due:
    data = work.save()
    start = len(data) // 2 // 4096 * 4096
    with work.path.open("wb") as file:
        file.write(data[:start])
        file.seek(start + 32768)
        file.write(data[start + 32768 :])
    return Due("sparse-extent")


@adapter
def one_nan(work: Work) -> Due:
    data = work.save()
    start = work.span(f"{UP2}.lora_B.weight")[0] + 2 * 77
    data[start : start + 2] = b"\xc0\x7f"
    work.path.write_bytes(data)
    return Due("not-finite", f"{UP2}.lora_B.weight", start, effective=27)


@adapter
def one_infinity(work: Work) -> Due:
    data = work.save()
    start = work.span(f"{Q0}.lora_A.weight")[0]
    data[start : start + 2] = b"\x80\xff"
    work.path.write_bytes(data)
    return Due("not-finite", f"{Q0}.lora_A.weight", start, 2)


@adapter
def every_value_nan(work: Work) -> Due:
    work.tensors = {
        name: piece._replace(data=b"\xc0\x7f" * (len(piece.data) // 2))
        for name, piece in work.tensors.items()
    }
    return Due("not-finite", effective=0)


@adapter
def flipped_exponent(work: Work) -> Due:
    data = work.save()
    start = work.span(f"{DOWN1}.lora_B.weight")[0] + 2 * 1234
    data[start : start + 2] = (0x7AFF).to_bytes(2, "little")
    work.path.write_bytes(data)
    return Due("outlier", f"{DOWN1}.lora_B.weight", start)


@adapter
def one_b_zero(work: Work) -> Due:
    name = f"{UP2}.lora_B.weight"
    work.tensors[name] = work.tensors[name]._replace(data=bytes(len(work.tensors[name].data)))
    return Due("zero-tensor", name, effective=27)


@adapter
def one_a_zero(work: Work) -> Due:
    name = f"{UP2}.lora_A.weight"
    work.tensors[name] = work.tensors[name]._replace(data=bytes(len(work.tensors[name].data)))
    return Due(tensor=name, effective=27)


@adapter
def untrained_although_steps_are_claimed(work: Work) -> Due:
    for name, piece in work.tensors.items():
        if "lora_B" in name:
            work.tensors[name] = piece._replace(data=bytes(len(piece.data)))
    work.options["step"] = 8
    return Due("untrained", effective=0)


@adapter
def values_beyond_the_claimed_schedule(work: Work) -> Due:
    work.options |= {"step": 8, "learning_rate": 1e-5}
    return Due(field="claims")


@adapter
def a_tensor_copied_over_another(work: Work) -> Due:
    source = f"{PREFIX}model.layers.1.mlp.up_proj.lora_B.weight"
    work.tensors[f"{UP2}.lora_B.weight"] = work.tensors[source]
    return Due("copied-tensor")


# --- what is there -------------------------------------------------------------------------------


@adapter
def layer_missing(work: Work) -> Due:
    work.tensors = {n: p for n, p in work.tensors.items() if ".layers.3." not in n}
    return Due(missing=14, effective=21)


@adapter
def layer_missing_and_no_config(work: Work) -> Due:
    work.config = None
    work.tensors = {n: p for n, p in work.tensors.items() if ".layers.3." not in n}
    return Due(missing=14, effective=21)


@adapter
def one_b_missing(work: Work) -> Due:
    del work.tensors[f"{DOWN1}.lora_B.weight"]
    return Due(missing=1, effective=27)


@adapter
def one_b_missing_and_no_config(work: Work) -> Due:
    work.config = None
    del work.tensors[f"{DOWN1}.lora_B.weight"]
    return Due(missing=1, effective=27)


@adapter
def one_a_missing(work: Work) -> Due:
    del work.tensors[f"{DOWN1}.lora_A.weight"]
    return Due(missing=1, effective=27)


@adapter
def module_missing_in_one_layer(work: Work) -> Due:
    work.config = None
    for part in "AB":
        del work.tensors[f"{UP2}.lora_{part}.weight"]
    return Due(missing=2, effective=27)


@adapter
def kind_missing(work: Work) -> Due:
    work.tensors = {n: p for n, p in work.tensors.items() if ".up_proj." not in n}
    return Due(missing=8)


@adapter
def transposed_a(work: Work) -> Due:
    name = f"{UP2}.lora_A.weight"
    piece = work.tensors[name]
    work.tensors[name] = piece._replace(shape=piece.shape[::-1])
    return Due(mismatched=1, effective=27)


@adapter
def ranks_of_a_and_b_differ(work: Work) -> Due:
    work.config = None
    name = f"{UP2}.lora_A.weight"
    work.tensors[name] = noise((4, 512), name)
    return Due(mismatched=1, effective=27)


@adapter
def eight_bit_integers(work: Work) -> Due:
    name = f"{UP2}.lora_A.weight"
    work.tensors[name] = noise(work.tensors[name].shape, name, "I8")
    return Due(mismatched=1)


@adapter
def gathered_on_no_rank(work: Work) -> Due:
    """DeepSpeed ZeRO-3 saves tensors of no elements when nobody gathers them."""
    work.tensors = {name: Piece("BF16", (0,), b"") for name in work.tensors}
    return Due("zero3-empty", effective=0)


@adapter
def other_key_value_heads(work: Work) -> Due:
    work.base["num_key_value_heads"] = 2
    return Due(mismatched=8)


@adapter
def base_with_fewer_layers(work: Work) -> Due:
    work.base["num_hidden_layers"] = 3
    return Due(unexpected=14)


@adapter
def base_with_more_layers(work: Work) -> Due:
    work.base["num_hidden_layers"] = 5
    return Due(missing=14)


@adapter
def another_width(work: Work) -> Due:
    work.base |= {"hidden_size": 256}
    return Due(effective=0)


@adapter
def overwrites_a_base_weight(work: Work) -> Due:
    work.tensors[f"{PREFIX}lm_head.weight"] = noise((512, 512), "head")
    return Due(unexpected=1)


@adapter
def stray_tensor(work: Work) -> Due:
    work.tensors[f"{PREFIX}model.layers.0.self_attn.rotary.lora_A.weight"] = noise((8, 512), 1)
    return Due(unexpected=1)


# --- names ---------------------------------------------------------------------------------------


@adapter
def doubled_prefix(work: Work) -> Due:
    work.rename(PREFIX, PREFIX * 2)
    return Due(rename="doubled-prefix", effective=28)


@adapter
def missing_prefix(work: Work) -> Due:
    work.rename(PREFIX, "")
    return Due(rename="missing-prefix")


@adapter
def compiled_module(work: Work) -> Due:
    work.rename(PREFIX, f"{PREFIX}_orig_mod.")
    return Due(rename="_orig_mod.")


@adapter
def fully_sharded_module(work: Work) -> Due:
    work.rename(".self_attn.", "._fsdp_wrapped_module.self_attn.")
    return Due(rename="_fsdp_wrapped_module.")


@adapter
def data_parallel_module(work: Work) -> Due:
    work.rename(PREFIX, f"module.{PREFIX}")
    return Due(rename="module.")


@adapter
def adapter_name_in_names(work: Work) -> Due:
    work.rename(".weight", ".default.weight")
    return Due(rename=".default.")


@adapter
def adapter_called_lora(work: Work) -> Due:
    """An adapter called "lora" collided with the prefix of LoRA's own words."""
    work.rename(".lora_A.", "_A.")
    work.rename(".lora_B.", "_B.")
    return Due(rename="adapter named lora")


@adapter
def prefix_in_the_wrong_place(work: Work) -> Due:
    work.rename(PREFIX, f"thinker.{PREFIX}")
    return Due(rename="misplaced-prefix")


@adapter
def path_of_a_multimodal_model(work: Work) -> Due:
    work.rename(f"{PREFIX}model.", f"{PREFIX}model.language_model.")
    return Due(rename="wrong-path")


@adapter
def adapter_name_in_saved_module(work: Work) -> Due:
    assert work.config is not None
    work.config["modules_to_save"] = ["lm_head"]
    name = f"{PREFIX}lm_head.modules_to_save.default.weight"
    work.tensors[name] = noise((512, 512), "head")
    return Due(rename="modules_to_save.default.")


def _named(work: Work, names: dict[str, Piece]) -> None:
    work.config = None
    work.tensors = names


@adapter
def names_of_megatron_bridge(work: Work) -> Due:
    place = "decoder.layers.0.self_attention.linear_qkv.adapter"
    _named(work, {f"{place}.linear_{end}.weight": noise((8, 512), end) for end in ("in", "out")})
    return Due(naming="Megatron-Bridge or NeMo 2")


@adapter
def names_of_torchtune(work: Work) -> Due:
    place = "layers.0.attn.q_proj"
    _named(work, {f"{place}.lora_{end}.weight": noise((8, 512), end) for end in "ab"})
    return Due(naming="torchtune")


@adapter
def names_of_kohya(work: Work) -> Due:
    place = "lora_te1_text_model_encoder_layers_0_mlp_fc1"
    _named(work, {f"{place}.lora_{end}.weight": noise((8, 512), end) for end in ("down", "up")})
    return Due(naming="kohya")


@adapter
def names_of_diffusers(work: Work) -> Due:
    place = "unet.down_blocks.0.attentions.0.to_q"
    _named(work, {f"{place}.lora.{end}.weight": noise((8, 512), end) for end in ("down", "up")})
    return Due(naming="diffusers")


@adapter
def names_of_tinker(work: Work) -> Due:
    place = f"{PREFIX}model.layers.0.mlp.experts.w1"
    _named(work, {f"{place}.lora_{end}.weight": noise((4, 8, 512), end) for end in "AB"})
    return Due(naming="Tinker")


@adapter
def names_of_llama_cpp(work: Work) -> Due:
    place = "blk.0.attn_q.weight"
    _named(work, {f"{place}.lora_{end}": noise((8, 512), end) for end in "ab"})
    return Due(naming="llama.cpp (GGUF LoRA)")


def _other(part: str, method: str) -> Callable[[Work], Due]:
    def fault(work: Work) -> Due:
        work.config = None
        work.tensors = {f"{Q0}.{part}": noise((8, 64), part)}
        return Due(method=method)

    fault.__name__ = f"method_{method.lower()}"
    return fault


for _part, _method in (
    ("ia3_l", "IA3"),
    ("hada_w1_a", "LOHA"),
    ("lora_E", "ADALORA"),
    ("vera_lambda_b", "VERA"),
    ("oft_R.weight", "OFT"),
    ("hira_A", "HIRA"),
):
    adapter(_other(_part, _method))


# --- the configuration ---------------------------------------------------------------------------


def _configured(name: str, due: Due, **changes: Any) -> None:
    """Register a fault of the configuration; a value of ... takes a field out."""

    def fault(work: Work) -> Due:
        merged = {**CONFIG, **changes}
        work.config = {key: value for key, value in merged.items() if value is not ...}
        return due

    fault.__name__ = name
    adapter(fault)


_configured("config_of_half_the_rank", Due(field="r", mismatched=56), r=4)
_configured("config_of_twice_the_rank", Due(field="r", mismatched=56), r=16)
_configured("config_without_rank", Due(field="r"), r=...)
_configured("config_with_a_text_for_rank", Due(field="r"), r="8")
_configured("narrowed_targets", Due(unexpected=40), target_modules=["q_proj", "v_proj"])
_configured(
    "misspelt_target",
    Due(unexpected=8),
    target_modules=[*CONFIG["target_modules"][:-1], "down_prj"],
)
_configured("no_targets", Due(field="target_modules"), target_modules=...)
_configured("targets_that_match_nothing", Due(unexpected=56), target_modules=["nope"])
_configured("excluded_modules", Due(unexpected=14), exclude_modules=r".*layers\.1\..*")
_configured("too_few_layers", Due(unexpected=28), layers_to_transform=[0, 1])
_configured("alpha_missing", Due(field="lora_alpha"), lora_alpha=...)
_configured("alpha_zero", Due(field="lora_alpha"), lora_alpha=0)
_configured("alpha_null", Due(field="lora_alpha"), lora_alpha=None)
_configured("alpha_a_text", Due(field="lora_alpha"), lora_alpha="16")
_configured("method_missing", Due(field="peft_type"), peft_type=...)
_configured("method_in_lower_case", Due(field="peft_type"), peft_type="lora")
_configured("dora_without_magnitudes", Due(missing=28), use_dora=True)
_configured("bias_that_is_not_saved", Due(missing=28), lora_bias=True)
_configured("saved_module_not_in_the_file", Due(missing=1), modules_to_save=["lm_head"])
_configured("rank_pattern_of_others", Due(mismatched=8), rank_pattern={"q_proj": 4})
_configured("embedding_not_in_the_file", Due(missing=2), target_modules=[
    *CONFIG["target_modules"], "embed_tokens"])  # fmt: skip
_configured("tokens_not_in_the_file", Due(missing=1), trainable_token_indices=[1, 2])


@adapter
def config_of_nothing_but_the_method(work: Work) -> Due:
    work.config = {"peft_type": "LORA"}
    return Due(field="target_modules")


@adapter
def config_of_a_model(work: Work) -> Due:
    work.config = {"_from_model_config": True, "model_type": "qwen3", "hidden_size": 512}
    return Due(field="peft_type")


@adapter
def field_twice_in_the_config(work: Work) -> Due:
    work.save()
    text = json.dumps(CONFIG).replace('"r": 8', '"lora_alpha": 8, "r": 8')
    (work.folder / "adapter_config.json").write_text(text)
    return Due(field="*")


@adapter
def dora_tensors_without_the_flag(work: Work) -> Due:
    for name, (_, outputs) in modules(work.base).items():
        work.tensors[f"{PREFIX}{name}.lora_magnitude_vector"] = noise((outputs,), name, scale=1.0)
    return Due(unexpected=28)


@adapter
def bias_tensors_without_the_flag(work: Work) -> Due:
    for name, (_, outputs) in modules(work.base).items():
        work.tensors[f"{PREFIX}{name}.lora_B.bias"] = noise((outputs,), name)
    return Due(unexpected=28)


@adapter
def more_tokens_than_configured(work: Work) -> Due:
    assert work.config is not None
    work.config["trainable_token_indices"] = [4, 5]
    name = f"{PREFIX}model.embed_tokens.token_adapter.trainable_tokens_delta"
    work.tensors[name] = noise((3, 512), name)
    return Due(mismatched=1)


@adapter
def embeddings_of_two_sizes(work: Work) -> Due:
    assert work.config is not None
    work.config["modules_to_save"] = ["embed_tokens", "lm_head"]
    work.tensors[f"{PREFIX}model.embed_tokens.weight"] = noise((520, 512), "embed")
    work.tensors[f"{PREFIX}lm_head.weight"] = noise((528, 512), "head")
    return Due(mismatched=2)


@adapter
def recipe_of_another_rank(work: Work) -> Due:
    work.options["set"] = ("r=16",)
    return Due(field="r", mismatched=56)


# --- experts -------------------------------------------------------------------------------------


def _one_by_one(work: Work) -> None:
    work.config = dict(CONFIG)


@experts_of
def one_expert_missing(work: Work) -> Due:
    _one_by_one(work)
    work.tensors = {n: p for n, p in work.tensors.items() if ".layers.1.mlp.experts.2." not in n}
    return Due(missing=6, experts=(4, 3))


@experts_of
def one_expert_missing_and_no_config(work: Work) -> Due:
    work.config = None
    work.tensors = {n: p for n, p in work.tensors.items() if ".layers.1.mlp.experts.2." not in n}
    return Due(missing=6, experts=(4, 3))


@experts_of
def one_matrix_of_an_expert_missing(work: Work) -> Due:
    _one_by_one(work)
    del work.tensors[f"{PREFIX}model.layers.0.mlp.experts.3.up_proj.lora_A.weight"]
    return Due(missing=1, experts=(3, 4))


@experts_of
def experts_not_targeted(work: Work) -> Due:
    work.config = {**CONFIG, "target_modules": CONFIG["target_modules"][:4]}
    return Due(unexpected=48)


def _fused(work: Work) -> None:
    """Replace single experts by the wrappers of their fused parameters, gate and up at rank 2r."""
    work.tensors = lora(modules(MOE))
    for layer in range(2):
        place = f"{PREFIX}model.layers.{layer}.mlp.experts"
        for inner, ranks, inputs, outputs in (
            (".base_layer", 4 * 16, 512, 512),
            ("", 4 * 8, 256, 512),
        ):
            for part, shape in (("A", (ranks, inputs)), ("B", (outputs, ranks))):
                name = f"{place}{inner}.lora_{part}.weight"
                work.tensors[name] = noise(shape, name)
    work.config = {
        **CONFIG,
        "target_modules": CONFIG["target_modules"][:4],
        "target_parameters": ["gate_up_proj", "down_proj"],
        "rank_pattern": {r".*\.gate_up_proj": 16},
    }


@experts_of
def target_parameters_missing(work: Work) -> Due:
    _fused(work)
    assert work.config is not None
    del work.config["target_parameters"]
    return Due(unexpected=8)


@experts_of
def one_of_two_target_parameters(work: Work) -> Due:
    _fused(work)
    assert work.config is not None
    work.config["target_parameters"] = ["down_proj"]
    return Due(unexpected=4)


@experts_of
def fused_experts_of_one_layer_missing(work: Work) -> Due:
    _fused(work)
    work.tensors = {n: p for n, p in work.tensors.items() if ".layers.1.mlp" not in n}
    return Due(missing=4, experts=(4, 0))


@experts_of
def ranks_for_three_of_four_experts(work: Work) -> Due:
    _fused(work)
    place = f"{PREFIX}model.layers.1.mlp.experts"
    work.tensors[f"{place}.lora_A.weight"] = noise((24, 256), "a")
    work.tensors[f"{place}.lora_B.weight"] = noise((512, 24), "b")
    return Due(mismatched=2, experts=(4, 3))


@experts_of
def fused_experts_the_old_way_round(work: Work) -> Due:
    _fused(work)
    for layer in range(2):
        place = f"{PREFIX}model.layers.{layer}.mlp.experts"
        work.tensors[f"{place}.lora_A.weight"] = noise((32, 512), f"{layer}a")
        work.tensors[f"{place}.lora_B.weight"] = noise((256, 32), f"{layer}b")
    return Due(mismatched=4, experts=(0, 0))


# --- full checkpoints ----------------------------------------------------------------------------


@full
def full_layer_missing(work: Work) -> Due:
    work.tensors = {n: p for n, p in work.tensors.items() if ".layers.2." not in n}
    return Due(missing=11)


@full
def full_norm_missing(work: Work) -> Due:
    del work.tensors["model.norm.weight"]
    return Due(missing=1)


@full
def full_with_an_unknown_tensor(work: Work) -> Due:
    work.tensors["model.layers.0.mlp.secret.weight"] = noise((4, 4), 0)
    return Due(unexpected=1)


@full
def full_of_another_vocabulary_in_one_place(work: Work) -> Due:
    work.tensors["lm_head.weight"] = noise((500, 512), "head")
    return Due(mismatched=1)


@full
def full_compiled(work: Work) -> Due:
    work.rename("model.", "_orig_mod.model.")
    return Due(rename="_orig_mod.")


@full
def full_with_one_tensor_cast(work: Work) -> Due:
    name = "model.layers.1.mlp.up_proj.weight"
    work.tensors[name] = noise(work.tensors[name].shape, name, "F32")
    work.options["typed"] = True
    return Due(mismatched=1)


@full
def full_with_a_kind_in_integers(work: Work) -> Due:
    for name, piece in work.tensors.items():
        if "k_proj" in name:
            work.tensors[name] = noise(piece.shape, name, "I8")
    work.options["typed"] = True
    return Due(mismatched=4)


@full
def full_with_zeroed_weight(work: Work) -> Due:
    name = "model.layers.1.mlp.up_proj.weight"
    work.tensors[name] = work.tensors[name]._replace(data=bytes(len(work.tensors[name].data)))
    return Due(tensor=name)


@full
def full_with_tied_weights_apart(work: Work) -> Due:
    work.base["tie_word_embeddings"] = True
    return Due("tied-apart", "lm_head.weight")


def _shards(work: Work, count: int = 4) -> list[dict[str, Piece]]:
    shards = split(work.tensors, count)
    work.options["index"] = write_sharded(work.folder, shards)
    work.saved = True
    return shards


@full
def shard_missing(work: Work) -> Due:
    shards = _shards(work)
    (work.folder / "model-00003-of-00004.safetensors").unlink()
    return Due("shard-missing", missing=len(shards[2]))


@full
def shard_missing_without_index(work: Work) -> Due:
    shards = _shards(work)
    work.options["index"].unlink()
    (work.folder / "model-00002-of-00004.safetensors").unlink()
    return Due("shard-missing", missing=len(shards[1]))


@full
def shard_of_another_save(work: Work) -> Due:
    _shards(work)
    write(work.folder / "model-00005-of-00005.safetensors", {"old.weight": noise((4, 4), 1)})
    return Due("shard-stray")


@full
def shard_truncated(work: Work) -> Due:
    _shards(work)
    path = work.folder / "model-00002-of-00004.safetensors"
    path.write_bytes(path.read_bytes()[:-4096])
    return Due("truncated")


@full
def shard_heads_zero(work: Work) -> Due:
    """Three of four shards begin with zeros, as after a crash of the disk."""
    shards = _shards(work)
    for number in (1, 2, 3):
        path = work.folder / f"model-{number:05d}-of-00004.safetensors"
        path.write_bytes(bytes(8) + path.read_bytes()[8:])
    return Due("zero-header", missing=sum(map(len, shards[:3])))


@full
def index_names_a_tensor_that_no_shard_has(work: Work) -> Due:
    _shards(work)
    index = json.loads(work.options["index"].read_text())
    index["weight_map"]["mtp.fc.weight"] = "model-00001-of-00004.safetensors"
    work.options["index"].write_text(json.dumps(index))
    return Due(missing=1)


@full
def tensor_in_another_shard_than_the_index_says(work: Work) -> Due:
    _shards(work)
    index = json.loads(work.options["index"].read_text())
    index["weight_map"]["lm_head.weight"] = "model-00001-of-00004.safetensors"
    work.options["index"].write_text(json.dumps(index))
    return Due("tensor-misplaced", "lm_head.weight")


@full
def tensor_in_two_shards(work: Work) -> Due:
    shards = split(work.tensors, 4)
    name = next(iter(shards[0]))
    shards[3][name] = shards[0][name]
    write_sharded(work.folder, shards)
    work.saved = True
    return Due("tensor-twice", name)


@full
def shard_outside_the_folder(work: Work) -> Due:
    _shards(work)
    index = json.loads(work.options["index"].read_text())
    for name, shard in index["weight_map"].items():
        if shard.startswith("model-00004"):
            index["weight_map"][name] = "../../secret.safetensors"
    work.options["index"].write_text(json.dumps(index))
    return Due("shard-missing")


@full
def rank_missing(work: Work) -> Due:
    ranks = split(work.tensors, 4)
    for number, tensors in enumerate(ranks):
        if number != 2:
            write(work.folder / f"ep_rank_{number}" / "model.safetensors", tensors)
    work.saved = True
    return Due(missing=len(ranks[2]))


@full
def tensor_on_two_ranks(work: Work) -> Due:
    ranks = split(work.tensors, 2)
    ranks[1]["model.norm.weight"] = ranks[0]["model.norm.weight"] = work.tensors[
        "model.norm.weight"
    ]
    for number, tensors in enumerate(ranks):
        write(work.folder / f"rank_{number}" / "model.safetensors", tensors)
    work.saved = True
    return Due("tensor-twice", "model.norm.weight")


@full
def replicated_tensor_unequal(work: Work) -> Due:
    ranks = split(work.tensors, 2)
    name = "model.norm.weight"
    ranks[0][name] = work.tensors[name]
    ranks[1][name] = noise((512,), "another", scale=0.5)
    for number, tensors in enumerate(ranks):
        write(work.folder / f"rank_{number}" / "model.safetensors", tensors)
    work.saved = True
    work.options["replicated"] = "*norm.weight"
    return Due("tensor-twice", name)


@full
def one_bit_from_the_reference(work: Work) -> Due:
    write(work.folder / "reference" / "model.safetensors", work.tensors)
    name = "model.layers.3.mlp.gate_proj.weight"
    piece = work.tensors[name]
    data = bytearray(piece.data)
    data[2 * 4321] ^= 1
    work.tensors[name] = piece._replace(data=bytes(data))
    path = work.folder / "ours" / "model.safetensors"
    write(path, work.tensors)
    work.saved = True
    work.options |= {"path": path, "reference": work.folder / "reference"}
    header = parse_header(path.read_bytes())
    tensor = next(t for t in header.tensors if t.name == name)
    return Due("differs-from-reference", name, header.data_start + tensor.begin + 2 * 4321)


@full
def full_gguf(work: Work) -> Due:
    path = work.folder / "model.safetensors"
    path.write_bytes(b"GGUF\x03\0\0\0" + b"\2" * 4000)
    work.saved = True
    return Due("foreign-file")


@full
def full_duplicate_names(work: Work) -> Due:
    raw = write_header([("a.weight", "F32", (4,)), ("b.weight", "F32", (4,))])
    raw = raw.replace(b'"b.weight"', b'"a.weight"')
    (work.folder / "model.safetensors").write_bytes(raw + b"\1" * 32)
    work.saved = True
    return Due("duplicate-name")
