"""Zeros are damage only where no tensor can lawfully hold them."""

from __future__ import annotations

import pytest
from broken_adapters import Entries, adapter, copy, header_of, span, zeroed

from reefkit.recover.ranges import Range
from reefkit.recover.repair.content import judge_content
from reefkit.recover.repair.places import TensorMap

WHOLE = adapter()
HEAD = header_of(WHOLE).data_start
Q_A, Q_B = (span(WHOLE, f"layers.1.self_attn.q_proj.lora_{part}") for part in "AB")


def found(file: bytes) -> tuple[Range, ...]:
    return judge_content(copy(file), TensorMap(header_of(file))).zero


def every(part: str) -> list[Range]:
    header = header_of(WHOLE)
    return [header.span(t) for t in header.tensors if part in t.name]


@pytest.mark.parametrize(
    "ranges",
    [
        [],
        every("lora_B"),  # step 0
        every("lora_A"),  # MiCA
        [(Q_A.start + 100, Q_A.start + 4000)],  # shorter than a page
    ],
    ids=["none", "step-0", "mica", "short"],
)
def test_lawful_zeros_are_no_damage(ranges: list[Range]) -> None:
    assert found(zeroed(WHOLE, *ranges)) == ()


@pytest.mark.parametrize(
    "gone",
    [
        Range(Q_A.start + 1, Q_A.start + 5000),
        Range(*Q_A),
        Range(Q_B.start + 2000, Q_B.stop),
        Range(*Q_B),  # one alone is no step 0
        Range(Q_B.start, Q_B.stop + 200),
        Range(len(WHOLE) - 100_000, len(WHOLE)),
        Range(HEAD, len(WHOLE)),
    ],
    ids=["in-a", "all-of-a", "part-of-b", "b-alone", "b-and-on", "tail", "everything"],
)
def test_zeros_that_no_tensor_holds_are_damage_to_the_byte(gone: Range) -> None:
    (run,) = found(zeroed(WHOLE, gone))
    assert run.start <= gone.start < run.start + 4
    assert run.stop - 4 < gone.stop <= run.stop


def test_a_few_zeros_that_go_on_from_a_lost_head_are_damage() -> None:
    header = header_of(WHOLE)
    broken = copy(zeroed(WHOLE, (0, HEAD + 1496)))
    assert judge_content(broken, TensorMap(header)).zero == (Range(HEAD, HEAD + 1496),)


FULL: Entries = [
    ("model.embed_tokens.weight", "BF16", (200, 256)),
    ("model.layers.0.mlp.up_proj.weight", "BF16", (64, 300)),
    ("model.layers.0.mlp.up_proj.bias", "BF16", (4096,)),
    ("model.layers.1.mlp.up_proj.weight", "BF16", (64, 300)),
    ("model.layers.1.mlp.quantised", "I32", (64, 300)),
]


@pytest.mark.parametrize(
    ("tensor", "start", "stop", "is_damage"),
    [
        ("embed_tokens", 3 * 512, 15 * 512, False),  # unused rows
        ("layers.0.mlp.up_proj.weight", 600, 600 * 11, False),  # pruned rows
        ("layers.0.mlp.up_proj.weight", 601, 600 * 11 + 40, True),
        ("layers.0.mlp.up_proj.bias", 0, 8192, False),
        ("layers.0.mlp.up_proj.bias", 0, 8292, True),  # goes on into the weight behind it
        ("quantised", 40, 9000, False),
    ],
)
def test_a_whole_checkpoint_may_have_zero_rows_and_biases(
    tensor: str, start: int, stop: int, is_damage: bool
) -> None:
    file = adapter(FULL)
    begin = span(file, tensor).start
    assert bool(found(zeroed(file, (begin + start, begin + stop)))) is is_damage
