"""Find tensors that are the same bytes as another one: copied by mistake, or lawfully shared."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from .facts import Purpose, Role, TensorFacts

Same = Callable[[TensorFacts, TensorFacts], bool]
Constant = Callable[[TensorFacts], bool]

_JUDGED = {
    Purpose.LORA_A,
    Purpose.LORA_B,
    Purpose.EMBEDDING_A,
    Purpose.EMBEDDING_B,
    Purpose.MAGNITUDE,
    Purpose.WEIGHT,
    Purpose.BIAS,
}
_OF_LAYERS = {Purpose.WEIGHT, Purpose.BIAS}
_SEEDED = {Purpose.LORA_A, Purpose.EMBEDDING_B}
_FEWEST = 64  # elements: fewer may be equal by chance
_FUSED = {
    "qkv": ("q_proj", "k_proj", "v_proj"),
    "gate_up": ("gate_proj", "up_proj"),
}


class Copies(NamedTuple):
    """Pairs (copy, original) that are damage, pairs of whole layers, and fused origins.

    `shared` are kinds of which every layer has the same bytes as one seed for all of them gives,
    and `everywhere` the tensors of those kinds that no seed explains.
    """

    damage: list[tuple[TensorFacts, TensorFacts]]
    layers: list[tuple[str, str]]
    shared: list[str]
    everywhere: list[list[TensorFacts]]
    fused: dict[str, int]


def find_copies(
    facts: Iterable[TensorFacts], roles: Mapping[str, Role], same: Same, constant: Constant
) -> Copies:
    """Find equal tensors of one kind in different modules; `same` and `constant` read the bytes.

    Only where dtype, shape, largest value, rms and the sum of all words agree are bytes compared.
    A lora_A is the same in all layers where each began with one seed and rounding hides training;
    lora_B begins at zero, and what training adds differs. Models grown by repeating layers have
    whole layers twice, which is lawful, but never one layer alone everywhere.
    """
    known = [
        (one, role)
        for one in facts
        if one.elements >= _FEWEST
        and not one.all_zero
        and one.whole
        and (role := roles[one.tensor.name]).purpose in _JUDGED
    ]
    alike = Counter(one.digest for one, _ in known)
    groups: dict[tuple[object, ...], list[TensorFacts]] = defaultdict(list)
    for one, role in known:
        if alike[one.digest] > 1:
            same_kind = (role.purpose, role.kind, one.tensor.dtype, one.tensor.shape)
            groups[(*same_kind, one.digest, one.max_abs)].append(one)
    if not groups:
        return Copies([], [], [], [], {})
    members = Counter(role[:2] for _, role in known)
    copies = Copies([], [], [], [], _fused([one for one, _ in known], roles, same))
    for group in groups.values():
        if len(group) < 2 or constant(group[0]):
            continue
        role = roles[group[0].name]
        equal = [one for one in group[1:] if same(one, group[0])]
        if len(equal) + 1 == members[role[:2]] > 2:
            if role.purpose in _SEEDED:
                copies.shared.append(role.kind)
            else:
                copies.everywhere.append([group[0], *equal])
        else:
            copies.damage.extend((one, group[0]) for one in equal)
    return _without_whole_layers(copies, [one for one, _ in known], roles)


def _without_whole_layers(
    copies: Copies, known: list[TensorFacts], roles: Mapping[str, Role]
) -> Copies:
    """Take out weights whose layer is, with all its weights, the copy of another."""
    weights: dict[str | None, int] = defaultdict(int)
    for one in known:
        if roles[one.name].purpose is Purpose.WEIGHT:
            weights[roles[one.name].layer] += 1
    pairs: dict[tuple[str, str], int] = defaultdict(int)
    for copy, original in copies.damage:
        there, here = roles[copy.name], roles[original.name]
        if there.purpose is Purpose.WEIGHT and there.layer and here.layer:
            pairs[there.layer, here.layer] += 1
    whole = {pair for pair, count in pairs.items() if count == weights[pair[0]] > 1}
    left = [
        (copy, original)
        for copy, original in copies.damage
        if roles[copy.name].purpose not in _OF_LAYERS
        or (roles[copy.name].layer, roles[original.name].layer) not in whole
    ]
    return copies._replace(damage=left, layers=sorted(whole))


def _fused(known: list[TensorFacts], roles: Mapping[str, Role], same: Same) -> dict[str, int]:
    """Count the layers where the A of q, k, v or of gate, up are equal, as Megatron's fused are."""
    by_module = {
        roles[one.name].module: one for one in known if roles[one.name].purpose is Purpose.LORA_A
    }
    counts: dict[str, int] = defaultdict(int)
    for module, first in by_module.items():
        parent, _, leaf = module.rpartition(".")
        for name, leaves in _FUSED.items():
            if leaf != leaves[0]:
                continue
            others = [by_module.get(f"{parent}.{other}") for other in leaves[1:]]
            if all(
                other is not None
                and other.digest == first.digest
                and other.tensor.shape == first.tensor.shape
                and same(other, first)
                for other in others
            ):
                counts[name] += 1
    return dict(counts)
