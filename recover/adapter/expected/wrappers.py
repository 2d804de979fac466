"""Expert parameters of one module are wrapped one around the other: which wrapper is which."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ...base.model import Base, ExpertParameter
from ..keys import Part
from ..structure import Adapter, LoraModule
from .expectation import ExpectedModule, wrapper_shapes


def expert_modules(base: Base) -> dict[str, tuple[ExpertParameter, ...]]:
    """Group a base's expert parameters by the module that holds them, in the module's order."""
    return _grouped(base.parameters.values())


def _grouped(parameters: Iterable[ExpertParameter]) -> dict[str, tuple[ExpertParameter, ...]]:
    """Group by module; down comes last, as in every class of transformers 5, not as on disk."""
    grouped: dict[str, list[ExpertParameter]] = {}
    for parameter in parameters:
        grouped.setdefault(parameter.name.rpartition(".")[0], []).append(parameter)
    return {module: tuple(sorted(each, key=_is_down)) for module, each in grouped.items()}


def _is_down(parameter: ExpertParameter) -> bool:
    return parameter.name.rpartition(".")[2].startswith("down")


def wrappers(
    parameters: Iterable[ExpertParameter], rank: Callable[[str], int]
) -> tuple[ExpectedModule, ...]:
    """Give the wrappers of these parameters: the last of a module is the outermost, depth 0.

    Follows `_inject_parameters` of peft 0.21, which wraps in the order of the module's parameters.
    """
    return tuple(
        ExpectedModule(module, len(each) - 1 - number, wrapper_shapes(p, rank(p.name)))
        for module, each in _grouped(parameters).items()
        for number, p in enumerate(each)
    )


def identify(
    adapter: Adapter, experts: Mapping[str, tuple[ExpertParameter, ...]]
) -> dict[tuple[str, int], ExpertParameter]:
    """Tell which expert parameter each wrapper of an adapter is for.

    All parameters of a module wrapped: by their order. Fewer: by the shapes; where these fit
    several, as when a hidden size is twice the experts', the first.
    """
    depths: dict[str, list[int]] = {}
    for module, depth in adapter.modules:
        if module in experts:
            depths.setdefault(module, []).append(depth)
    found: dict[tuple[str, int], ExpertParameter] = {}
    for module, present in depths.items():
        parameters = experts[module]
        deepest = max(present)
        for depth in present:
            if deepest + 1 == len(parameters):
                found[module, depth] = parameters[deepest - depth]
                continue
            fitting = (p for p in parameters if _fits(adapter.modules[module, depth], p))
            parameter = next(fitting, None)
            if parameter is not None:
                found[module, depth] = parameter
    return found


def transposed(module: LoraModule, parameter: ExpertParameter) -> bool:
    """Tell whether a wrapper has the shapes that older versions of PEFT wrote: A on the outputs."""
    return (
        parameter.inputs != parameter.outputs
        and module.inputs == parameter.outputs
        and module.outputs == parameter.inputs
    )


def _fits(module: LoraModule, parameter: ExpertParameter) -> bool:
    straight = module.inputs in (None, parameter.inputs) and module.outputs in (
        None,
        parameter.outputs,
    )
    return module.parts <= {Part.A, Part.B} and (straight or transposed(module, parameter))
