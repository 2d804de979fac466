"""Find what wrappers, trainers and other models' paths left in names, and propose the right ones.

PEFT loads such adapters with a warning or without one and serves the bare base model, so every
proposal says what is wrong in words that a person can search for.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

from ...base.model import Base
from ...formats.safetensors_errors import shown
from ...validation.result import Rename
from ..keys import PREFIX, Part, parse_key
from .methods import method_of
from .paths import Move, fitting_moves

_WRAPPERS = (
    "_orig_mod",  # torch.compile
    "_fsdp_wrapped_module",
    "_checkpoint_wrapped_module",  # activation checkpointing
    "module",  # DistributedDataParallel, DeepSpeed
)
_PREFIX_ANYWHERE = re.compile(r"(?:(?<=\.)|\A)base_model\.model\.")
_LORA = re.compile(
    r"(?:\.|^)(?:lora_(?:A|B|embedding_A|embedding_B|magnitude_vector)|token_adapter)(?:\.|$)",
    re.MULTILINE,
)
_NAMED = re.compile(
    r"(?P<part>\.lora_(?:A|B)|\.lora_magnitude_vector|\.lora_embedding_[AB]|\.lora_diag"
    r"|\.lora_velora_embed|\.token_adapter\.trainable_tokens_delta)"
    r"\.(?P<name>[^.]+)(?P<leaf>\.weight|\.bias|)\Z",
    re.DOTALL,
)
_SAVED = re.compile(
    r"(?:\.modules_to_save|(?<=\.lora_monteclora_sampler))\.(?P<name>[^.]+)(?=\.[^.]+\Z)", re.DOTALL
)
# What older PEFT leaves of `q_proj.lora_A.lora.weight` when it takes ".lora" out of it.
_EATEN = re.compile(r"(?P<module>.*[^.])_(?P<matrix>[AB])\.weight\Z", re.DOTALL)
_BASE_LAYER = ".base_layer"
_PLAIN = (".lora_A.weight", ".lora_B.weight")
_LEAVES = {".lora_A": (".weight",), ".lora_B": (".weight", ".bias")}
# transformers reads GPT-2 checkpoints with and without it; the original one has none.
_OPTIONAL = {"gpt2": "transformer."}


@dataclass(frozen=True)
class Collision:
    """Names that the proposal would make one, and which are therefore left as they are."""

    name: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class Diagnosis:
    """The proposed names: `renamed` from old to new, only where they differ.

    Every rename is a fault, except that `renamed` also holds lawful spellings, which `facts`
    tells of. `facts` are sentences, fit to print; the names elsewhere are not.
    """

    renames: tuple[Rename, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    collisions: tuple[Collision, ...] = ()
    facts: tuple[str, ...] = ()

    def new_name(self, name: str) -> str:
        """Give the name that a tensor should have."""
        return self.renamed.get(name, name)


class _Work:
    """The names as they are changed step by step, and which step touched which of them."""

    def __init__(self, names: Sequence[str]) -> None:
        self.old = names
        self.new = list(names)
        self.steps: dict[tuple[str, str, str], list[int]] = {}
        self.facts: list[str] = []

    def change(self, index: int, name: str, fault: str, before: str, after: str) -> None:
        self.new[index] = name
        self.steps.setdefault((fault, before, after), []).append(index)


def diagnose(names: Sequence[str], base: Base | None = None) -> Diagnosis:
    """Propose names for an adapter's or a full checkpoint's tensors, which must be distinct.

    Without a base only what is wrong for any base is found; with one, also a wrong path into it.
    """
    work = _Work(names)
    known = "\n".join(base.tensors) + "\n" + "\n".join(base.modules) if base else ""
    _drop_wrappers(work, known, base)
    if _is_adapter(work.new, base):
        _mend_prefix(work, known, base)
        _drop_adapter_names(work, base)
        if base:
            _move_adapter(work, base)
    elif base:
        _move_tensors(work, base)
    return _finished(work)


def _is_adapter(names: Sequence[str], base: Base | None) -> bool:
    joined = "\n".join(names)
    if _LORA.search(joined) or method_of(names) is not None:
        return True
    if not names or PREFIX not in joined:
        return False
    merged = sum(base is not None and n.removeprefix(PREFIX) in base.tensors for n in names)
    return 2 * merged < len(names)


def _drop_wrappers(work: _Work, known: str, base: Base | None) -> None:
    joined = "\n".join(work.old)
    for wrapper in _WRAPPERS:
        segment = re.compile(rf"(?:(?<=\.)|^){wrapper}\.", re.MULTILINE)
        if f"{wrapper}." not in joined or segment.search(known):
            continue
        leading = wrapper == "module" and base is None
        if leading and not all(n.removeprefix(PREFIX).startswith("module.") for n in work.new):
            continue
        dropped = f"{wrapper}."
        for index, name in enumerate(work.new):
            shorter = _without(name, dropped)
            if shorter and shorter != name:
                work.change(index, shorter, dropped, dropped, "")


def _without(name: str, dropped: str) -> str:
    """Take every segment out of a name that is `dropped`, which ends with a dot."""
    inner = f".{dropped}"
    while inner in name:
        name = name.replace(inner, ".")
    while name.startswith(dropped):
        name = name[len(dropped) :]
    return name


def _mend_prefix(work: _Work, known: str, base: Base | None) -> None:
    if _PREFIX_ANYWHERE.search(known):
        return  # a model that has such a module itself
    none_has_it = not any(PREFIX in name for name in work.new)
    mended: dict[str, str] = {}
    for index, name in enumerate(work.new):
        head, found, core = name.rpartition(PREFIX)
        if found and not head:
            continue
        if not found or not head.endswith("."):
            if name.startswith("base_model."):
                continue
            if none_has_it or _LORA.search(name) or (base is not None and name in base.tensors):
                work.change(index, PREFIX + name, "missing-prefix", "", PREFIX)
            continue
        if (after := mended.get(head)) is None:
            after = mended[head] = PREFIX + _PREFIX_ANYWHERE.sub("", head)
        fault = "doubled-prefix" if after == PREFIX else "misplaced-prefix"
        work.change(index, after + core, fault, head + PREFIX, after)


def _drop_adapter_names(work: _Work, base: Base | None) -> None:
    for index, name in enumerate(work.new):
        if name.endswith(_PLAIN):
            continue
        if found := _NAMED.search(name):
            part, adapter, leaf = found["part"], found["name"], found["leaf"]
            if leaf not in _LEAVES.get(part, ("", ".weight")):
                continue
            after = leaf if part in _LEAVES else ""
            stop = found.end("part")
            fault = "weight-suffix" if name[stop:] == ".weight" else f".{adapter}."
            work.change(index, name[:stop] + after, fault, name[stop:], after)
        elif found := _SAVED.search(name):
            mended = name[: found.start()] + name[found.end() :]
            work.change(index, mended, f"{found[0][1:]}.", f"{found[0]}.", ".")
        elif base is not None and (found := _EATEN.match(name)):
            if found["module"].removeprefix(PREFIX) in base.modules:
                matrix = found["matrix"]
                mended = f"{found['module']}.lora_{matrix}.weight"
                work.change(index, mended, "adapter named lora", f"_{matrix}.", f".lora_{matrix}.")


def _move_adapter(work: _Work, base: Base) -> None:
    """Hold the path of every module against the base's."""
    wrapped = base.modules.keys() | {p.name.rpartition(".")[0] for p in base.parameters.values()}
    saved = wrapped | {name.rpartition(".")[0] for name in base.tensors}
    places: dict[str, list[int]] = {}
    at_home = 0
    for index, name in enumerate(work.new):
        if name.startswith(PREFIX) and name.endswith(_PLAIN):  # what nearly all of them are
            module, whole = name[len(PREFIX) : -len(_PLAIN[0])], False
        elif (key := parse_key(name)) is not None:
            module, whole = key.module, key.part is Part.WHOLE
        else:
            continue
        while not whole and module.endswith(_BASE_LAYER):
            module = module[: -len(_BASE_LAYER)]
        if module in (saved if whole else wrapped):
            at_home += 1
        else:
            places.setdefault(module, []).append(index)
    _move(work, places, frozenset(wrapped), "module", at_home, base, PREFIX)


def _move_tensors(work: _Work, base: Base) -> None:
    known = base.tensors.keys() | base.tied.keys()
    places = {name: [index] for index, name in enumerate(work.new) if name not in known}
    _move(work, places, known, "tensor", len(work.new) - len(places), base, "")


def _move(
    work: _Work,
    places: Mapping[str, Sequence[int]],
    known: Set[str],
    what: str,
    at_home: int,
    base: Base,
    prefix: str,
) -> None:
    if not places:
        return
    moves, doubtful = fitting_moves(list(places), known, least=2 if what == "tensor" else 1)
    moved = 0
    for move in moves:
        lawful = not prefix and _is_optional(move, base)
        moved += move.fits
        for place, indices in places.items():
            if not (place.startswith(move.before) and move.applied(place) in known):
                continue
            for index in indices:
                name = prefix + move.after + work.new[index][len(prefix) + len(move.before) :]
                if lawful:
                    work.new[index] = name
                else:
                    before, after = prefix + move.before, prefix + move.after
                    work.change(index, name, "wrong-path", before, after)
        if lawful:
            work.facts.append(
                f"{move.fits:,} tensors are spelled with {move.before or 'no prefix'!r} instead of"
                f" {move.after or 'no prefix'!r}, which transformers accepts."
            )
    if doubtful:
        paths = ", ".join(sorted({shown(m.after) or "no prefix" for m in doubtful})[:6])
        work.facts.append(
            f"Names that begin with {shown(doubtful[0].before) or 'no prefix'!r} fit several"
            f" paths of the base equally well: {paths}."
        )
    if not at_home and not moved and not doubtful:
        example = shown(next(iter(places)))
        work.facts.append(
            f"None of the {len(places):,} {what}s is in {shown(base.label)}, under no prefix"
            f" either: {example} is not there."
        )


def _is_optional(move: Move, base: Base) -> bool:
    stem = _OPTIONAL.get(base.model_type or "")
    return stem is not None and {move.before, move.after} == {"", stem}


def _finished(work: _Work) -> Diagnosis:
    kept, collisions = _colliding(work)
    counted = {step: len(set(indices) - kept) for step, indices in work.steps.items()}
    renamed = {
        old: new
        for index, (old, new) in enumerate(zip(work.old, work.new, strict=True))
        if old != new and index not in kept
    }
    renames = tuple(Rename(*step, tensors) for step, tensors in counted.items() if tensors)
    facts = list(work.facts)
    if collisions:
        facts.append(
            f"{sum(len(c.names) for c in collisions):,} tensors keep their names, because renamed"
            f" they would be {len(collisions):,}: {shown(collisions[0].names[0])} and"
            f" {shown(collisions[0].names[1])} would be one."
        )
    return Diagnosis(renames, renamed, collisions, tuple(facts))


def _colliding(work: _Work) -> tuple[set[int], tuple[Collision, ...]]:
    """Find the tensors that must keep their names; one that does may be in the next one's way."""
    kept: set[int] = set()
    collisions: list[Collision] = []
    while True:
        final = [work.old[i] if i in kept else new for i, new in enumerate(work.new)]
        held = Counter(final)
        if len(held) == len(final):
            return kept, tuple(collisions)
        clashing: dict[str, list[int]] = {}
        for index, name in enumerate(final):
            if held[name] > 1:
                clashing.setdefault(name, []).append(index)
        changed = {i for many in clashing.values() for i in many if final[i] != work.old[i]}
        if not changed:
            return kept, tuple(collisions)
        collisions += [
            Collision(name, tuple(work.old[i] for i in many)) for name, many in clashing.items()
        ]
        kept |= changed
