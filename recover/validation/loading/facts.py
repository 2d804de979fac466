"""What about an adapter and its configuration decides how loaders take them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

from ....errors import Unusable
from ....records.names import printable
from ...adapter.config.faults import Found, config_faults
from ...adapter.config.refusals import Refusal, refusals, refusals_of_base
from ...adapter.expected.by_config import expected_by_config
from ...adapter.expected.expectation import Expectation
from ...adapter.expected.whole import is_copy, resized_rows
from ...adapter.keys import PREFIX, Part
from ...adapter.kinds import expert_of
from ...adapter.patterns import pattern_key
from ...adapter.structure import Adapter
from ...adapter.targets import targeted_modules, targeted_parameters
from ...base.model import Base
from ...checkpoint import JsonFault
from ..result import DamageClass, Validation

_EMBEDDINGS = ("embed_tokens", "lm_head")
_PATTERNS = ("rank_pattern", "alpha_pattern")
_LOOKED_AT = 64
# Fields of LoraConfig in peft 0.21.2; others are ignored with a warning.
KNOWN_FIELDS = frozenset(
    """
    alora_invocation_tokens alpha_pattern arrow_config auto_mapping base_model_name_or_path bias
    corda_config ensure_weight_tying eva_config exclude_modules fan_in_fan_out inference_mode
    init_lora_weights kasa_config layer_replication layers_pattern layers_to_transform loftq_config
    lora_alpha lora_bias lora_dropout lora_ga_config megatron_config megatron_core modules_to_save
    monteclora_config peft_type peft_version qalora_group_size r rank_pattern revision
    runtime_config target_modules target_parameters task_type trainable_token_indices use_bdlora
    use_dora use_qalora use_rslora velora_config
    """.split()
)
UNREADABLE_CLASSES = frozenset(
    {
        DamageClass.LFS_POINTER,
        DamageClass.HTML_PAGE,
        DamageClass.FOREIGN_FILE,
        DamageClass.EMPTY_FILE,
        DamageClass.TRUNCATED,
        DamageClass.TRAILING_BYTES,
        DamageClass.ZERO_HEADER,
        DamageClass.NUL_PADDING,
        DamageClass.BROKEN_HEADER,
    }
)
CONTENT_CLASSES = frozenset(
    {
        DamageClass.NOT_FINITE,
        DamageClass.ZERO_FILE,
        DamageClass.ZERO_TAIL,
        DamageClass.ZERO_RUN,
        DamageClass.ZERO_TENSOR,
        DamageClass.SPARSE,
    }
)
# Parts that a flag of the config must announce, or PEFT leaves the tensors out.
_ANNOUNCED = {
    Part.MAGNITUDE: "use_dora",
    Part.B_BIAS: "lora_bias",
    Part.DIAGONAL: "kasa_config",
    Part.VELORA: "velora_config",
    Part.MONTECLORA: "monteclora_config",
    Part.TOKEN_DELTA: "trainable_token_indices",
}


@dataclass(frozen=True)
class LoaderFacts:
    """One adapter, by its proper names, with its configuration and base as far as there are.

    `unread` is a configuration that is there and cannot be read.
    """

    validation: Validation
    adapter: Adapter
    config: Mapping[str, object]
    base: Base | None
    has_config: bool = True
    unread: JsonFault | None = None

    @cached_property
    def faults(self) -> Sequence[Found]:
        """Give what is wrong with the values of the configuration, refusals of PEFT left out."""
        if not self.has_config:
            return ()
        refused = {one.field for one in refusals(self.config)}
        found = config_faults(self.config, document=True)
        return [one for one in found if one.fault.field not in refused]

    @cached_property
    def refused(self) -> Sequence[Refusal]:
        """Give what PEFT refuses of the configuration, by itself and on this base."""
        if not self.has_config:
            return ()
        found = refusals(self.config)
        if self.base is None or any(one.fatal for one in self.faults):
            return found
        return (*found, *refusals_of_base(self.config, self.base, self._rows))

    @property
    def _rows(self) -> int | None:
        return resized_rows(self.adapter, self.base) if self.base is not None else None

    @cached_property
    def expectation(self) -> Expectation | None:
        """Give what the config promises for this base; None where it cannot be known."""
        if self.base is None or not self.has_config or self.target_fault is not None:
            return None
        if any(one.fatal for one in self.faults) or self.refused:
            return None
        if not self.config.get("target_modules") and not self.config.get("target_parameters"):
            return None
        try:
            return expected_by_config(self.adapter, self.base, self.config)
        except Unusable:  # a pattern that only some names make slow
            return None

    @cached_property
    def targeted(self) -> frozenset[tuple[str, int]] | None:
        """Give the modules that the config targets, each with its depth as in keys.Key."""
        if self.base is None or self.expectation is None:
            return None
        chosen = {(module.name, module.depth) for module in self.expectation.modules}
        tied = {(n, 0) for n in (self.base.input_embedding, self.base.output_embedding) if n}
        if self.config.get("ensure_weight_tying") and self.base.tied and chosen & tied:
            chosen |= tied
        return frozenset(chosen)

    @cached_property
    def target_fault(self) -> str | None:
        """Say what is wrong with the targets themselves, such as a broken pattern."""
        try:
            if self.base is not None and self.has_config:
                targeted_modules(self.config, self.base)
                targeted_parameters(self.config, self.base)
            for field in _PATTERNS:
                look_up = pattern_key(_keys(self.config.get(field)))
                for name, _ in self.adapter.modules:
                    look_up(name)
        except Unusable as error:
            return error.message
        return None

    @cached_property
    def dropped(self) -> Sequence[str]:
        """Name the modules whose tensors the config's targets leave out."""
        if self.targeted is None:
            return ()
        return _unique(place[0] for place in self.adapter.modules if place not in self.targeted)

    @cached_property
    def lacking(self) -> Sequence[str]:
        """Name the targeted modules that have no pair of matrices."""
        if self.targeted is None:
            return ()
        whole = {place for place, module in self.adapter.modules.items() if module.whole}
        return _unique(name for name, _ in sorted(self.targeted - whole))

    @cached_property
    def lacking_experts(self) -> Sequence[str]:
        """Name single experts without their matrices, where other experts have them."""
        some = any(expert_of(f"{name}.") is not None for name, _ in self.adapter.modules)
        return [name for name in self.lacking if some and expert_of(f"{name}.") is not None]

    @property
    def nothing_loads(self) -> bool:
        """Tell whether no targeted module finds its matrices."""
        every = {name for name, _ in self.targeted or ()}
        return bool(every) and len(self.lacking) == len(every)

    @cached_property
    def idle_patterns(self) -> Mapping[str, tuple[Sequence[str], bool]]:
        """Give the keys of each pattern that match no targeted module.

        The flag tells that all of them are for expert parameters, which PEFT warns about as well.
        """
        found: dict[str, tuple[Sequence[str], bool]] = {}
        if self.base is None or self.targeted is None:
            return found
        modules = [m.name for m in targeted_modules(self.config, self.base)]
        parameters = [p.name for p in targeted_parameters(self.config, self.base)]
        for field in _PATTERNS:
            try:
                if idle := _unmatched(_keys(self.config.get(field)), modules):
                    found[field] = (idle, not _unmatched(idle, parameters))
            except Unusable:
                continue
        return found

    @cached_property
    def wrong_shapes(self) -> Sequence[str]:
        """Name the tensors whose shapes are not those of the model."""
        found = [m.tensor for m in self.validation.mismatched if m.aspect == "shape"]
        if not found and self.expectation is not None:
            held = self.adapter.tensors
            shapes = self.expectation.tensors
            found = [n for n, shape in shapes.items() if n in held and held[n].shape != shape]
        return found

    @cached_property
    def unannounced(self) -> Sequence[tuple[Part, str]]:
        """Give the parts that are in the file, and the config's fields that should say so."""
        return [
            (part, flag)
            for part, flag in _ANNOUNCED.items()
            if part in self.adapter.parts and not self.config.get(flag)
        ]

    @cached_property
    def saved_whole(self) -> Sequence[str]:
        """Name the modules that are saved whole."""
        return sorted(self.adapter.whole)

    @cached_property
    def saved_missing(self) -> Sequence[str]:
        """Name what `modules_to_save` wants and the file lacks."""
        wanted = strings(self.config.get("modules_to_save"))
        have = {name.rpartition(".")[2] for name in self.saved_whole} | set(self.saved_whole)
        # PEFT moves an embedding that is targeted too to its base layer.
        have |= {
            key.module.rpartition(".")[2]
            for key in self.adapter.keys.values()
            if key.part is Part.BASE_WEIGHT
        }
        return [
            name
            for name in wanted
            if name not in have and name.rpartition(".")[2] not in have and self._exists(name)
        ]

    def _exists(self, module: str) -> bool:
        """Tell whether a module of the base has this name; PEFT adds heads that most have not."""
        if self.base is None:
            return module not in ("classifier", "score")
        ends = (f"{module}.weight", f"{module}.bias")
        named = any(name.endswith(module) for name in self.base.modules)
        return named or any(name.endswith(ends) for name in self.base.tensors)

    @property
    def tied_apart(self) -> bool:
        """Tell whether the adapter changes one of two embeddings that share their weight."""
        named = (*strings(self.config.get("modules_to_save")), *self._target_names)
        touched = any(name.rpartition(".")[2] in _EMBEDDINGS for name in named)
        tied = self.base is not None and bool(self.base.tied)
        return tied and touched and not self.config.get("ensure_weight_tying")

    @property
    def _target_names(self) -> list[str]:
        return strings(self.config.get("target_modules"))

    @cached_property
    def saved_unannounced(self) -> Sequence[str]:
        """Name what is saved whole and is in no `modules_to_save`: it replaces base weights."""
        wanted = tuple(strings(self.config.get("modules_to_save")))
        lawful_bias = self.config.get("bias") in ("all", "lora_only")
        return [
            name
            for name, leaves in self.adapter.whole.items()
            if not is_copy(name, self.adapter)
            and not (wanted and name.endswith(wanted))
            and not (lawful_bias and set(leaves) == {"bias"})
        ]

    @cached_property
    def shared_projections(self) -> tuple[str, str] | None:
        """Give a module of a fused group and the partner that it lacks: q, k, v; gate, up."""
        names = {name for name, _ in self.adapter.modules}
        for name in sorted(names):
            parent, _, last = name.rpartition(".")
            partners = {"k_proj": ("q_proj", "v_proj"), "gate_proj": ("up_proj",)}.get(last, ())
            for partner in partners:
                if f"{parent}.{partner}" not in names:
                    return name, f"{parent}.{partner}"
        return None

    def example(self, module: str) -> str:
        """Show the name of a tensor of a module, fit to print."""
        return printable(f"{PREFIX}{module}.lora_A.weight")


def strings(value: object) -> list[str]:
    """Give the strings of a list; a hostile config may hold anything."""
    items = cast("list[object]", value) if isinstance(value, list) else []
    return [item for item in items if isinstance(item, str)]


def _keys(value: object) -> list[str]:
    return list(cast("Mapping[str, object]", value)) if isinstance(value, Mapping) else []


def _unmatched(keys: Sequence[str], names: Sequence[str]) -> list[str]:
    """Give the keys that match no name; of the first ones only, should there be very many."""
    look_up = pattern_key(keys)
    first = {look_up(name) for name in names}
    left = [key for key in keys if key not in first][:_LOOKED_AT]
    return [key for key in left if not any(map(pattern_key([key]), names))]


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
