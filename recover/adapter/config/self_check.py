"""Hold a written configuration against the tensors, in both directions, as a loader would."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from ....errors import DoesNotHold
from ....records.names import printable
from ...base.model import Base
from ..expected.by_config import expected_by_config
from ..keys import Part
from ..kinds import expert_of
from ..structure import Adapter
from ..targets import selects
from .proof import Proof, is_copy

_SHOWN = 3


class Checked(NamedTuple):
    """How many modules and tensors were derived from the configuration, and found."""

    modules: int
    tensors: int
    against: str | None


def check_written(
    config: Mapping[str, object], adapter: Adapter, proof: Proof, base: Base | None
) -> Checked:
    """Derive from a configuration what must be there, and demand just that of the tensors.

    Without a base only the adapter's own modules can be asked for. Raises DoesNotHold.
    """
    if base is None:
        selected = selects(config)
        lost = [name for name in proof.targets if not selected(name)]
        if lost:
            raise _failed(f"it does not target {_some(lost)}")
        return Checked(len(proof.targets), len(adapter.tensors), None)
    expected = expected_by_config(adapter, _as_named(base, proof), config)
    wanted = expected.tensors
    found = {name: tensor.shape for name, tensor in adapter.tensors.items()}
    # PEFT loads biases by their names, whatever `bias` says; biases of norms are in no table.
    biases = {name for name in {*wanted, *found} if name.endswith(".bias") and ".lora_" not in name}
    missing = [name for name in wanted if name not in found and name not in biases]
    surplus = [
        name
        for name in found
        if name not in wanted
        and name not in expected.optional
        and name not in biases
        and not _is_embedding(name, adapter, proof)
    ]
    divided = config.get("use_bdlora") is not None  # its blocks divide the inputs
    misfits = [n for n, shape in wanted.items() if found.get(n, shape) != shape and not divided]
    for names, said in (
        (missing, "it expects tensors that are not there"),
        (surplus, "it has no use for tensors that are there"),
        (misfits, "it expects other shapes"),
    ):
        if names:
            raise _failed(f"{said}: {len(names):,}, {_some(names)}")
    return Checked(len(expected.modules), len(found), base.label)


def _as_named(base: Base, proof: Proof) -> Base:
    """Give the base with routers as modules, and with single experts only where one is named."""
    former = any(name in base.modules and base.modules[name].former for name in proof.targets)
    kept = {name: m for name, m in base.modules.items() if former or not m.former}
    # On disk a router may have the name that it had under transformers 4, as Mixtral's do.
    gone = {f"{name}.weight" for name in base.modules.keys() - kept if expert_of(name) is None}
    tensors = {name: tensor for name, tensor in base.tensors.items() if name not in gone}
    return replace(base, modules={**base.routers, **kept}, tensors=tensors)


def _is_embedding(name: str, adapter: Adapter, proof: Proof) -> bool:
    """Tell a saved embedding, which PEFT loads by its name whether it is expected or not."""
    key = adapter.keys[name]
    whole = key.part is Part.WHOLE
    return whole and (key.module in proof.embeddings or is_copy(key.module, adapter))


def _failed(reason: str) -> DoesNotHold:
    return DoesNotHold(
        f"The rebuilt configuration does not reproduce the adapter: {reason}.",
        remedy="Nothing was left behind. `reef-recover validate PATH --base BASE` shows where "
        "tensors and base disagree.",
    )


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    shown = ", ".join(printable(name) for name in listed[:_SHOWN])
    return shown + (", …" if len(listed) > _SHOWN else "")
