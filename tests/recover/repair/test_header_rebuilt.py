"""A lost header comes back byte for byte, or not at all."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from broken_adapters import (
    LINEAR,
    LLAMA,
    QWEN3_8B,
    adapter,
    copy,
    header_of,
    llama,
    lora,
    outcome,
    write,
    zeroed,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from reefkit.errors import DoesNotHold, Unusable
from reefkit.recover.base.from_config import base_from_config
from reefkit.recover.formats.safetensors import parse_header, write_header
from reefkit.recover.ranges import Range
from reefkit.recover.repair.adapter_headers import adapter_headers
from reefkit.recover.repair.header_candidate import HeaderCandidate
from reefkit.recover.repair.header_length import file_size
from reefkit.recover.repair.header_sources import HeaderSources, weight_map_for
from reefkit.recover.repair.known_headers import from_manifest, from_sibling
from reefkit.recover.repair.shard_headers import shard_headers
from reefkit.recover.repair.size_oracle import fits
from reefkit.recover.repair.stage import Request, plan
from reefkit.recover.save.verdict import Verdict

WHOLE = adapter()
HEAD = header_of(WHOLE).data_start
ALL = tuple(name.rpartition(".")[2] for name in LINEAR)


def by_base(**stated: object) -> Callable[[int], Iterable[HeaderCandidate]]:
    return lambda size: adapter_headers(llama(), stated, size)


QWEN_SIZES = {"BF16": 174_656_040, "F16": 174_655_536, "F32": 349_243_752}


@pytest.mark.parametrize(("dtype", "size"), QWEN_SIZES.items())
def test_rank_and_size_tell_targets_and_dtype_of_qwen3_8b(dtype: str, size: int) -> None:
    base = base_from_config(QWEN3_8B, label="config.json")
    (found,) = fits(base, size, rank=32)
    assert (found.dtype, set(found.targets)) == (dtype, set(ALL))
    (candidate,) = adapter_headers(base, {"r": 32}, size)
    assert len(candidate.header.tensors) == 504
    assert candidate.header.file_size == size


@pytest.mark.parametrize(
    ("dtype", "others"), [("BF16", set[object]()), ("F16", {(16, "F32")}), ("F32", {(64, "F16")})]
)
def test_half_the_rank_at_twice_the_width_is_all_that_else_has_the_size(
    dtype: str, others: set[object]
) -> None:
    base = base_from_config(QWEN3_8B, label="config.json")
    found = {(fit.rank, fit.dtype) for fit in fits(base, QWEN_SIZES[dtype])}
    assert found == {(32, dtype)} | others


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_a_header_from_the_base_is_the_one_that_the_library_writes(dtype: torch.dtype) -> None:
    tensors = {name: torch.zeros(shape, dtype=dtype) for name, _, shape in lora(rank=5)}
    real = safetensors.torch.save(tensors, {"format": "pt"})
    (candidate,) = adapter_headers(llama(), {"r": 5, "target_modules": list(ALL)}, len(real))
    assert real.startswith(candidate.raw)


@given(
    st.lists(st.sampled_from(list(LINEAR)), min_size=1, unique=True),
    st.integers(1, 300),
    st.sampled_from(["BF16", "F32"]),
)
@settings(max_examples=30, deadline=None)
def test_what_gives_a_size_is_among_what_is_found_for_it(
    modules: list[str], rank: int, dtype: str
) -> None:
    entries = lora(rank, dtype, modules=modules)
    size = parse_header(write_header(entries, {"format": "pt"})).file_size
    assert file_size(sorted((name, shape) for name, _, shape in entries), dtype) == size
    names = {name.rpartition(".")[2] for name in modules}
    assert any(
        (f.rank, f.dtype, set(f.targets)) == (rank, dtype, names) for f in fits(llama(), size)
    )


def test_a_zeroed_head_comes_back_from_the_size_of_the_file() -> None:
    worked_out = plan(Request((copy(zeroed(WHOLE, (0, HEAD))),), by_base()))
    assert outcome(worked_out) == WHOLE
    assert worked_out.result.verdict is Verdict.REBUILT_UNVERIFIED


def test_targets_that_have_the_same_shapes_are_ambiguous_until_stated() -> None:
    modules = ("self_attn.q_proj", "self_attn.v_proj")
    file = adapter(lora(modules=modules))
    broken = zeroed(file, (0, header_of(file).data_start))
    undecided = plan(Request((copy(broken),), by_base()))
    assert not undecided.writes
    assert undecided.result.verdict is Verdict.PARTIAL
    found = {origin.rpartition(" ")[2] for origin in undecided.result.candidates}
    assert found >= {"q_proj,v_proj", "k_proj,q_proj", "k_proj,o_proj", "o_proj,v_proj"}
    decided = plan(Request((copy(broken),), by_base(target_modules=["q_proj", "v_proj"])))
    assert outcome(decided) == file


def test_a_digest_decides_between_headers() -> None:
    file = adapter(lora(modules=("self_attn.q_proj", "self_attn.v_proj")))
    broken = copy(zeroed(file, (0, header_of(file).data_start)))
    digest = hashlib.sha256(file).hexdigest()
    assert outcome(plan(Request((broken,), by_base(), expected_sha256=digest))) == file
    assert not plan(Request((broken,), by_base(), expected_sha256="0" * 64)).writes


@pytest.mark.filterwarnings("ignore")  # of PEFT and transformers
@pytest.mark.parametrize(
    "options",
    [
        {"use_dora": True, "target_modules": ["q_proj", "v_proj"]},
        {"lora_bias": True, "target_modules": ["o_proj"]},
        {"target_modules": ["up_proj", "embed_tokens"]},
        {"target_modules": ["k_proj"], "modules_to_save": ["lm_head"]},
        {"target_modules": ["q_proj", "down_proj"], "rank_pattern": {"down_proj": 3}},
        {"target_modules": "all-linear", "layers_to_transform": None},
        {"target_modules": r".*layers\.[02]\.mlp\..*_proj"},
        {"target_modules": ["q_proj"], "layers_to_transform": [1]},
    ],
    ids=["dora", "bias", "embedding", "saved", "ranks", "all", "pattern", "layers"],
)
def test_what_peft_saves_is_rebuilt_with_the_rank_left_open(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.set_num_threads(1)
    keys: dict[str, Any] = {key: value for key, value in LLAMA.items() if key != "architectures"}
    model = LlamaForCausalLM(LlamaConfig(**keys))
    get_peft_model(model, LoraConfig(r=11, **options)).save_pretrained(str(tmp_path))
    real = (tmp_path / "adapter_model.safetensors").read_bytes()
    found = list(adapter_headers(llama(), {**options, "dtype": "float32"}, len(real)))
    assert [real.startswith(candidate.raw) for candidate in found] == [True]


def test_surviving_bytes_of_a_head_decide_between_candidates() -> None:
    file = adapter(lora(modules=("self_attn.q_proj", "self_attn.v_proj")))
    half = header_of(file).data_start // 2
    worked_out = plan(Request((copy(zeroed(file, (0, half))),), by_base()))
    assert outcome(worked_out) == file
    assert worked_out.result.header is not None and worked_out.result.header.surviving > 100


def test_a_byte_that_disagrees_refutes_a_candidate_and_is_named() -> None:
    broken = bytearray(zeroed(WHOLE, (0, HEAD // 2)))
    broken[HEAD - 200 : HEAD - 198] = b"##"
    with pytest.raises(DoesNotHold, match=rf"2 bytes .* at {HEAD - 200}:{HEAD - 198}"):
        plan(Request((copy(bytes(broken)),), by_base()))


def test_bytes_that_are_stated_to_be_damaged_refute_nothing() -> None:
    broken = bytearray(WHOLE)
    broken[100:140] = b"#" * 40
    stated = (Range(100, 140),)
    worked_out = plan(Request((copy(bytes(broken), stated=stated),), by_base()))
    assert outcome(worked_out) == WHOLE


def test_a_readable_header_that_is_not_the_expected_one_is_refused() -> None:
    other = WHOLE.replace(b"layers.0.mlp.up_proj.lora_A", b"layers.9.mlp.up_proj.lora_A")
    assert header_of(other).tensors != header_of(WHOLE).tensors
    with pytest.raises(DoesNotHold, match="1 bytes in the head"):
        plan(Request((copy(other),), by_base(r=16, target_modules=list(ALL))))


def test_a_header_of_another_writer_with_the_same_tensors_is_left_alone() -> None:
    text = json.dumps(json.loads(WHOLE[8:HEAD])).encode()
    spaced = len(text).to_bytes(8, "little") + text + WHOLE[HEAD:]
    assert plan(Request((copy(spaced),), by_base())).result.verdict is None


def test_a_rank_that_does_not_give_the_size_finds_nothing() -> None:
    broken = copy(zeroed(WHOLE, (0, HEAD)))
    with pytest.raises(DoesNotHold, match="No header that was stated gives"):
        plan(Request((broken,), by_base(r=8, target_modules=list(ALL))))


def test_without_any_source_a_lost_head_is_not_invented() -> None:
    with pytest.raises(DoesNotHold, match="nothing says what it held") as caught:
        plan(Request((copy(zeroed(WHOLE, (0, HEAD))),)))
    assert "--like" in (caught.value.remedy or "")


def test_a_sibling_gives_the_header() -> None:
    sibling = from_sibling(copy(adapter(seed=7), "step_7").readable)
    sources = HeaderSources(siblings=(sibling,))
    worked_out = plan(Request((copy(zeroed(WHOLE, (0, HEAD))),), sources.candidates))
    assert outcome(worked_out) == WHOLE


def test_two_metadata_entries_leave_the_bytes_of_a_sibling_header_uncertain() -> None:
    raw = write_header(lora(), {"format": "pt", "step": "7"})
    file = raw + WHOLE[HEAD:]
    sources = HeaderSources(siblings=(from_sibling(copy(file).readable),))
    worked_out = plan(Request((copy(zeroed(file, (0, len(raw)))),), sources.candidates))
    assert worked_out.result.header is not None and not worked_out.result.header.certain
    assert worked_out.result.verdict is Verdict.REBUILT_UNVERIFIED
    assert any("metadata" in note for note in worked_out.result.notes)


def manifest(folder: Path, **changes: object) -> Path:
    entry: dict[str, object] = {
        "path": "step_8/adapter_model.safetensors",
        "size": len(WHOLE),
        "sha256": hashlib.sha256(WHOLE).hexdigest(),
        "header": base64.b64encode(WHOLE[:HEAD]).decode(),
    }
    document = {"schema": "reefkit.manifest/1", "files": [{**entry, **changes}]}
    return write(folder, "manifest.json", json.dumps(document).encode())


def test_a_manifest_gives_the_header_and_proves_the_result(tmp_path: Path) -> None:
    sources = HeaderSources("adapter_model.safetensors", manifests=(manifest(tmp_path),))
    request = Request((copy(zeroed(WHOLE, (0, HEAD))),), sources.candidates)
    assert plan(request).result.expected_sha256 == hashlib.sha256(WHOLE).hexdigest()


@pytest.mark.parametrize(
    "changes",
    [{"header": "!"}, {"header": base64.b64encode(b"x" * 99).decode()}, {"size": 1}, {"header": 5}],
)
def test_a_manifest_without_a_usable_header_is_refused(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    with pytest.raises(Unusable):
        from_manifest(manifest(tmp_path, **changes), None, len(WHOLE))


def test_a_shard_with_8_zero_bytes_comes_back_from_index_and_base(tmp_path: Path) -> None:
    base = llama()
    tensors = [(t.name, "BF16", t.shape) for t in base.tensors.values() if "layers.1." in t.name]
    file = adapter(tensors)
    shard = "model-00002-of-00003.safetensors"
    weight_map = {name: shard for name, _, _ in tensors} | {"other": "model-00001-of-00003"}
    write(tmp_path, "model.safetensors.index.json", json.dumps({"weight_map": weight_map}).encode())
    found = weight_map_for(tmp_path / shard, None)
    sources = HeaderSources(name=shard, base=base, weight_map=found)
    for broken in (zeroed(file, (0, 8)), zeroed(file, (0, 4096))):
        worked_out = plan(Request((copy(broken),), sources.candidates))
        assert worked_out.result.changes
        composed = worked_out.composed
        assert composed is not None and composed.header.raw == header_of(file).raw


def test_an_index_that_does_not_name_the_shard_is_refused(tmp_path: Path) -> None:
    index = write(tmp_path, "i.json", b'{"weight_map": {"a": "b.safetensors"}}')
    with pytest.raises(Unusable, match="does not name"):
        weight_map_for(tmp_path / "c.safetensors", index)


def test_a_whole_checkpoint_in_one_file_comes_back_from_its_base() -> None:
    base = llama()
    file = adapter([(t.name, "BF16", t.shape) for t in base.tensors.values()])
    sources = HeaderSources(name="model.safetensors", base=base)
    assert outcome(plan(Request((copy(zeroed(file, (0, 900))),), sources.candidates))) == file


def test_a_shard_with_a_tensor_that_the_base_lacks_gives_no_header() -> None:
    assert list(shard_headers(llama(), {"mtp.fc.weight": "a"}, "a", 10**6)) == []


@pytest.mark.parametrize(
    ("broken", "mended"),
    [
        (WHOLE[:HEAD].rstrip(b" ").ljust(HEAD, b"\0") + WHOLE[HEAD:], WHOLE),
        (b"\0" * 8 + WHOLE[8:], WHOLE),
    ],
    ids=["nul-padding", "length-lost"],
)
def test_a_head_that_says_itself_what_is_wrong_needs_no_source(
    broken: bytes, mended: bytes
) -> None:
    assert outcome(plan(Request((copy(broken),)))) == mended


@pytest.mark.parametrize(
    "text",
    [b"{" * 3_000_000, b'{"' + b'\\"' * 1_500_000, b'{"' + b"\\" * 2_999_999, b'{"a":{}' * 400_000],
    ids=["brackets", "quotes", "backslashes", "entries"],
)
def test_a_hostile_head_is_given_up_in_no_time(text: bytes) -> None:
    started = time.perf_counter()
    for length in (0, len(text)):
        with pytest.raises(DoesNotHold):
            plan(Request((copy(length.to_bytes(8, "little") + text),)))
    assert time.perf_counter() - started < 10


def padded(length: int) -> bytes:
    text = WHOLE[8:HEAD].rstrip(b" ")
    return text.ljust(length)


def test_a_byte_order_mark_is_taken_out_without_moving_data() -> None:
    length = HEAD
    marked = length.to_bytes(8, "little") + b"\xef\xbb\xbf" + padded(length - 3) + WHOLE[HEAD:]
    result = outcome(plan(Request((copy(marked),))))
    assert parse_header(result).tensors == header_of(WHOLE).tensors
    assert result[8 + length :] == marked[8 + length :]


def test_broken_json_of_metadata_alone_is_put_right() -> None:
    broken = safetensors.torch.save({}, {})
    assert b'{},"__metadata__"' in broken
    result = outcome(plan(Request((copy(broken),))))
    assert parse_header(result).metadata == {}
    assert len(result) == len(broken)


def test_bytes_after_the_end_are_left_out_and_recorded() -> None:
    worked_out = plan(Request((copy(WHOLE + b"x" * 500),)))
    assert outcome(worked_out) == WHOLE
    (change,) = worked_out.result.changes
    assert change.range == Range(len(WHOLE), len(WHOLE) + 500)
