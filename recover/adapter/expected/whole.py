"""Parameters that an adapter saves whole: by their names in memory, and in a resized base."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from ...base.model import Base, Module, ModuleKind
from ...base.spellings import in_memory
from ..keys import Part, tensor_name
from ..kinds import layer_of
from ..patterns import suffixes
from ..structure import Adapter
from .expectation import Shape

TOKENS = ".token_adapter"  # the wrapper of an embedding some of whose rows are trained
_DEEPEST = 32
_COPIES = ("modules_to_save", "original_module")


def parameters_in_memory(base: Base) -> dict[str, Shape]:
    """Map every parameter of a base, by its name in memory, to its shape.

    Names on disk and in memory differ by prefixes (`h.0.` and `transformer.h.0.` of GPT-2), which
    are read off the modules.
    """
    rules = _prefix_rules(base)
    found: dict[str, Shape] = {}
    for name, tensor in base.tensors.items():
        spelled = in_memory(base, name)
        if spelled == name:
            rule = next((r for r in rules if name.startswith(r[0])), ("", ""))
            spelled = rule[1] + name[len(rule[0]) :]
        found[spelled] = tensor.shape
    for module in base.modules.values():
        conv = module.kind is not ModuleKind.LINEAR
        shape = (module.inputs, module.outputs) if conv else (module.outputs, module.inputs)
        found.setdefault(f"{module.name}.weight", shape)
        if module.bias:
            found.setdefault(f"{module.name}.bias", (module.outputs,))
    return found


def other_matrices(base: Base) -> dict[str, Module]:
    """Give what has a weight of two dimensions and is no linear module, as routers of experts.

    Peft wraps their weights as parameters, and names them like modules.
    """
    return {
        module: Module(module, ModuleKind.LINEAR, shape[1], shape[0])
        for name, shape in parameters_in_memory(base).items()
        for module, _, leaf in (name.rpartition("."),)
        if leaf == "weight" and len(shape) == 2 and module not in base.modules
    }


def _prefix_rules(base: Base) -> list[tuple[str, str]]:
    """Give (prefix on disk, prefix in memory), the longest first."""
    strangers = [
        name
        for name in base.modules
        if f"{name}.weight" not in base.tensors and _in_first_layers(name)
    ][:4096]
    if not strangers:
        return []
    ends: dict[str, list[str]] = {}
    for tensor in base.tensors:
        module, _, leaf = tensor.rpartition(".")
        if leaf == "weight" and module not in base.modules and _in_first_layers(module):
            for end in suffixes(module):
                ends.setdefault(end, []).append(module)
    rules: set[tuple[str, str]] = set()
    for name in strangers:
        for end in suffixes(name):
            if len(modules := ends.get(end, [])) == 1 and (end == name or "." in end):
                rules.add((modules[0][: -len(end)], name[: -len(end)]))
                break
    return sorted(rules, key=lambda rule: -len(rule[0]))


def _in_first_layers(name: str) -> bool:
    layer = layer_of(name)
    return layer is None or layer.endswith((".0", ".1")) or layer in ("0", "1")


def saved_parameters(
    modules_to_save: tuple[str, ...], parameters: Mapping[str, Shape]
) -> dict[str, Shape]:
    """Give the parameters of the modules that `modules_to_save` selects: by the ends of names.

    PEFT compares characters, not whole segments, so that `norm` takes `k_norm` too
    (`_set_trainable` of peft 0.21; measured).
    """
    known = frozenset(modules_to_save)
    chosen: dict[str, bool] = {}

    def selected(module: str) -> bool:
        if module not in chosen:
            chosen[module] = any(endings(module, known))
        return chosen[module]

    return {
        name: shape
        for name, shape in parameters.items()
        if any(map(selected, paths(name.rpartition(".")[0])))
    }


def endings(text: str, known: Collection[str]) -> Iterator[str]:
    """Give those of the known names that a text ends with, letter by letter."""
    yield from (text[start:] for start in range(len(text)) if text[start:] in known)


def paths(module: str) -> Iterator[str]:
    """Give a module and all that it lies in: `a.b.c`, `a.b`, `a`; nothing for absurd depths."""
    while module and module.count(".") < _DEEPEST:
        yield module
        module = module.rpartition(".")[0]


def copies(module: str, shape: Shape) -> dict[str, Shape]:
    """Give what peft 0.21 saves twice and thrice of an embedding that is saved whole.

    Where the vocabulary was resized it takes all that the embedding's wrapper holds (measured).
    """
    return {tensor_name(f"{module}.{each}", Part.WHOLE, 0, "weight"): shape for each in _COPIES}


def is_copy(module: str, adapter: Adapter) -> bool:
    """Tell whether a module is such a copy of one that is saved whole too."""
    parent, _, last = module.rpartition(".")
    return last in _COPIES and parent in adapter.whole


def resized_rows(adapter: Adapter, base: Base) -> int | None:
    """Give the number of rows of a resized vocabulary, where the saved embeddings agree on one."""
    places = [name for name in (base.input_embedding, base.output_embedding) if name]
    rows = {
        shape[0]
        for name in places
        for leaf, shape in adapter.whole.get(name, {}).items()
        if leaf == "weight" and len(shape) == 2
    }
    for name, key in adapter.keys.items():
        shape = adapter.tensors[name].shape
        module = key.module.removesuffix(TOKENS)
        if key.part is Part.BASE_WEIGHT and module in places and len(shape) == 2:
            rows.add(shape[0])
    known = base.modules[base.input_embedding].inputs if base.input_embedding else None
    only = rows.pop() if len(rows) == 1 else None
    return None if only == known or not only else only


def resize(base: Base, rows: int) -> Base:
    """Give the base as it is after `resize_token_embeddings(rows)`."""
    modules = dict(base.modules)
    tensors = dict(base.tensors)
    old: int | None = None
    if base.input_embedding:
        old = modules[base.input_embedding].inputs
        modules[base.input_embedding] = modules[base.input_embedding]._replace(inputs=rows)
    if base.output_embedding in modules:
        head = modules[base.output_embedding]
        modules[head.name] = head._replace(outputs=rows)
    for name, tensor in tensors.items():
        if tensor.shape[:1] == (old,) and name.rpartition(".")[0].endswith(
            tuple(m.rpartition(".")[2] for m in (base.input_embedding, base.output_embedding) if m)
        ):
            tensors[name] = tensor._replace(shape=(rows, *tensor.shape[1:]))
    return replace(base, modules=modules, tensors=tensors)
