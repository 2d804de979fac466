"""What one kind of layer holds, once the rows of a family meet the values of a config."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ....errors import Unusable
from ..model import BaseTensor, ExpertParameter, Module, ModuleKind
from .quantisation import Quantisation
from .rows import Experts, Fused, Row, Rows
from .settings import Settings

MAX_TENSORS = 300_000
_MXFP4_GROUP = 32


class Contents(NamedTuple):
    """The contents of one kind of layer, all names relative to the layer."""

    tensors: tuple[BaseTensor, ...]
    modules: tuple[Module, ...]
    former: tuple[Module, ...]  # named as on disk
    parameters: tuple[ExpertParameter, ...]
    routers: tuple[Module, ...]


class Resolver:
    """Resolves rows against the values of one config."""

    def __init__(self, settings: Settings, dtype: str | None, quantisation: Quantisation) -> None:
        self._settings = settings
        self._dtype = dtype
        self._quantisation = quantisation

    def contents(self, rows: Rows) -> Contents:
        """Resolve the rows of one layer. Raises Unusable, which names the key."""
        tensors: list[BaseTensor] = []
        modules: list[Module] = []
        former: list[Module] = []
        parameters: list[ExpertParameter] = []
        routers: list[Module] = []
        for row in rows:
            if isinstance(row, Experts):
                singles = tuple(self._singles(row))
                former.extend(singles)
                tensors.extend(self._weights(singles))
                parameters.extend(self._fused_pair(row))
            elif isinstance(row, Fused):
                parameter = self._fused(row)
                parameters.append(parameter)
                tensors.extend(self._fused_tensors(parameter))
            else:
                tensors.extend(self._row_tensors(row))
                modules.extend(self._row_module(row))
                if row.routes:
                    router = self._router(row)
                    routers.append(router)
                    if row.former:
                        former.append(router._replace(name=row.disk or row.name, former=True))
        return Contents(
            tuple(tensors), tuple(modules), tuple(former), tuple(parameters), tuple(routers)
        )

    def _row_tensors(self, row: Row) -> Iterator[BaseTensor]:
        shape = tuple(size.of(self._settings) for size in row.shape)
        disk = row.disk or row.name
        dtype = self._dtype if row.exact else None
        if row.kind in (ModuleKind.LINEAR, ModuleKind.CONV1D) and row.name != "lm_head":
            yield from self._quantisation.weight(disk + row.weight, shape, dtype)
        else:
            yield BaseTensor(disk + row.weight, shape, dtype)
        if self._switched(row):
            size = shape[1] if row.kind is ModuleKind.CONV1D else shape[0]
            yield BaseTensor(disk + row.offset, (size,), dtype)

    def _row_module(self, row: Row) -> Iterator[Module]:
        if row.kind is not None:
            first, second = (size.of(self._settings) for size in row.shape)
            inputs, outputs = (second, first) if row.kind is ModuleKind.LINEAR else (first, second)
            yield Module(row.name, row.kind, inputs, outputs, self._switched(row))

    def _router(self, row: Row) -> Module:
        outputs, inputs = (size.of(self._settings) for size in row.shape)
        return Module(row.name, ModuleKind.LINEAR, inputs, outputs, self._switched(row))

    def _switched(self, row: Row) -> bool:
        return row.bias if isinstance(row.bias, bool) else self._settings.flag(row.bias)

    def _singles(self, row: Experts) -> Iterator[Module]:
        hidden = self._settings.number("hidden_size")
        inner = row.intermediate.of(self._settings)
        count = self._settings.number(row.count)
        if count > MAX_TENSORS // 3:
            raise too_many(self._settings, row.count)
        for expert in range(count):
            path = f"{row.disk}.{expert}."
            yield Module(path + row.gate, ModuleKind.LINEAR, hidden, inner, former=True)
            yield Module(path + row.up, ModuleKind.LINEAR, hidden, inner, former=True)
            yield Module(path + row.down, ModuleKind.LINEAR, inner, hidden, former=True)

    def _weights(self, modules: Iterable[Module]) -> Iterator[BaseTensor]:
        for module in modules:
            shape = (module.outputs, module.inputs)
            yield from self._quantisation.weight(f"{module.name}.weight", shape, self._dtype)

    def _fused_pair(self, row: Experts) -> Iterator[ExpertParameter]:
        hidden = self._settings.number("hidden_size")
        inner, count = row.intermediate.of(self._settings), self._settings.number(row.count)
        yield ExpertParameter(f"{row.name}.gate_up_proj", count, hidden, 2 * inner)
        yield ExpertParameter(f"{row.name}.down_proj", count, inner, hidden)

    def _fused(self, row: Fused) -> ExpertParameter:
        count, inputs, outputs = (
            size.of(self._settings) for size in (row.count, row.inputs, row.outputs)
        )
        return ExpertParameter(row.name, count, inputs, outputs, transposed=True)

    def _fused_tensors(self, parameter: ExpertParameter) -> Iterator[BaseTensor]:
        name, experts, inputs, outputs, _ = parameter
        if not self._quantisation.mxfp4:
            shape = (experts, inputs, outputs)
            yield from self._quantisation.weight(name, shape, self._dtype)
            return
        groups, rest = divmod(inputs, _MXFP4_GROUP)
        if rest:
            name = "intermediate_size" if name.endswith("down_proj") else "hidden_size"
            raise self._settings.wrong(name, "a multiple of 32, as mxfp4 needs")
        yield BaseTensor(f"{name}_blocks", (experts, outputs, groups, _MXFP4_GROUP // 2), "U8")
        yield BaseTensor(f"{name}_scales", (experts, outputs, groups), "U8")


def too_many(settings: Settings, name: str) -> Unusable:
    """Make the error for a number that makes more tensors than any model has."""
    return Unusable(
        f"With {name} {settings.number(name)}, config.json describes more than "
        f"{MAX_TENSORS:,} tensors, which no model has.",
        remedy="Give the config.json that belongs to the base.",
    )
