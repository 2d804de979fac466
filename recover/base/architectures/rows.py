"""The words that families are written in: one row for each module or tensor of a layer.

A row gives a name within its block, and dimensions as formulas over keys of the config:

    linear("self_attn.q_proj", HIDDEN, HEADS * HEAD_DIM, bias="attention_bias")
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..model import ModuleKind
from .settings import Size, key

HIDDEN = key("hidden_size")
INTERMEDIATE = key("intermediate_size")
VOCABULARY = key("vocab_size")
HEADS = key("num_attention_heads")
KEY_VALUE_HEADS = key("num_key_value_heads")
HEAD_DIM = key("head_dim")

Switch = bool | str  # a str names the key of the config that switches it


@dataclass(frozen=True)
class Row:
    """A weight with its bias; of a `kind` that adapters target, or None (norms, routers).

    `shape` is that of the weight on disk, `weight` and `offset` how the two tensors are called.
    `disk` is the name on disk where it differs from the one in memory. `routes` tells a router;
    `former` that transformers 4 had it as a linear layer, under its name on disk. `exact` is False
    for tensors that repositories may keep in another dtype than the rest.
    """

    name: str
    kind: ModuleKind | None
    shape: tuple[Size, ...]
    bias: Switch = False
    weight: str = ".weight"
    offset: str = ".bias"
    disk: str | None = None
    routes: bool = False
    former: bool = False
    exact: bool = True


@dataclass(frozen=True)
class Experts:
    """Gated experts: fused into two parameters in memory, three matrices for each on disk.

    Transformers 4 had the single experts as linear layers, named as they are on disk. `count` is
    the key of their number.
    """

    name: str
    count: str
    intermediate: Size
    disk: str
    gate: str = "gate_proj"
    up: str = "up_proj"
    down: str = "down_proj"


@dataclass(frozen=True)
class Fused:
    """A weight of fused experts that is fused on disk too: (experts, inputs, outputs).

    With `quantization_config` mxfp4 it is `_blocks` (experts, outputs, inputs / 32, 16) and
    `_scales` (experts, outputs, inputs / 32) on disk, both U8, as in openai/gpt-oss-120b.
    """

    name: str
    count: Size
    inputs: Size
    outputs: Size


Rows = tuple[Row | Experts | Fused, ...]


def linear(name: str, inputs: Size, outputs: Size, bias: Switch = False) -> Row:
    """Make a linear layer: weight (outputs, inputs), bias (outputs)."""
    return Row(name, ModuleKind.LINEAR, (outputs, inputs), bias)


def conv1d(name: str, inputs: Size, outputs: Size) -> Row:
    """Make GPT-2's Conv1D: weight (inputs, outputs), bias (outputs)."""
    return Row(name, ModuleKind.CONV1D, (inputs, outputs), bias=True)


def embedding(name: str, rows: Size, dimension: Size) -> Row:
    """Make an embedding: weight (rows, dimension)."""
    return Row(name, ModuleKind.EMBEDDING, (rows, dimension))


def norm(name: str, size: Size = HIDDEN, bias: Switch = False) -> Row:
    """Make a norm: weight (size), and a bias of the same shape for a LayerNorm."""
    return Row(name, None, (size,), bias)


def tensor(name: str, *shape: Size, exact: bool = True) -> Row:
    """Make a tensor that is no module's weight: its name is used as it is."""
    return Row(name, None, shape, weight="", exact=exact)


def router(
    name: str,
    experts: Size,
    *,
    bias: bool = False,
    disk: str | None = None,
    former: bool = True,
    exact: bool = True,
) -> Row:
    """Make a router: weight (experts, hidden); a linear layer in transformers 4 if `former`."""
    shape = (experts, HIDDEN)
    return Row(name, None, shape, bias, disk=disk, routes=True, former=former, exact=exact)


def attention(
    bias: Switch = False, output_bias: Switch | None = None, output: str = "o_proj"
) -> Rows:
    """Make grouped-query attention; the output projection has the same bias switch, or its own."""
    return (
        linear("self_attn.q_proj", HIDDEN, HEADS * HEAD_DIM, bias),
        linear("self_attn.k_proj", HIDDEN, KEY_VALUE_HEADS * HEAD_DIM, bias),
        linear("self_attn.v_proj", HIDDEN, KEY_VALUE_HEADS * HEAD_DIM, bias),
        linear(
            f"self_attn.{output}",
            HEADS * HEAD_DIM,
            HIDDEN,
            bias if output_bias is None else output_bias,
        ),
    )


def head_norms() -> Rows:
    """Make norms of the queries and keys over each head."""
    return (norm("self_attn.q_norm", HEAD_DIM), norm("self_attn.k_norm", HEAD_DIM))


def gated_mlp(path: str = "mlp", inner: Size = INTERMEDIATE, bias: Switch = False) -> Rows:
    """Make a gated feed-forward part with gate, up and down."""
    return (
        linear(f"{path}.gate_proj", HIDDEN, inner, bias),
        linear(f"{path}.up_proj", HIDDEN, inner, bias),
        linear(f"{path}.down_proj", inner, HIDDEN, bias),
    )


def fused_mlp() -> Rows:
    """Make a gated feed-forward part whose gate and up are one matrix."""
    return (
        linear("mlp.gate_up_proj", HIDDEN, 2 * INTERMEDIATE),
        linear("mlp.down_proj", INTERMEDIATE, HIDDEN),
    )


def norms(*names: str) -> Rows:
    """Make norms over the hidden size."""
    return tuple(norm(name) for name in names)


TWO_NORMS = norms("input_layernorm", "post_attention_layernorm")

# What PEFT makes of names in `target_modules` that transformers 5 has fused.
CONVERTED: Mapping[str, str] = {
    "gate": "gate.weight",
    "gate_proj": "gate_up_proj",
    "up_proj": "gate_up_proj",
    "down_proj": "down_proj",
}
CONVERTED_MIXTRAL: Mapping[str, str] = {
    "gate": "gate.weight",
    "w1": "gate_up_proj",
    "w3": "gate_up_proj",
    "w2": "down_proj",
}
