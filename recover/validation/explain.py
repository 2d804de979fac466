"""Say in a sentence which field of the configuration hundreds of tensors contradict."""

from __future__ import annotations

from collections.abc import Iterator

from ..adapter.expected.by_config import is_converted
from ..adapter.expected.expectation import Expectation
from ..adapter.expected.wrappers import expert_modules
from ..adapter.keys import Key, Part
from ..adapter.kinds import kind_of_module
from ..adapter.structure import Adapter
from ..base.model import Base
from ..formats.safetensors_errors import shown
from .result import ConfigFault
from .said import Overlaid

_FLAGS = {Part.MAGNITUDE: "use_dora", Part.B_BIAS: "lora_bias", Part.DIAGONAL: "kasa_config"}


def explain(
    adapter: Adapter,
    base: Base,
    overlaid: Overlaid,
    expectation: Expectation,
    unexpected: tuple[str, ...],
) -> Iterator[ConfigFault]:
    """Give one fault for each field that the tensors contradict."""
    if overlaid.config is None or expectation.inferred:
        yield from _rank(adapter, base, overlaid)
        return
    keys = [(name, key) for name in unexpected if (key := adapter.keys.get(name)) is not None]
    yield from _rank(adapter, base, overlaid)
    yield from _targets(base, expectation, keys)
    yield from _flags(expectation, keys)
    whole = [name for name, key in keys if key.part is Part.WHOLE and key.module in base.modules]
    if whole:
        text = (
            f"`{shown(whole[0])}` is saved whole, and modules_to_save does not name it: PEFT "
            "writes it over the base's weight in silence."
        )
        yield ConfigFault("modules_to_save", text)


def _targets(
    base: Base, expectation: Expectation, keys: list[tuple[str, Key]]
) -> Iterator[ConfigFault]:
    """Find modules of the base that have a LoRA and that nothing in the configuration selects."""
    wanted = {module.name for module in expectation.modules}
    fused = expert_modules(base)
    lora = [key for _, key in keys if key.part.is_lora]
    for field, places in (
        ("target_modules", {k.module for k in lora if k.module in base.modules}),
        ("target_parameters", {k.module for k in lora if k.module in fused}),
    ):
        left_out = places if field == "target_parameters" else places - wanted
        if left_out:
            kinds = sorted({kind_of_module(module) for module in left_out})
            listed = ", ".join(f"`{shown(kind)}`" for kind in kinds[:3])
            text = (
                f"{field} does not select {len(left_out):,} modules that have a LoRA ({listed}"
                f"{', …' if kinds[3:] else ''}): PEFT drops their tensors in silence."
            )
            yield ConfigFault(field, text)


def _flags(expectation: Expectation, keys: list[tuple[str, Key]]) -> Iterator[ConfigFault]:
    wanted = {module.name for module in expectation.modules}
    for part, field in _FLAGS.items():
        count = sum(key.part is part and key.module in wanted for _, key in keys)
        if count:
            text = f"{field} is not set, and {count:,} tensors are there that PEFT then drops."
            yield ConfigFault(field, text)


def _rank(adapter: Adapter, base: Base, overlaid: Overlaid) -> Iterator[ConfigFault]:
    """Tell that all tensors have one rank, and that it is another than stated."""
    config = overlaid.config or {}
    r = config.get("r")
    if not isinstance(r, int) or config.get("rank_pattern") or r in adapter.ranks:
        return
    ranks = {
        module.first
        for (name, _), module in adapter.modules.items()
        if name in base.modules and module.first and ".experts." not in name
    }
    if len(ranks) != 1 or is_converted(adapter, config, overlaid.said):
        return
    (found,) = ranks
    text = f"r is stated as {r}, and the tensors have {found}."
    if found == 2 * r:
        text += (
            " A conversion of PiSSA, OLoRA or their kin doubles the rank: state it with "
            "--set converted_initialisation=true if it was one."
        )
    yield ConfigFault("r", text)
