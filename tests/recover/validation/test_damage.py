from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from ctypes import CDLL, c_int, c_int64, get_errno
from pathlib import Path

import numpy as np
import pytest
from contents import (
    HIDDEN,
    PREFIX,
    RANK,
    Tensors,
    adapter,
    damage_of,
    encode,
    judged,
    judged_bytes,
    serialise,
    shard_of,
    tensor,
    zeros,
)

from reefkit.recover.checkpoint import Checkpoint
from reefkit.recover.formats.safetensors import parse_header, write_header
from reefkit.recover.ranges import Range
from reefkit.recover.readable import FileReadable
from reefkit.recover.validation.content import scan as content
from reefkit.recover.validation.content.facts import Claims
from reefkit.recover.validation.content.judge import judge
from reefkit.recover.validation.content.scan import scan_content
from reefkit.recover.validation.result import DamageClass

A, B = "lora_A.weight", "lora_B.weight"
Q0, V3 = f"{PREFIX}.0.self_attn.q_proj", f"{PREFIX}.3.self_attn.v_proj"
RANDOM = np.random.default_rng(7)


# --- what is correct passes ----------------------------------------------------------------------


def with_extra(extra: Tensors) -> Tensors:
    return {**adapter(), **extra}


def per_layer(leaf: str, make: Callable[[int], tuple[str, tuple[int, ...], bytes]]) -> Tensors:
    return {f"{PREFIX}.{layer}.{leaf}": make(layer) for layer in range(6)}


def with_bias(value: float) -> Tensors:
    def bias(_: int) -> tuple[str, tuple[int, ...], bytes]:
        return "F32", (2048,), encode(np.full(2048, value), "F32")

    return with_extra(per_layer("self_attn.q_proj.lora_B.bias", bias))


def eight_bit(dtype: str) -> Tensors:
    made: Tensors = {}
    for name, (_, shape, data) in adapter().items():
        low = np.random.default_rng(list(name.encode())).integers(0, 0x48, len(data) // 2, np.uint8)
        made[name] = dtype, shape, low.tobytes()
    return made


def embedding_rows(rows: int, used: int, name: str = "base_model.model.lm_head.weight") -> Tensors:
    values = RANDOM.standard_normal((rows, 2048)) * 0.02
    values[used:] = 0
    return with_extra({name: ("BF16", (rows, 2048), encode(values, "BF16"))})


def experts(dead: int) -> Tensors:
    made: Tensors = {}
    for expert in range(8):
        part = adapter(2, modules=[f"mlp.experts.{expert}.up_proj"], seed=expert)
        made.update(adapter(2, modules=[f"mlp.experts.{expert}.up_proj"], seed=expert))
        if expert < dead:
            made.update({n: zeros(s) for n, (_, s, _) in part.items() if n.endswith(B)})
    return made


def fused_experts() -> Tensors:
    made: Tensors = {}
    for layer in range(3):
        name = f"{PREFIX}.{layer}.mlp.experts"
        a, b = (
            RANDOM.uniform(-0.04, 0.04, (512, HIDDEN)),
            RANDOM.standard_normal((8192, 512)) * 1e-3,
        )
        made[f"{name}.{A}"] = "BF16", (512, HIDDEN), encode(a, "BF16")
        b[:, 64:128] = 0  # an expert without tokens: a band of every row
        made[f"{name}.{B}"] = "BF16", (8192, 512), encode(b, "BF16")
    return made


def stacked_experts() -> Tensors:
    b = RANDOM.standard_normal((4, 4, HIDDEN, RANK)) * 1e-3
    b[:, 2] = 0
    made = adapter(4, modules=["mlp.experts"])
    for layer in range(4):
        name = f"{PREFIX}.{layer}.mlp.experts.{B}"
        made[name] = "BF16", (4, HIDDEN, RANK), encode(b[layer], "BF16")
    return made


def mica_start() -> Tensors:
    made = adapter()
    return {n: zeros(s) if n.endswith(A) else (d, s, v) for n, (d, s, v) in made.items()}


def fused_origin() -> Tensors:
    made = adapter(modules=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"))
    for name in made:
        if name.endswith(f"k_proj.{A}") or name.endswith(f"v_proj.{A}"):
            made[name] = made[name.replace("k_proj", "q_proj").replace("v_proj", "q_proj")]
    return made


def one_seed() -> Tensors:
    made = adapter(trained=False)
    return {n: made[n.replace(n.split(".")[4], "0", 1)] for n in made}


def full_model(norm: float, *, repeat: bool = False) -> Tensors:
    random = np.random.default_rng(3)
    made: Tensors = {"model.embed_tokens.weight": tensor(random, (300, 256), 0.02)}
    for layer in range(6):
        place = f"model.layers.{layer}"
        values = np.full(4096, norm)
        made[f"{place}.input_layernorm.weight"] = "BF16", (4096,), encode(values, "BF16")
        if repeat and layer == 4:
            random = np.random.default_rng(50)
            old = np.random.default_rng(50)
            for leaf in ("self_attn.q_proj", "mlp.up_proj"):
                made[f"model.layers.3.{leaf}.weight"] = tensor(old, (64, 256), 0.02)
        for leaf in ("self_attn.q_proj", "mlp.up_proj"):
            made[f"{place}.{leaf}.weight"] = tensor(random, (64, 256), 0.02)
    return made


def untrained_tower() -> Tensors:
    tower = "base_model.model.model.visual.blocks"
    return with_extra(adapter(4, trained=False, prefix=tower))


def quantised() -> Tensors:
    random = np.random.default_rng(5)
    made: Tensors = {}
    for layer in range(5):
        name = f"model.layers.{layer}.mlp.up_proj"
        codes = random.integers(-127, 127, (64, 256), np.int8)
        codes[10:40] = 0  # pruned outputs
        made[f"{name}.weight"] = "I8", (64, 256), codes.tobytes()
        made[f"{name}.weight_scale"] = "F32", (64,), encode(random.random(64) + 0.1, "F32")
        made[f"{name}.g_idx"] = zeros((4096,), "I32")
        made[f"{name}.nf4"] = "U8", (4096, 1), random.integers(0, 255, 4096, np.uint8).tobytes()
        made[f"{name}.scale_e8"] = "F8_E8M0", (64,), bytes([120 + layer]) * 64
        made[f"{name}.fp4"] = "F4", (64, 64), random.integers(1, 255, 2048, np.uint8).tobytes()
    return made


def masks() -> Tensors:
    keep = np.tril(np.ones((128, 128), np.uint8))
    keep[:, :] *= np.arange(128)[:, None] > 60
    lowest = np.where(np.tril(np.ones((64, 64))), 0.0, np.finfo("f4").min)
    return with_extra(
        {
            "base_model.model.causal_mask": ("BOOL", (128, 128), keep.tobytes()),
            "base_model.model.float_mask": ("F32", (64, 64), encode(lowest, "F32")),
            "base_model.model.position_ids": zeros((2, 2000), "I64"),
            "base_model.model.input_scale": zeros((), "F32"),
        }
    )


def unseen_tokens() -> Tensors:
    a = RANDOM.standard_normal((RANK, 9000)) * 1e-3
    a[:, 100:3001] = 0
    name = "base_model.model.model.embed_tokens"
    return with_extra(
        {
            f"{name}.lora_embedding_A": ("BF16", (RANK, 9000), encode(a, "BF16")),
            f"{name}.lora_embedding_B": tensor(RANDOM, (HIDDEN, RANK), 1.0),
        }
    )


def widely_spread() -> Tensors:
    made = adapter(12)
    for name, (_, shape, _) in made.items():
        if name.endswith(B):
            layer = int(name.split(".")[4])
            made[name] = tensor(RANDOM, shape, 1e-4 * 10 ** (layer / 4))
    return made


def padded_head() -> Tensors:
    b = RANDOM.standard_normal((9000, RANK)) * 1e-3
    b[8000:] = 0
    name = "base_model.model.lm_head"
    return with_extra(
        {
            f"{name}.{A}": tensor(RANDOM, (RANK, HIDDEN), 0.02),
            f"{name}.{B}": ("BF16", (9000, RANK), encode(b, "BF16")),
        }
    )


def tied() -> Tensors:
    weight = tensor(RANDOM, (500, 64), 0.02)
    place = "base_model.model"
    return with_extra(
        {f"{place}.model.embed_tokens.weight": weight, f"{place}.lm_head.weight": weight}
    )


CORRECT: dict[str, tuple[Callable[[], Tensors], set[str]]] = {
    "bf16": (adapter, set()),
    "f16": (lambda: adapter(dtype="F16"), set()),
    "f32": (lambda: adapter(dtype="F32"), set()),
    "f64": (lambda: adapter(dtype="F64"), set()),
    "f8-e4m3": (lambda: eight_bit("F8_E4M3"), set()),
    "f8-e5m2": (lambda: eight_bit("F8_E5M2"), set()),
    "f8-e4m3fnuz": (lambda: eight_bit("F8_E4M3FNUZ"), set()),
    "one layer": (lambda: adapter(1), set()),
    "dora": (
        lambda: with_extra(
            per_layer(
                "mlp.down_proj.lora_magnitude_vector",
                lambda _: ("F32", (4096,), encode(RANDOM.random(4096) + 3, "F32")),
            )
        ),
        set(),
    ),
    "bias": (lambda: with_bias(0.1), set()),
    "bias still zero": (lambda: with_bias(0.0), set()),
    "moe": (lambda: experts(0), set()),
    "moe with dead experts": (lambda: experts(2), {"untrained-experts"}),
    "moe fused": (fused_experts, set()),
    "moe stacked": (stacked_experts, {"zero-rows"}),
    "resized vocab": (lambda: embedding_rows(300, 270), set()),
    "padded vocab lora": (padded_head, set()),
    "step 0": (lambda: adapter(trained=False), {"untrained"}),
    "step 0 f32": (lambda: adapter(trained=False, dtype="F32"), {"untrained"}),
    "mica step 0": (mica_start, {"untrained"}),
    "one seed for all": (one_seed, {"untrained", "shared-values"}),
    "megatron fused": (fused_origin, set()),
    "tied": (tied, set()),
    "token deltas": (
        lambda: with_extra(
            {
                "base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta": (
                    tensor(RANDOM, (4, 2048), 0.02)
                )
            }
        ),
        set(),
    ),
    "unseen tokens": (unseen_tokens, set()),
    "norms of one": (lambda: full_model(1.0), set()),
    "gemma norms": (lambda: full_model(0.0), {"zero-tensor"}),
    "repeated layers": (lambda: full_model(1.0, repeat=True), {"repeated-layers"}),
    "quantised": (quantised, {"zero-rows"}),
    "masks and scalars": (masks, set()),
    "vision tower untouched": (untrained_tower, {"untrained-tower"}),
    "layers two decades apart": (widely_spread, set()),
    "pissa": (lambda: {n: tensor(RANDOM, s, 0.3) for n, (_, s, _) in adapter().items()}, set()),
}


@pytest.mark.parametrize("kind", CORRECT)
def test_a_correct_checkpoint_has_no_damage(kind: str, tmp_path: Path) -> None:
    make, cautions = CORRECT[kind]
    data = serialise(make())
    assert damage_of(tmp_path, data) == []
    found = judged_bytes(tmp_path, data)
    assert found.damage == ()
    assert {caution.kind for caution in found.cautions} == cautions
    assert json.dumps(dict(found.evidence), allow_nan=False)


def test_the_fused_origin_of_equal_matrices_is_evidence(tmp_path: Path) -> None:
    assert judged_bytes(tmp_path, serialise(fused_origin())).evidence["fused_origin"] == {"qkv": 6}


def test_a_tensor_without_a_role_may_be_anything_but_nan(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(serialise({"a": ("F32", (2,), b"\0\0\xc0\x7f" * 2), "b": zeros((9, 9))}))
    with FileReadable(path) as readable:
        shard = shard_of(readable, "x")
        found = judge(Checkpoint("x", (shard,)), {"x": scan_content(shard)}, {})
    assert [(d.kind, d.tensor) for d in found.damage] == [(K.NOT_FINITE, "a")]
    assert [c.kind for c in found.cautions] == ["zero-tensor"]


def test_tensors_of_one_name_in_two_shards_are_told_apart(tmp_path: Path) -> None:
    paths = [tmp_path / "1.safetensors", tmp_path / "2.safetensors"]
    data = bytearray(DATA)
    data[V3B.start + 1] ^= 0x40
    for path, content_of in zip(paths, (DATA, bytes(data)), strict=True):
        path.write_bytes(content_of)
    found = judged(*paths).damage
    assert [(d.kind, d.shard) for d in found if d.kind is K.OUTLIER] == [(K.OUTLIER, paths[1].name)]


def test_shards_are_judged_together(tmp_path: Path) -> None:
    made = adapter(trained=False)
    paths = [tmp_path / "1.safetensors", tmp_path / "2.safetensors"]
    for path, letter in zip(paths, (A, B), strict=True):
        path.write_bytes(serialise({n: t for n, t in made.items() if n.endswith(letter)}))
    found = judged(*paths)
    assert found.damage == ()
    assert [caution.kind for caution in found.cautions] == ["untrained"]


# --- what is not correct is named ----------------------------------------------------------------

DATA = serialise(adapter())
HEADER = parse_header(DATA)
SPANS = {t.name: HEADER.span(t) for t in HEADER.tensors}
Edit = Callable[[bytearray], None]


def flip(name: str, element: int, bit: int, width: int = 2) -> Edit:
    def edit(data: bytearray) -> None:
        data[SPANS[name].start + element * width + bit // 8] ^= 1 << bit % 8

    return edit


def zero(start: int, stop: int) -> Edit:
    def edit(data: bytearray) -> None:
        assert any(data[start:stop])
        data[start:stop] = bytes(stop - start)

    return edit


def put(name: str, element: int, bits: int) -> Edit:
    def edit(data: bytearray) -> None:
        at = SPANS[name].start + element * 2
        data[at : at + 2] = bits.to_bytes(2, "little")

    return edit


def copy(target: str, source: str) -> Edit:
    def edit(data: bytearray) -> None:
        here, there = SPANS[target], SPANS[source]
        data[here.start : here.stop] = data[there.start : there.stop]

    return edit


K = DamageClass
Q0B, V3A, V3B = SPANS[f"{Q0}.{B}"], SPANS[f"{V3}.{A}"], SPANS[f"{V3}.{B}"]
LAST = HEADER.tensors[-1].name
FAULTS: dict[str, tuple[Edit, DamageClass, str | None, int | None, int | None]] = {
    "one NaN": (put(f"{V3}.{A}", 99, 0x7FC1), K.NOT_FINITE, f"{V3}.{A}", V3A.start + 198, 2),
    "one infinity": (put(f"{V3}.{B}", 7, 0xFF80), K.NOT_FINITE, f"{V3}.{B}", V3B.start + 14, 2),
    "exponent bit": (flip(f"{V3}.{B}", 50, 14), K.OUTLIER, f"{V3}.{B}", V3B.start + 100, 2),
    "exponent bit of A": (flip(f"{Q0}.{A}", 0, 14), K.OUTLIER, f"{Q0}.{A}", None, 2),
    "zero B": (zero(*V3B), K.ZERO_TENSOR, f"{V3}.{B}", V3B.start, V3B.size),
    "zero A": (zero(*V3A), K.ZERO_TENSOR, f"{V3}.{A}", V3A.start, V3A.size),
    "hole in one": (
        zero(V3B.start + 1003, V3B.start + 5999),
        K.ZERO_RUN,
        f"{V3}.{B}",
        V3B.start + 1003,
        4996,
    ),
    "hole over a border": (
        zero(V3A.stop - 2001, V3A.stop + 2999),
        K.ZERO_RUN,
        f"{V3}.{A}",
        V3A.stop - 2001,
        5000,
    ),
    "hole over whole tensors": (
        zero(Q0B.start - 100, Q0B.stop + 100),
        K.ZERO_RUN,
        f"{Q0}.{A}",
        Q0B.start - 100,
        None,
    ),
    "tail of a tensor": (
        zero(len(DATA) - 5001, len(DATA)),
        K.ZERO_TAIL,
        LAST,
        len(DATA) - 5001,
        5001,
    ),
    "tail of a quarter": (
        zero(len(DATA) * 3 // 4, len(DATA)),
        K.ZERO_TAIL,
        None,
        len(DATA) * 3 // 4,
        None,
    ),
    "all": (zero(HEADER.data_start, len(DATA)), K.ZERO_FILE, None, HEADER.data_start, None),
    "copied B": (
        copy(f"{V3}.{B}", f"{PREFIX}.1.self_attn.v_proj.{B}"),
        K.COPIED_TENSOR,
        f"{V3}.{B}",
        V3B.start,
        V3B.size,
    ),
    "copied A": (
        copy(f"{V3}.{A}", f"{PREFIX}.1.self_attn.v_proj.{A}"),
        K.COPIED_TENSOR,
        f"{V3}.{A}",
        V3A.start,
        V3A.size,
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_with_its_tensor_and_bytes(fault: str, tmp_path: Path) -> None:
    edit, kind, name, offset, size = FAULTS[fault]
    data = bytearray(DATA)
    edit(data)
    assert data != DATA
    found = judged_bytes(tmp_path, bytes(data)).damage
    assert [one.kind for one in found] == [kind]
    assert found[0].shard == "adapter_model.safetensors"
    # Values beside a hole may begin or end with a zero byte of their own.
    assert offset is None or 0 <= offset - (found[0].offset or 0) <= 1
    assert size is None or 0 <= (found[0].bytes or 0) - size <= 2
    assert name is None or found[0].tensor == name


@pytest.mark.parametrize("dtype", ["F16", "F32", "F64", "F8_E4M3"])
def test_a_hole_is_found_in_every_dtype(dtype: str, tmp_path: Path) -> None:
    made = eight_bit(dtype) if dtype.startswith("F8") else adapter(dtype=dtype)
    data = bytearray(serialise(made))
    middle = len(data) * 2 // 3 // 4096 * 4096
    zero(middle, middle + 8192)(data)
    kinds = {one.kind for one in judged_bytes(tmp_path, bytes(data)).damage}
    assert kinds & {K.ZERO_RUN, K.ZERO_TENSOR} == kinds != set()


@pytest.mark.parametrize(
    "place", ["model.embed_tokens.weight", "model.layers.2.mlp.up_proj.weight"]
)
def test_a_lost_page_is_told_from_empty_rows(place: str, tmp_path: Path) -> None:
    data = bytearray(serialise(full_model(1.0)))
    header = parse_header(bytes(data))
    span = next(header.span(t) for t in header.tensors if t.name == place)
    start = -(-(span.start + 512) // 4096) * 4096
    zero(start, start + 8192)(data)
    found = judged_bytes(tmp_path, bytes(data)).damage
    assert [(one.kind, one.tensor) for one in found] == [(K.ZERO_RUN, place)]


@pytest.mark.parametrize("kind", ["bias", "moe", "quantised", "dora", "tied", "moe fused"])
def test_a_lost_page_is_damage_wherever_it_lies(kind: str, tmp_path: Path) -> None:
    data = serialise(CORRECT[kind][0]())
    header = parse_header(data)
    pages = range(header.data_start // 4096 + 1, len(data) // 4096)
    values = [page for page in pages if data.count(0, page * 4096, page * 4096 + 4096) < 2200]
    for page in values[:: max(1, len(values) // 12)]:
        lost = bytearray(data)
        zero(page * 4096, page * 4096 + 4096)(lost)
        assert judged_bytes(tmp_path, bytes(lost)).damage, page


def test_a_hole_in_an_untrained_adapter_is_damage_where_it_takes_an_a(tmp_path: Path) -> None:
    data = bytearray(serialise(adapter(trained=False)))
    zero(V3A.start, V3A.stop)(data)
    found = judged_bytes(tmp_path, bytes(data)).damage
    assert [one.kind for one in found] == [K.ZERO_RUN]


def test_a_zero_norm_among_others_is_damage(tmp_path: Path) -> None:
    made = full_model(1.0)
    name = "model.layers.2.input_layernorm.weight"
    made[name] = zeros((4096,))
    found = judged_bytes(tmp_path, serialise(made)).damage
    assert [(one.kind, one.tensor) for one in found] == [(K.ZERO_TENSOR, name)]


def test_an_absurd_value_needs_no_peers(tmp_path: Path) -> None:
    data = bytearray(serialise(adapter(1)))
    header = parse_header(bytes(data))
    data[header.data_start + 1] ^= 0x40
    assert [d.kind for d in judged_bytes(tmp_path, bytes(data)).damage] == [K.OUTLIER]


@pytest.mark.parametrize(
    ("claims", "untrained"),
    [
        (Claims(step=8), True),
        (Claims(step=0), False),
        (Claims(init="pissa"), True),
        (Claims(init="gaussian"), False),
    ],
)
def test_zero_b_is_held_against_what_is_claimed(
    claims: Claims, untrained: bool, tmp_path: Path
) -> None:
    found = judged_bytes(tmp_path, serialise(adapter(trained=False)), claims)
    assert [d.kind for d in found.damage] == [K.UNTRAINED] * untrained


def test_a_stated_init_that_is_not_mica_makes_zero_a_damage(tmp_path: Path) -> None:
    found = judged_bytes(tmp_path, serialise(mica_start()), Claims(init=True)).damage
    assert {d.kind for d in found} == {K.ZERO_TENSOR}
    assert len(found) == 18


def test_too_many_runs_are_no_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "_MOST_RUNS", 2)
    found = judged_bytes(tmp_path, serialise(adapter(trained=False))).damage
    assert [one.kind for one in found] == [K.ZERO_RUN]


# --- what the filesystem never stored ------------------------------------------------------------


def punched(path: Path, hole: Range) -> tuple[Range, ...]:
    libc = CDLL(None, use_errno=True)
    fd = os.open(path, os.O_RDWR)
    try:
        keep_size_punch = c_int(3)
        done = libc.fallocate(c_int(fd), keep_size_punch, c_int64(hole.start), c_int64(hole.size))
        assert done == 0, os.strerror(get_errno())
        os.fsync(fd)
        return holes_of(fd)
    finally:
        os.close(fd)


def holes_of(fd: int) -> tuple[Range, ...]:
    size = os.fstat(fd).st_size
    found: list[Range] = []
    position = 0
    while position < size:
        start = os.lseek(fd, position, os.SEEK_HOLE)
        if start >= size:
            break
        try:
            position = os.lseek(fd, start, os.SEEK_DATA)
        except OSError:
            position = size
        found.append(Range(start, position))
    return tuple(found)


def test_a_hole_in_trained_values_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "adapter_model.safetensors"
    path.write_bytes(DATA)
    holes = punched(path, Range(40960, 65536))
    assert holes == (Range(40960, 65536),)
    found = judged(path, holes={path: holes}).damage
    assert [one.kind for one in found] == [K.ZERO_RUN, K.SPARSE]
    assert (found[1].offset, found[1].bytes) == (40960, 24576)


def test_a_hole_where_zeros_belong_is_a_caution(tmp_path: Path) -> None:
    path = tmp_path / "adapter_model.safetensors"
    path.write_bytes(serialise(adapter(trained=False)))
    span = Range(-(-V3B.start // 4096) * 4096, V3B.stop // 4096 * 4096)
    found = judged(path, holes={path: punched(path, span)})
    assert found.damage == ()
    assert {caution.kind for caution in found.cautions} == {"untrained", "sparse-extent"}


# --- files that are none -------------------------------------------------------------------------

POINTER = (
    b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"ab" * 32 + b"\nsize 174656040\n"
)
NUL = write_header([("t", "F32", (2,))]).rstrip(b" ")
FILES: dict[str, tuple[bytes, DamageClass, str]] = {
    "pointer": (POINTER, K.LFS_POINTER, "174,656,040 bytes"),
    "pointer oid": (POINTER, K.LFS_POINTER, "ab" * 32),
    "page": (b"<!DOCTYPE html>\n<html><body>Not found</body></html>", K.HTML_PAGE, "again"),
    "page after a mark": (b"\xef\xbb\xbf\n<HTML>", K.HTML_PAGE, "again"),
    "pickle": (b"\x80\x02}q\x00(X\x01\x00\x00\x00a", K.FOREIGN_FILE, "pickle"),
    "zip": (b"PK\x03\x04" + b"\0" * 26 + b"hello", K.FOREIGN_FILE, "zip"),
    "gguf": (b"GGUF\x03\0\0\0" + b"\0" * 16, K.FOREIGN_FILE, "GGUF"),
    "json": (b'{"peft_type": "LORA"}', K.FOREIGN_FILE, "JSON"),
    "text": (b"Access denied. Log in first.\n", K.FOREIGN_FILE, "text"),
    "empty": (b"", K.EMPTY_FILE, "empty"),
    "three bytes": (b"\x01\x02\x03", K.BROKEN_HEADER, "3 bytes"),
    "all zero": (bytes(70_000), K.ZERO_FILE, "70,000"),
    "zero length": (bytes(8) + DATA[8:], K.ZERO_HEADER, "8 bytes"),
    "zero header": (
        bytes(HEADER.data_start) + b"\1" + DATA[HEADER.data_start + 1 :],
        K.ZERO_HEADER,
        f"{HEADER.data_start:,}",
    ),
    "zero json": (
        DATA[:8] + bytes(HEADER.data_start - 8) + DATA[HEADER.data_start :],
        K.ZERO_HEADER,
        "repair",
    ),
    "cut in header": (DATA[:1000], K.TRUNCATED, f"{HEADER.data_start - 1000:,} bytes"),
    "cut in data": (DATA[: V3B.start + 5], K.TRUNCATED, f"`{V3}.{B}`"),
    "trailing": (DATA + b"xyz", K.TRAILING_BYTES, "3 bytes"),
    "broken json": (DATA[:8] + b"[" + DATA[9:], K.BROKEN_HEADER, "repair"),
    "nul padding": (NUL + b"\0" * (-len(NUL) % 8) + bytes(8), K.NUL_PADDING, "spaces"),
    "no tensors": (write_header([], {"format": "pt"}), K.NO_TENSORS, "no tensor"),
    "zero-3": (
        serialise({f"{Q0}.{A}": ("BF16", (0,), b""), "x": zeros((1,))}),
        K.ZERO3_EMPTY,
        "q_proj",
    ),
}


@pytest.mark.parametrize("case", FILES)
def test_a_file_that_is_no_checkpoint_is_named(case: str, tmp_path: Path) -> None:
    data, kind, words = FILES[case]
    found = damage_of(tmp_path, data)
    assert [one.kind for one in found] == [kind]
    assert words in found[0].message
    assert found[0].message.endswith(".")


def test_a_duplicate_name_is_named(tmp_path: Path) -> None:
    entry = b'"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}'
    text = b"{" + entry + b"," + entry + b"}"
    found = damage_of(tmp_path, len(text).to_bytes(8, "little") + text + b"\1")
    assert [(one.kind, one.tensor) for one in found] == [(K.DUPLICATE_NAME, "t")]


def test_truncation_counts_whole_cut_and_absent(tmp_path: Path) -> None:
    found = damage_of(tmp_path, DATA[: V3B.start + 5])[0]
    names = [t.name for t in HEADER.tensors]
    whole = names.index(f"{V3}.{B}")
    assert f"{whole} tensors are whole, 1 cut, {len(names) - whole - 1} absent" in found.message
    assert (found.tensor, found.offset) == (f"{V3}.{B}", V3B.start + 5)
    assert found.bytes == len(DATA) - V3B.start - 5


def test_every_cut_is_truncation(tmp_path: Path) -> None:
    for stop in (8, 9, HEADER.data_start - 1, HEADER.data_start, V3A.stop, len(DATA) - 1):
        assert [d.kind for d in damage_of(tmp_path, DATA[:stop])] == [K.TRUNCATED], stop


def test_the_length_of_a_nul_padded_header_is_located(tmp_path: Path) -> None:
    padded = NUL[8:] + bytes(4)
    data = len(padded).to_bytes(8, "little") + padded + bytes(8)
    found = damage_of(tmp_path, data)[0]
    assert (found.kind, found.offset, found.bytes) == (K.NUL_PADDING, len(NUL), 4)


def test_names_in_messages_are_escaped(tmp_path: Path) -> None:
    data = serialise({"lora_\x1b[2J": ("BF16", (0,), b"")})
    assert "\x1b" not in damage_of(tmp_path, data)[0].message


SAVE = """
import os, signal, sys
import numpy as np
from safetensors.numpy import save_file
tensors = {f"t{i:02}": np.full(4 << 20, i + 1.5, np.float32) for i in range(24)}
killer = os.fork()
if killer == 0:
    parent = os.getppid()
    while os.getppid() == parent:
        for name in os.listdir(sys.argv[1]):
            status = os.stat(os.path.join(sys.argv[1], name))
            if status.st_size > 1 << 20:
                os.kill(parent, signal.SIGKILL)
                os._exit(0)
    os._exit(1)
save_file(tensors, os.path.join(sys.argv[1], "model.safetensors"))
"""


def test_a_killed_save_of_safetensors_is_recognised(tmp_path: Path) -> None:
    for attempt in range(5):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        subprocess.run([sys.executable, "-c", SAVE, folder], check=False)
        names = os.listdir(folder)
        if names and names != ["model.safetensors"]:
            break
    else:
        pytest.fail("no save was killed in time")
    (name,) = names
    path = folder / name
    with path.open("rb") as file:
        holes = holes_of(file.fileno())
    assert [d.kind for d in damage_of(folder, path.read_bytes(), name)] == [K.TEMPORARY_FILE]
    found = judged(path, holes={path: holes}).damage
    kinds = {one.kind for one in found}
    assert kinds & {K.ZERO_TAIL, K.ZERO_FILE}
    assert K.SPARSE in kinds
