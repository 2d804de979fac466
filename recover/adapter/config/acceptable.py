"""Refuse what is no plain LoRA in PEFT's naming, and say what to do with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....errors import DoesNotHold, Unusable
from ....records.names import printable
from ...base.model import Base
from ...checkpoint import Checkpoint
from ...formats.safetensors import Tensor, coverage
from ..naming.foreign import recognise
from ..naming.methods import method_of
from ..naming.prefixes import diagnose


def tensors_of(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """Gather the tensors of a checkpoint that is whole by its headers.

    Raises the fault of a header, DoesNotHold for a file that is cut short or names a tensor that
    another has, too.
    """
    found: dict[str, Tensor] = {}
    for shard in checkpoint.shards:
        if shard.header is None:
            raise shard.fault or Unusable(f"{printable(shard.name)} has no header.")
        short = coverage(shard.header, shard.size).short_by
        if short:
            raise DoesNotHold(
                f"{printable(shard.name)} is {short:,} bytes short: tensors are missing.",
                remedy="`reef-recover validate` names them; rebuild once the file is whole.",
            )
        for tensor in shard.header.tensors:
            if tensor.name in found:
                raise DoesNotHold(
                    f"{printable(tensor.name)} is in two files of {checkpoint.label}.",
                    remedy="Name the one file that is the adapter.",
                )
            found[tensor.name] = tensor
    return found


def demand_plain_lora(
    names: Sequence[str], metadata: Mapping[str, str] | None, base: Base | None
) -> None:
    """Demand names as PEFT's LoRA writes them. Raises DoesNotHold that names what they are."""
    foreign = recognise(names, metadata)
    if foreign is not None:
        raise DoesNotHold(
            f"This adapter is named as {foreign.producer} does, not as PEFT: "
            f"{printable(foreign.evidence)}; {foreign.trap}.",
            remedy=foreign.remedy,
        )
    method = method_of(names)
    if method is not None and method.name != "LORA":
        seed = (
            f", and its config's {method.seed} regenerates a frozen part that no tensor holds: "
            "without the original seed the adapter is lost"
            if method.seed
            else ""
        )
        raise DoesNotHold(
            f"This is an adapter of PEFT's method {method.name}, not of LoRA "
            f"({printable(method.evidence)}){seed}.",
            remedy="Rebuild its configuration by hand from the run's own; only LoRA is supported.",
        )
    faults = diagnose(names, base).renames
    if faults:
        first = faults[0]
        raise DoesNotHold(
            f"{first.tensors:,} names have a fault ({printable(first.fault)}): "
            f"`{printable(first.before)}` should be `{printable(first.after)}`; PEFT would load "
            "nothing, and say so in a warning at most.",
            remedy="Rename first: `reef-recover repair PATH` writes a mended copy.",
        )
