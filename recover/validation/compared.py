"""What was found without reading content, of an adapter or of a full checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ..adapter.expected.expectation import ExpectedModule
from ..adapter.keys import PREFIX
from ..adapter.naming.prefixes import Diagnosis
from ..adapter.structure import Adapter
from ..base.model import Base
from ..formats.safetensors import Tensor
from ..formats.safetensors_errors import shown
from . import coverage
from .compare_names import Differences
from .content.facts import TensorFacts
from .result import (
    Caution,
    ConfigFault,
    Damage,
    DamageClass,
    ExpertCoverage,
    Kind,
    LayerCoverage,
    Modules,
    Rename,
)


class Tied(NamedTuple):
    """What tied weights that are saved apart amount to."""

    damage: tuple[Damage, ...] = ()
    cautions: tuple[Caution, ...] = ()


@dataclass(frozen=True)
class Compared:
    """The findings that need no content."""

    kind: Kind
    base: Base | None
    required: Mapping[str, tuple[int, ...]]
    differences: Differences
    expected_modules: tuple[ExpectedModule, ...] = ()
    counted: Modules | None = None
    adapter: Adapter | None = None
    extras: tuple[str, ...] = ()
    layers: tuple[LayerCoverage, ...] = ()
    experts: tuple[ExpertCoverage, ...] = ()
    renames: tuple[Rename, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict[str, str])
    naming: str | None = None
    method: str | None = None
    ranks: tuple[int, ...] = ()
    faults: tuple[ConfigFault, ...] = ()
    cautions: tuple[Caution, ...] = ()
    not_checked: tuple[str, ...] = ()

    def name_of(self, name: str) -> str:
        """Give the name that a tensor of the file should have."""
        return self.renamed.get(name, name)

    def modules(self, facts: Mapping[str, TensorFacts] | None) -> Modules:
        """Count the modules that should change the output, and those that do."""
        if self.counted is not None:
            return self.counted
        bad = {*self.differences.missing, *self.differences.misshapen}
        return coverage.effective(self.expected_modules, bad, facts)

    def tied_apart(self, facts: Mapping[str, TensorFacts]) -> Tied:
        """Find tied weights that are both saved and differ: loaders tie them again, losing one."""
        damage: list[Damage] = []
        cautions: list[Caution] = []
        pairs: Mapping[str, str] = self.base.tied if self.base else {}
        for one, other in pairs.items():
            if self.kind is Kind.FULL:
                first, second = facts.get(one), facts.get(other)
                if _differ(first, second):
                    assert first is not None
                    text = (
                        f"`{shown(one)}` and `{shown(other)}` are tied in the base and differ "
                        "here: loaders keep only one of them."
                    )
                    damage.append(
                        Damage(
                            DamageClass.TIED_APART,
                            text,
                            shard=first.shard,
                            tensor=one,
                            offset=first.span.start,
                            bytes=first.span.size,
                        )
                    )
            elif _differ(facts.get(PREFIX + one), facts.get(PREFIX + other)):
                text = (
                    f"`{shown(one)}` and `{shown(other)}` are tied in the base and were trained "
                    "apart: merging or saving the whole model ties them again."
                )
                cautions.append(Caution("tied-apart", text))
        return Tied(tuple(damage), tuple(cautions))


def _differ(one: TensorFacts | None, other: TensorFacts | None) -> bool:
    if one is None or other is None or not (one.whole and other.whole):
        return False
    same = (one.tensor.dtype, one.tensor.shape) == (other.tensor.dtype, other.tensor.shape)
    return same and one.digest != other.digest


def renamed_tensors(found: Mapping[str, Tensor], renamed: Mapping[str, str]) -> dict[str, Tensor]:
    """Give the tensors under the names that they should have."""
    if not renamed:
        return dict(found)
    tensors: dict[str, Tensor] = {}
    for name, tensor in found.items():
        new = renamed.get(name)
        tensors[new or name] = replace(tensor, name=new) if new else tensor
    return tensors


def said_of_names(diagnosis: Diagnosis) -> tuple[Caution, ...]:
    """Give what is worth knowing of the names."""
    return tuple(Caution("names", fact) for fact in diagnosis.facts)
