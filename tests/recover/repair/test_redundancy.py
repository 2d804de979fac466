"""A lost A of fused modules comes from its twin, where the file itself shows that it has twins."""

from __future__ import annotations

import pytest
from broken_adapters import Entries, adapter, copy, header_of, lora, outcome, span, zeroed

from reefkit.recover.ranges import Range
from reefkit.recover.repair.stage import Plan, Request, plan
from reefkit.recover.save.verdict import Verdict

QKV = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
GATE_UP = ("mlp.gate_proj", "mlp.up_proj")
LAYERS = 4


def fused() -> bytes:
    """An adapter as Megatron-Bridge exports it: one A for q, k and v, one for gate and up."""
    file = bytearray(adapter(lora(layers=LAYERS)))
    for layer in range(LAYERS):
        for group in (QKV, GATE_UP):
            first, *others = (span(bytes(file), f"layers.{layer}.{m}.lora_A") for m in group)
            for other in others:
                file[other.start : other.stop] = file[first.start : first.stop]
    return bytes(file)


FUSED = fused()


def repaired(file: bytes, *, tied: dict[str, str] | None = None) -> Plan:
    return plan(Request((copy(file),), tied=tied or {}))


@pytest.mark.parametrize("module", [*QKV, *GATE_UP])
def test_a_lost_a_comes_back_from_its_twin_and_is_marked(module: str) -> None:
    tensor = span(FUSED, f"layers.2.{module}.lora_A")
    gone = Range(tensor.start + 50, tensor.stop - 50)
    worked_out = repaired(zeroed(FUSED, gone))
    assert outcome(worked_out) == FUSED
    (change,) = worked_out.result.changes
    assert change.how_known.startswith("redundancy: 3 other groups")
    assert worked_out.result.verdict is Verdict.REBUILT_UNVERIFIED


def test_twins_that_are_damaged_in_different_places_restore_each_other() -> None:
    q, k, v = (span(FUSED, f"layers.1.{m}.lora_A") for m in QKV)
    broken = zeroed(
        FUSED, (q.start, q.start + 4096), (k.start + 4096, k.stop), (v.start + 100, v.stop - 100)
    )
    assert outcome(repaired(broken)) == FUSED


def test_a_twin_that_disagrees_where_both_survive_is_not_used() -> None:
    q, k, v = (span(FUSED, f"layers.1.{m}.lora_A") for m in QKV)
    broken = bytearray(zeroed(FUSED, (q.start, q.start + 5000)))
    for twin in (k, v):
        broken[twin.start + 7000] ^= 1
    result = repaired(bytes(broken)).result
    assert result.verdict is Verdict.PARTIAL and not result.changes


def test_one_other_layer_without_the_pattern_forbids_it() -> None:
    broken = bytearray(zeroed(FUSED, span(FUSED, "layers.1.self_attn.q_proj.lora_A")))
    broken[span(FUSED, "layers.3.self_attn.k_proj.lora_A").start] ^= 1
    assert not repaired(bytes(broken)).result.changes


def test_too_few_other_layers_prove_no_pattern() -> None:
    entries = [e for e in lora(layers=2) if "q_proj" in e[0] or "k_proj" in e[0]]
    file = bytearray(adapter(entries))
    for layer in range(2):
        q, k = (span(bytes(file), f"layers.{layer}.self_attn.{p}_proj.lora_A") for p in "qk")
        file[k.start : k.stop] = file[q.start : q.stop]
    broken = zeroed(bytes(file), span(bytes(file), "layers.0.self_attn.q_proj.lora_A"))
    assert not repaired(broken).result.changes


def test_a_plain_adapter_restores_nothing() -> None:
    file = adapter()
    assert not repaired(zeroed(file, span(file, "layers.1.self_attn.q_proj.lora_A"))).result.changes


def test_tied_embeddings_restore_each_other_where_the_base_says_so() -> None:
    names = ("model.embed_tokens.weight", "lm_head.weight")
    entries: Entries = [(name, "BF16", (256, 64)) for name in names]
    file = bytearray(adapter(entries))
    embedding, head = (span(bytes(file), name) for name in names)
    file[head.start : head.stop] = file[embedding.start : embedding.stop]
    whole = bytes(file)
    gone = Range(head.start + 100, head.start + 9000)
    broken = zeroed(whole, gone)
    stated = copy(broken, stated=[gone])
    tied = {"lm_head.weight": "model.embed_tokens.weight"}
    assert outcome(plan(Request((stated,), tied=tied))) == whole
    assert not plan(Request((stated,))).result.changes


def test_damage_of_the_b_beside_it_stays_lost() -> None:
    a, b = (span(FUSED, f"layers.2.self_attn.k_proj.lora_{part}") for part in "AB")
    worked_out = repaired(zeroed(FUSED, (a.start + 100, b.stop)))
    assert worked_out.result.lost == (Range(*b),)
    assert outcome(worked_out)[a.start : a.stop] == FUSED[a.start : a.stop]
    assert header_of(outcome(worked_out)).raw == header_of(FUSED).raw
