"""Hold shards and ranks against their index: every tensor exactly once, where it is said to be."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from ..checkpoint import Checkpoint, Index, JsonFault, Shard
from ..formats.safetensors import Tensor
from ..formats.safetensors_errors import shown
from .result import Caution, Damage, DamageClass
from .same_bytes import first_difference, reaches

_NUMBERED = re.compile(r"(.*)-0*([0-9]{1,6})-of-0*([0-9]{1,6})\.safetensors", re.DOTALL)
_TEMPORARY = re.compile(r"(?:.*/)?(?:\.tmp\w{6}|[^/]*\.tmp)", re.DOTALL)
_SHOWN = 3


@dataclass(frozen=True)
class Held:
    """Every tensor with the shard that holds it (the first, where several do)."""

    tensors: Mapping[str, Tensor]
    shards: Mapping[str, Shard]
    damage: tuple[Damage, ...] = ()
    cautions: tuple[Caution, ...] = ()
    lacking: tuple[str, ...] = ()
    replicated: int = 0
    told: frozenset[str] = frozenset()  # problems of the checkpoint that are in `damage` already


def gather(checkpoint: Checkpoint, replicated: str | None = None) -> Held:
    """Gather the tensors of all shards; a tensor held twice is damage.

    `replicated` is a glob for names that every rank may hold: these must then be equal bit for bit.
    `lacking` are names of the index that no shard holds.
    """
    tensors: dict[str, Tensor] = {}
    holders: dict[str, Shard] = {}
    damage: list[Damage] = []
    copies = 0
    for shard in checkpoint.shards:
        for tensor in shard.header.tensors if shard.header else ():
            first = holders.setdefault(tensor.name, shard)
            if first is shard:
                tensors[tensor.name] = tensor
            elif replicated is not None and fnmatchcase(tensor.name, replicated):
                copies += 1
                damage += _unequal(tensors[tensor.name], first, tensor, shard)
            else:
                damage.append(_twice(tensor, first, shard))
    cautions: list[Caution] = []
    lacking: tuple[str, ...] = ()
    damage += (_broken(fault) for fault in checkpoint.index_faults)
    if checkpoint.index is not None:
        present = frozenset(shard.name for shard in checkpoint.shards)
        absent = list(_absent(checkpoint.index, present, checkpoint.unread))
        damage += absent
        damage += _misplaced(checkpoint, checkpoint.index)
        lacking = tuple(name for name in checkpoint.index.weight_map if name not in tensors)
        whole = not absent and all(shard.header for shard in checkpoint.shards)
        cautions += _index_cautions(checkpoint.index, tensors, whole)
    else:
        damage += _gaps([shard.name for shard in checkpoint.shards], checkpoint.unread)
    strays, hints = _strays(checkpoint)
    told = (text for text in checkpoint.problems if any(text in one.message for one in damage))
    return Held(
        tensors,
        holders,
        (*damage, *strays),
        (*cautions, *hints),
        lacking,
        replicated=copies,
        told=frozenset(told),
    )


def _broken(fault: JsonFault) -> Damage:
    text = f"{fault.message} Loaders go by it: without it the shards are not found."
    return Damage(DamageClass.BROKEN_INDEX, text, shard=fault.name)


def _twice(tensor: Tensor, first: Shard, second: Shard) -> Damage:
    return Damage(
        DamageClass.TENSOR_TWICE,
        f"`{shown(tensor.name)}` is held by {shown(first.name)} and by {shown(second.name)}.",
        shard=second.name,
        tensor=tensor.name,
        offset=second.header.span(tensor).start if second.header else None,
        bytes=tensor.nbytes,
    )


def _unequal(one: Tensor, first: Shard, other: Tensor, second: Shard) -> Iterator[Damage]:
    offset: int | None = None
    if not (reaches(first, one) and reaches(second, other)):
        where = ", or one of them is not whole"
    elif (one.dtype, one.shape) == (other.dtype, other.shape):
        difference = first_difference(one, first, other, second)
        if difference is None:
            return
        where = f", first in element {difference.element:,}"
        offset = difference.offset
    else:
        where = " in dtype or shape"
    yield Damage(
        DamageClass.TENSOR_TWICE,
        f"`{shown(other.name)}` may be replicated, but {shown(first.name)} and "
        f"{shown(second.name)} differ{where}.",
        shard=second.name,
        tensor=other.name,
        offset=offset,
        bytes=other.nbytes,
    )


def _absent(index: Index, present: frozenset[str], unread: Mapping[str, str]) -> Iterator[Damage]:
    lost: dict[str, list[str]] = {}
    for name, shard in index.weight_map.items():
        if shard not in present:
            lost.setdefault(shard, []).append(name)
    for shard, names in lost.items():
        text = f"The index names the shard {shown(shard)} for {len(names):,} tensors"
        why = unread.get(shard)
        text += f": {why}" if why is not None else ", and it is not there."
        yield Damage(DamageClass.SHARD_MISSING, text, shard=shard)


def _misplaced(checkpoint: Checkpoint, index: Index) -> Iterator[Damage]:
    for shard in checkpoint.shards:
        for tensor in shard.header.tensors if shard.header else ():
            said = index.weight_map.get(tensor.name)
            if said is not None and said != shard.name:
                yield Damage(
                    DamageClass.TENSOR_MISPLACED,
                    f"The index says that `{shown(tensor.name)}` is in {shown(said)}, and it is "
                    f"in {shown(shard.name)}.",
                    shard=shard.name,
                    tensor=tensor.name,
                    offset=shard.header.span(tensor).start if shard.header else None,
                    bytes=tensor.nbytes,
                )


def _index_cautions(index: Index, tensors: Mapping[str, Tensor], whole: bool) -> Iterator[Caution]:
    unnamed = [name for name in tensors if name not in index.weight_map]
    if unnamed:
        yield Caution(
            "not-in-index",
            f"The index does not name {len(unnamed):,} tensors that its shards hold, such as "
            f"{shown(unnamed[0])}.",
        )
    if not whole:
        return
    size = sum(tensor.nbytes for tensor in tensors.values())
    if index.total_size is not None and index.total_size != size:
        yield Caution(
            "index-size",
            f"The index says {index.total_size:,} bytes in total, and the tensors take {size:,}.",
        )


def _gaps(names: Iterable[str], unread: Mapping[str, str]) -> Iterator[Damage]:
    """Miss the numbers of `N-of-M` that are not there; some writers count from 0."""
    sets: dict[tuple[str, int], set[int]] = {}
    for name in names:
        if numbered := _NUMBERED.fullmatch(name):
            sets.setdefault((numbered[1], int(numbered[3])), set()).add(int(numbered[2]))
    reasons: dict[tuple[str, int], str] = {}
    for name, why in unread.items():
        if numbered := _NUMBERED.fullmatch(name):
            reasons.setdefault((numbered[1], int(numbered[3])), why)
    for (stem, count), present in sets.items():
        wanted = range(count) if 0 in present else range(1, count + 1)
        absent = [number for number in wanted if number not in present]
        if absent:
            listed = ", ".join(map(str, absent[:_SHOWN])) + (", …" if absent[_SHOWN:] else "")
            yield Damage(
                DamageClass.SHARD_MISSING,
                f"Of {count:,} shards {shown(stem)}, these are lacking: {listed}."
                + (f" {reasons[stem, count]}" if (stem, count) in reasons else ""),
                shard=None,
            )


def _strays(checkpoint: Checkpoint) -> tuple[list[Damage], list[Caution]]:
    """Tell files that a loader may take for shards from others that lie beside them."""
    stems = {m[1] for shard in checkpoint.shards if (m := _NUMBERED.fullmatch(shard.name))}
    damage: list[Damage] = []
    cautions: list[Caution] = []
    for name in checkpoint.strays:
        numbered = _NUMBERED.fullmatch(name)
        if numbered and numbered[1] in stems:
            text = f"{shown(name)} lies beside the shards, and belongs to another save of them."
            damage.append(Damage(DamageClass.SHARD_STRAY, text, shard=name))
        elif _TEMPORARY.fullmatch(name):
            text = (
                f"{shown(name)} is a temporary file beside the weights: what a killed writer "
                "left, and perhaps the only copy of what these lack."
            )
            cautions.append(Caution("temporary-file", text))
        else:
            text = f"{shown(name)} lies beside the checkpoint and was not looked at."
            cautions.append(Caution("stray-file", text))
    return damage, cautions
