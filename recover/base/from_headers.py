"""A base model from the headers of its files, held against the rules of its architecture."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from sys import intern

from ...records.names import printable
from .derived_modules import derive
from .extras import is_known_extra
from .model import Base, BaseSource, BaseTensor
from .spellings import expected_name, on_disk

_NUMBER = re.compile(r"\d+")
_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d+)\.")
_SHOWN = 3


@dataclass(frozen=True)
class OnDisk:
    """The tensors that the headers of a base hold, and those that only its index names."""

    tensors: Mapping[str, BaseTensor]
    unread: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()


class Gathering:
    """Takes header after header and keeps what a base needs, with equal shapes stored once."""

    def __init__(self) -> None:
        """Begin with no tensor."""
        self.tensors: dict[str, BaseTensor] = {}
        self.repeated: list[str] = []
        self._shapes: dict[tuple[int, ...], tuple[int, ...]] = {}

    def add(self, tensors: Iterable[tuple[str, str, tuple[int, ...]]]) -> None:
        """Take the (name, dtype, shape) of one header; the first of a name stays."""
        for name, dtype, shape in tensors:
            if name in self.tensors:
                self.repeated.append(name)
                continue
            kept = self._shapes.setdefault(shape, shape)
            self.tensors[name] = BaseTensor(name, kept, intern(dtype))

    def on_disk(self, weight_map: Iterable[str], notes: Iterable[str]) -> OnDisk:
        """End: what the index names and no header holds is unread."""
        named = frozenset(weight_map)
        said = list(notes)
        if self.repeated:
            said.append(f"{_some(self.repeated)} stand in more than one shard of the base.")
        if named and (extra := [name for name in self.tensors if name not in named]):
            said.append(f"The base's index does not name {_some(extra)}, which a shard holds.")
        return OnDisk(self.tensors, named - self.tensors.keys(), tuple(said))


def base_from_headers(
    disk: OnDisk,
    *,
    label: str,
    config: Mapping[str, object] | None = None,
    rules: Base | None = None,
    notes: tuple[str, ...] = (),
) -> Base:
    """Put together what the headers prove and what `rules`, the base by its config.json, add.

    Tensors are those of the headers, and of the index where a shard cannot be read. Modules come
    from the rules where these agree with the headers, else from names and shapes; a note says so.
    """
    said = [*disk.notes, *notes]
    tensors, unsized = _with_unread(disk, rules)
    if disk.unread:
        said.append(
            f"{len(disk.unread):,} tensors of the base lie in shards that cannot be read; "
            + (f"the shapes of {len(unsized):,} are unknown." if unsized else "config.json tells.")
        )
    if rules is not None:
        held = _Held(rules, disk)
        packed = _is_packed(disk.tensors)
        if not held.faults or packed:
            if held.faults:
                said.append(
                    "The weights of the base are quantised: its modules are those that "
                    "config.json describes."
                )
            taken = replace(
                rules, label=label, source=BaseSource.HEADERS, tensors=tensors, unsized=unsized
            )
            return held.with_rows(taken, said)
        said.append(
            f"The base's headers contradict its config.json: {held.faults[0]}"
            + (f" and {len(held.faults) - 1:,} more" if len(held.faults) > 1 else "")
            + "; its modules are derived from the headers."
        )
    model_type = config.get("model_type") if config else None
    derived = derive(tensors, unsized, config)
    return Base(
        label=label,
        source=BaseSource.HEADERS,
        model_type=model_type if isinstance(model_type, str) else None,
        tensors=tensors,
        modules=derived.modules,
        parameters=derived.parameters,
        tied=derived.tied,
        input_embedding=derived.input_embedding,
        output_embedding=derived.output_embedding,
        vocab_size=derived.vocab_size,
        layers=_layers(tensors),
        experts=derived.experts,
        config=config,
        unsized=unsized,
        notes=(*said, *derived.notes),
    )


def _with_unread(
    disk: OnDisk, rules: Base | None
) -> tuple[Mapping[str, BaseTensor], frozenset[str]]:
    """Add what only the index names; give also those whose shapes the rules do not tell."""
    if not disk.unread:
        return disk.tensors, frozenset()
    added: dict[str, BaseTensor] = {}
    unsized: set[str] = set()
    for name in sorted(disk.unread):
        known = expected_name(rules, name) if rules is not None else None
        if rules is None or known is None:
            unsized.add(name)
            added[name] = BaseTensor(name, ())
        else:
            added[name] = rules.tensors[known]._replace(name=name)
    return {**disk.tensors, **added}, frozenset(unsized)


class _Held:
    """The rules held against the headers: which tensor is which, and where they disagree."""

    def __init__(self, rules: Base, disk: OnDisk) -> None:
        self.rules = rules
        self.faults: list[str] = []
        self._found: dict[str, BaseTensor] = {}
        self._embeddings = {
            f"{on_disk(rules, module)}.weight": module
            for module in (rules.input_embedding, rules.output_embedding)
            if module is not None
        }
        extras: list[BaseTensor] = []
        for name, tensor in disk.tensors.items():
            expected = expected_name(rules, name)
            if expected is not None:
                self._found[expected] = tensor
                self._compare(expected, tensor)
            elif name in self._embeddings:
                self._found[name] = tensor
            else:
                extras.append(tensor)
        unread = {expected_name(rules, name) for name in disk.unread}
        for name in rules.tensors:
            if name not in self._found and name not in rules.tied and name not in unread:
                self.faults.append(f"{printable(name)} is missing")
        self._judge(extras)

    def _compare(self, expected: str, tensor: BaseTensor) -> None:
        shape = self.rules.tensors[expected].shape
        if tensor.shape == shape:
            return
        if expected in self._embeddings and tensor.shape[1:] == shape[1:]:
            return  # a vocabulary that was resized
        self.faults.append(
            f"{printable(tensor.name)} has shape {list(tensor.shape)}, not {list(shape)}"
        )

    def _judge(self, extras: list[BaseTensor]) -> None:
        """Count what would be one more layer, expert or module than the rules know."""
        templates = {_NUMBER.sub("#", tensor.name) for tensor in self._found.values()}
        for tensor in extras:
            name = tensor.name
            is_module = name.endswith(".weight") and len(tensor.shape) == 2
            if not is_module and _NUMBER.sub("#", name) not in templates:
                continue
            if is_known_extra(self.rules, name) is None:
                self.faults.append(f"it does not describe {printable(name)}")

    def with_rows(self, base: Base, notes: list[str]) -> Base:
        """Give the embeddings the rows that they have on disk, and tied tensors those names."""
        modules = dict(base.modules)
        rows = base.vocab_size
        for weight, name in self._embeddings.items():
            tensor, module = self._found.get(weight), modules.get(name)
            if tensor is None or module is None or len(tensor.shape) != 2:
                continue
            is_input = name == base.input_embedding
            stated = module.inputs if is_input else module.outputs
            count = tensor.shape[0]
            if count == stated:
                continue
            modules[name] = (
                module._replace(inputs=count) if is_input else module._replace(outputs=count)
            )
            rows = count
            notes.append(f"{name} of the base has {count:,} rows; config.json says {stated:,}.")
        tied = {
            name: self._found[other].name if other in self._found else other
            for name, other in base.tied.items()
        }
        head = base.output_embedding
        if rows is not None and tied and head in modules:
            modules[head] = modules[head]._replace(outputs=rows)
        return replace(base, modules=modules, tied=tied, vocab_size=rows, notes=tuple(notes))


def _is_packed(tensors: Mapping[str, BaseTensor]) -> bool:
    return any(
        tensor.name.endswith((".qweight", ".weight_packed", ".quant_map", "_blocks"))
        for tensor in tensors.values()
    )


def _layers(tensors: Mapping[str, BaseTensor]) -> int | None:
    numbers = {found[1] for name in tensors if (found := _LAYER.search(name))}
    return len(numbers) or None


def _some(names: list[str]) -> str:
    shown = ", ".join(printable(name[:200]) for name in names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN:,} more tensors"
