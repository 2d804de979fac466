"""Which files of a folder make up one checkpoint, and which only lie beside it."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import ReefError, Unusable
from ..records.names import printable
from ..records.strict_json import Json
from .checkpoint import Index, JsonFault
from .folder_listing import Listing, list_tree
from .json_files import INDEX_LIMIT, gives, read_object

_ADAPTER = "adapter_model"
_FAMILIES = ("model", "diffusion_pytorch_model", "pytorch_lora_weights")
_NUMBERED = re.compile(r"(.*)-0*([0-9]{1,6})-of-0*([0-9]{1,6})\.safetensors", re.DOTALL)
_RANK_FOLDER = re.compile(
    r"(?:.*[_-])?(?:rank|ep|tp|pp|worker|shard)[_-]?[0-9]+(?:[_-][0-9]+)?", re.DOTALL
)
_SUFFIX = ".safetensors"
_INDEX_SUFFIX = ".safetensors.index.json"
_SHOWN = 5


class NoCheckpoint(Unusable):
    """No file of the folder, nor of those below it, can be read as a checkpoint."""


@dataclass(frozen=True)
class FoundFiles:
    """The files of one checkpoint.

    `shards` maps the name of each, relative to `folder`, to its path; `.partial` is not part of a
    name. `config_folders` are where configuration files may lie, best first. `unread` says by name
    why a file that is there is not read; `problems` repeat that and the faults of indices. Only
    `of_adapter` may an adapter_config.json beside the files be theirs.
    """

    folder: Path
    shards: dict[str, Path]
    index: Index | None = None
    config_folders: tuple[Path, ...] = ()
    strays: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    unread: Mapping[str, str] = field(default_factory=dict[str, str])
    index_faults: tuple[JsonFault, ...] = ()
    of_adapter: bool = True


@dataclass
class _Choice:
    shards: dict[str, Path]
    index: Index | None = None
    problems: list[str] = field(default_factory=list[str])
    unread: dict[str, str] = field(default_factory=dict[str, str])
    index_faults: list[JsonFault] = field(default_factory=list[JsonFault])


def find_files(folder: Path, index: str | None = None) -> FoundFiles:
    """Find the one checkpoint in a folder or below it; `index` names the index to go by.

    Raises Unusable where there is none or more than one, NotPermitted.
    """
    top, *below = listings = list_tree(folder)
    if index is not None:
        read_index(folder / index)
        return _found([top], _by_index(top, index))
    ranks = [each for each in below if each.weights and _RANK_FOLDER.fullmatch(each.folder.name)]
    if top.weights or top.indexes:
        return _found([top, *(each for each in ranks if each.folder.parent == top.folder)])
    if ranks and len({each.folder.parent for each in ranks}) == 1:
        with_weights = [each for each in below if each.weights or each.indexes]
        if len(with_weights) == len(ranks):
            root = next(each for each in listings if each.folder == ranks[0].folder.parent)
            return _found([root, *ranks])
    if holding := [each for each in listings if each.weights or each.indexes]:
        return _found([_single(folder, holding)])
    if holding := [each for each in listings if each.temporaries]:
        only = _single(folder, holding)
        return _found([only], _only(only, only.temporaries))
    if top.is_dump:
        chosen = [(each, each.safetensors()) for each in listings]
        chosen = [one for one in chosen if one[1]] or [(each, each.others) for each in listings]
        if files := {each.folder: found for each, found in chosen if found}:
            only = _single(folder, [each for each, _ in chosen if each.folder in files])
            return _found([only], _only(only, files[only.folder]))
    raise _nothing(folder, listings)


def are_ranks(folders: Iterable[Path]) -> bool:
    """Tell whether folders are named as those of ranks are, and lie beside one another."""
    each = list(folders)
    same = len({folder.parent for folder in each}) == 1
    return same and all(_RANK_FOLDER.fullmatch(folder.name) for folder in each)


def family_of(name: str) -> str:
    """Give what the files of one checkpoint in a folder share: a well-known name, or none."""
    whole = name.removesuffix(".partial")
    numbered = _NUMBERED.fullmatch(whole)
    stem = numbered[1] if numbered else whole.removesuffix(_SUFFIX)
    return stem if stem in (_ADAPTER, *_FAMILIES) else ""


def _single(folder: Path, holding: list[Listing]) -> Listing:
    if len(holding) > 1:
        raise _several(folder, (str(each.folder.relative_to(folder)) for each in holding))
    return holding[0]


def _found(listings: list[Listing], choice: _Choice | None = None) -> FoundFiles:
    """Put the checkpoint together from its folder and those of the ranks."""
    first, *ranks = listings
    if choice is None:
        choice = _choose(first) if first.weights or first.indexes else _Choice({})
    for rank in ranks:
        chosen = _choose(rank)
        prefix = rank.folder.relative_to(first.folder)
        choice.shards |= {str(prefix / name): path for name, path in chosen.shards.items()}
        choice.problems += chosen.problems
        choice.index_faults += chosen.index_faults
        why = {**rank.unread, **chosen.unread}
        choice.unread |= {str(prefix / name): text for name, text in why.items()}
    unread = {**first.unread, **choice.unread}
    used = set(choice.shards.values())
    strays = [
        str(path.relative_to(first.folder))
        for listing in listings
        for path in listing.beside()
        if path not in used and (choice.index is None or path.name != choice.index.name)
    ]
    return FoundFiles(
        folder=first.folder,
        shards=choice.shards,
        index=choice.index,
        config_folders=tuple(each.folder for each in listings),
        strays=tuple(sorted(strays)),
        problems=(*unread.values(), *(f.message for f in choice.index_faults), *choice.problems),
        unread=unread,
        index_faults=tuple(choice.index_faults),
    )


def _only(listing: Listing, files: dict[str, Path]) -> _Choice:
    if len(files) > 1:
        raise _several(listing.folder, files)
    return _Choice(dict(files))


def _choose(listing: Listing) -> _Choice:
    """Choose as loaders do: the file of a well-known name, its shards, else all there are."""
    families = [each for each in (_ADAPTER, *_FAMILIES) if _members(listing, each)]
    if _ADAPTER in families and len(families) > 1 and not listing.has("adapter_config.json"):
        raise _several(listing.folder, [f"{family}{_SUFFIX}" for family in families])
    if families:
        return _of_family(listing, families[0])
    if listing.indexes:
        return _by_index(listing, min(listing.indexes))
    choice = _Choice(dict(listing.weights), None, incomplete_sets(listing.weights))
    templates = {re.sub(r"[0-9]+", "0", name) for name in listing.weights}
    if len(templates) > 1:
        choice.problems.append(
            f"No index says which of {len(listing.weights):,} files belong together: "
            "all are taken as shards of one checkpoint."
        )
    return choice


def _members(listing: Listing, family: str) -> dict[str, Path]:
    """Give the single file of a family, its numbered shards, and its index."""
    members: dict[str, Path] = {}
    for name, path in (*listing.weights.items(), *listing.indexes.items()):
        numbered = _NUMBERED.fullmatch(name)
        if name in (family + _SUFFIX, family + _INDEX_SUFFIX) or (
            numbered and numbered[1] == family
        ):
            members[name] = path
    return members


def _of_family(listing: Listing, family: str) -> _Choice:
    members = _members(listing, family)
    single, index = family + _SUFFIX, family + _INDEX_SUFFIX
    if index in members:
        choice = _by_index(listing, index)
        if choice.index is not None and (
            single not in members or single in choice.index.weight_map.values()
        ):
            return choice
        if single in members and choice.index_faults:
            broken = choice.index_faults[0].message
            problem = f"{broken} Loaders take {single} and leave the index unread."
            return _Choice({single: members[single]}, None, [problem])
        if single in members:
            choice.problems.append(
                f"{single} and {index} are both there: loaders take {single} and leave the "
                "index unread."
            )
            return _Choice({single: members[single]}, None, choice.problems)
        shards = {name: path for name, path in members.items() if name != index}
        problems = choice.problems + incomplete_sets(shards)
        return _Choice(shards, None, problems, choice.unread, choice.index_faults)
    if single in members:
        return _Choice({single: members[single]})
    return _Choice(members, None, incomplete_sets(members))


def incomplete_sets(names: Iterable[str]) -> list[str]:
    """Say which numbers of `N-of-M` are not there, and whether sets of different M are mixed."""
    sets: dict[tuple[str, int], set[int]] = {}
    for name in names:
        if numbered := _NUMBERED.fullmatch(name):
            sets.setdefault((numbered[1], int(numbered[3])), set()).add(int(numbered[2]))
    problems: list[str] = []
    for (stem, count), present in sets.items():
        # Some writers count from 0.
        wanted = range(count) if 0 in present else range(1, count + 1)
        absent = [number for number in wanted if number not in present][: _SHOWN + 1]
        if absent:
            shown = ", ".join(map(str, absent[:_SHOWN])) + ("…" if len(absent) > _SHOWN else "")
            problems.append(f"{printable(stem)}: of {count:,} shards, these are missing: {shown}.")
    stems = Counter(stem for stem, _ in sets)
    problems += [
        f"{printable(stem)}: shards of {count} different sets are mixed."
        for stem, count in stems.items()
        if count > 1
    ]
    return problems


def _by_index(listing: Listing, name: str) -> _Choice:
    """Go by an index: its shards that are there; a shard that lies elsewhere is a problem."""
    try:
        index, problems = read_index(listing.folder / name)
    except ReefError as error:
        fault = JsonFault(name, error.message, gives(listing.folder / name, "weight_map"))
        return _Choice(dict(listing.weights), index_faults=[fault])
    choice = _Choice({}, index, problems)
    for shard in sorted(set(index.weight_map.values())):
        if shard in listing.weights:
            choice.shards[shard] = listing.weights[shard]
        elif not stays_inside(shard):
            choice.unread[shard] = (
                f"{printable(name)} names the shard `{printable(shard[:200])}`, which is not "
                "inside its folder, and is not read."
            )
        elif "/" in shard:
            path = listing.folder / shard
            if reason := listing.leads_out(path):
                choice.unread[shard] = reason
            elif path.is_file():
                choice.shards[shard] = path
    return choice


def stays_inside(name: str) -> bool:
    """Tell whether a name is a plain relative path that goes down only."""
    parts = name.split("/")
    return "\0" not in name and not any(part in ("", ".", "..") for part in parts)


def read_index(path: Path) -> tuple[Index, list[str]]:
    """Read an index strictly, and say what is odd about it. Raises Unusable, NotPermitted."""
    return index_from(read_object(path, INDEX_LIMIT), path.name)


def index_from(document: Mapping[str, Json], name: str) -> tuple[Index, list[str]]:
    """Take an index from its JSON, and say what is odd about it. Raises Unusable."""
    entries = document.get("weight_map")
    shards: dict[str, str] = {}
    if not isinstance(entries, dict):
        raise Unusable(f"{printable(name)} has no `weight_map`.", remedy="Get the index again.")
    weight_map: dict[str, str] = {}
    for tensor, shard in entries.items():
        if not isinstance(shard, str):
            raise Unusable(
                f"{printable(name)} gives no file name for `{printable(tensor[:200])}`.",
                remedy="Get the index again.",
            )
        weight_map[tensor] = shards.setdefault(shard, shard)
    problems: list[str] = []
    metadata = document.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    # Some writers give it as a float.
    if isinstance(total, float) and total.is_integer():
        total = int(total)
    if total is not None and (not isinstance(total, int) or isinstance(total, bool) or total < 0):
        problems.append(f"{printable(name)} has a `total_size` that is no number of bytes.")
        total = None
    return Index(name, weight_map, total), problems


def _several(folder: Path, names: Iterable[str]) -> Unusable:
    listed = sorted(names)
    shown = ", ".join(printable(os.fsencode(name)) for name in listed[:_SHOWN])
    more = f" and {len(listed) - _SHOWN:,} more" if len(listed) > _SHOWN else ""
    return Unusable(
        f"{printable(os.fsencode(folder))} holds several checkpoints: {shown}{more}.",
        remedy="Name the file or folder of one.",
    )


def _nothing(folder: Path, listings: list[Listing]) -> NoCheckpoint:
    label = printable(os.fsencode(folder))
    if problems := [problem for each in listings for problem in each.problems]:
        return NoCheckpoint(
            f"{label} holds no checkpoint that can be read: {problems[0]}",
            remedy="Name the file that is meant, or get it again.",
        )
    pickles = [path.name for each in listings for path in each.pickles]
    if pickles:
        return NoCheckpoint(
            f"{label} holds {printable(pickles[0])}, a pickle, and no safetensors file.",
            remedy="A pickle may run code and is never opened here; save it as safetensors.",
        )
    return NoCheckpoint(
        f"{label} holds no safetensors file.", remedy="Name the folder that the weights lie in."
    )
