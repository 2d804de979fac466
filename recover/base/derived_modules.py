"""Modules of an architecture that has no rules, as far as names and shapes prove them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from .model import BaseTensor, ExpertParameter, Module, ModuleKind

_INPUT_EMBEDDINGS = ("embed_tokens", "wte", "word_embeddings", "embed_in", "tok_embeddings")
_EMBEDDINGS = frozenset(
    (
        *_INPUT_EMBEDDINGS,
        *("wpe", "shared", "embed_positions", "position_embedding", "position_embeddings"),
        *("token_type_embeddings", "relative_attention_bias", "embeddings", "embedding"),
    )
)
_HEADS = ("lm_head", "embed_out", "output")
_FLOATS = frozenset({"F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2"})
_EXPERT = re.compile(r"\.experts\.(\d+)\.")
_SHOWN = 3


@dataclass(frozen=True)
class Derived:
    """What names and shapes tell; `notes` say what they leave open."""

    modules: Mapping[str, Module]
    parameters: Mapping[str, ExpertParameter]
    tied: Mapping[str, str]
    input_embedding: str | None
    output_embedding: str | None
    vocab_size: int | None
    experts: int | None
    notes: tuple[str, ...]


def derive(
    tensors: Mapping[str, BaseTensor],
    unsized: frozenset[str],
    config: Mapping[str, object] | None,
) -> Derived:
    """Derive modules: a two-dimensional `X.weight` of floats is linear, or a known embedding.

    A bias as long as the second dimension alone proves a Conv1D. Quantised weights, whose stored
    shape is not that of the module, are left out, as are fused experts of unknown orientation.
    """
    left_out: list[str] = []
    modules: dict[str, Module] = {}
    transposed = _conv1d_names(tensors)
    for name, tensor in tensors.items():
        if name in unsized or not name.endswith(".weight") or len(tensor.shape) != 2:
            continue
        module = name.removesuffix(".weight")
        if tensor.dtype not in _FLOATS:
            left_out.append(module)
            continue
        modules[module] = _module(module, tensor.shape, f"{module}.bias" in tensors, transposed)
    left_out += [n.removesuffix(".qweight") for n in tensors if n.endswith(".qweight")]
    inputs = _first(modules, _INPUT_EMBEDDINGS, ModuleKind.EMBEDDING)
    outputs = _first(modules, _HEADS, ModuleKind.LINEAR)
    tied: dict[str, str] = {}
    if outputs is None and inputs is not None and config and config.get("tie_word_embeddings"):
        outputs = "lm_head"
        embedding = modules[inputs]
        modules[outputs] = Module(outputs, ModuleKind.LINEAR, embedding.outputs, embedding.inputs)
        tied[f"{outputs}.weight"] = f"{inputs}.weight"
    parameters, open_ones = _parameters(tensors, unsized, modules.get(inputs) if inputs else None)
    notes: list[str] = []
    if left_out:
        notes.append(
            f"{len(left_out):,} quantised weights of the base do not tell the shapes of their "
            "modules."
        )
    if open_ones:
        notes.append(
            f"The headers do not tell which way {len(open_ones):,} fused experts are stored."
        )
    return Derived(
        modules=modules,
        parameters=parameters,
        tied=tied,
        input_embedding=inputs,
        output_embedding=outputs,
        vocab_size=modules[inputs].inputs if inputs else None,
        experts=_experts(tensors, parameters),
        notes=tuple(notes),
    )


def _module(name: str, shape: tuple[int, ...], bias: bool, transposed: frozenset[str]) -> Module:
    last = name.rpartition(".")[2]
    rows, columns = shape
    if last in _EMBEDDINGS:
        return Module(name, ModuleKind.EMBEDDING, rows, columns)
    if last in transposed:
        return Module(name, ModuleKind.CONV1D, rows, columns, bias)
    return Module(name, ModuleKind.LINEAR, columns, rows, bias)


def _conv1d_names(tensors: Mapping[str, BaseTensor]) -> frozenset[str]:
    """Name what is a Conv1D in some layer; if any is, so are the square ones of the same kind."""
    proven: set[str] = set()
    square: set[str] = set()
    for name, tensor in tensors.items():
        if name.endswith(".weight") and len(tensor.shape) == 2:
            module = name.removesuffix(".weight")
            bias = tensors.get(f"{module}.bias")
            if bias is None or len(bias.shape) != 1 or bias.shape[0] != tensor.shape[1]:
                continue
            last = module.rpartition(".")[2]
            (square if tensor.shape[0] == tensor.shape[1] else proven).add(last)
    stems = {last.partition("_")[0] for last in proven}
    return frozenset(proven | {last for last in square if last.partition("_")[0] in stems})


def _first(modules: Mapping[str, Module], lasts: tuple[str, ...], kind: ModuleKind) -> str | None:
    """Find the module nearest the top whose last name is one of `lasts`, in their order."""
    for last in lasts:
        named = [
            name
            for name, module in modules.items()
            if module.kind is kind and (name == last or name.endswith(f".{last}"))
        ]
        if last == "output":  # deeper, it is part of a layer
            named = [name for name in named if name == last]
        if named:
            return min(named, key=lambda name: (name.count("."), name))
    return None


def _parameters(
    tensors: Mapping[str, BaseTensor], unsized: frozenset[str], embedding: Module | None
) -> tuple[dict[str, ExpertParameter], list[str]]:
    """Find fused experts; the hidden size, which one dimension has, tells how they are stored."""
    found: dict[str, ExpertParameter] = {}
    unclear: list[str] = []
    for name, tensor in tensors.items():
        if len(tensor.shape) != 3 or ".experts." not in name or name in unsized:
            continue
        count, first, second = tensor.shape
        hidden = embedding.outputs if embedding else None
        if tensor.dtype not in _FLOATS or (first == hidden) == (second == hidden):
            unclear.append(name)
            continue
        # gate and up read the hidden state, down writes it.
        reads = "down" not in name.rpartition(".")[2]
        transposed = (first == hidden) == reads
        inputs, outputs = (first, second) if transposed else (second, first)
        found[name] = ExpertParameter(name, count, inputs, outputs, transposed)
    return found, unclear


def _experts(
    tensors: Mapping[str, BaseTensor], parameters: Mapping[str, ExpertParameter]
) -> int | None:
    counts = [int(found[1]) + 1 for name in tensors if (found := _EXPERT.search(name))]
    counts += [parameter.experts for parameter in parameters.values()]
    return max(counts, default=None)
